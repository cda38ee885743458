"""One Chromium for the tests of a module."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from hpuwatch.testing.browser import Chromium


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    browser = Chromium(program, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
