"""What every test may ask for, and the rule that CI skips nothing."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is no failure: examples have no deadline of their own.  In CI the examples
# are the same each time, so that a red run means the change; elsewhere they go on searching.
settings.register_profile("hpuwatch", deadline=None, derandomize="CI" in os.environ)
settings.register_profile("brief", settings.get_profile("hpuwatch"), max_examples=25)
settings.load_profile("hpuwatch")

_CHECKOUT = Path(__file__).resolve().parent.parent
_skipped: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--few-cases",
        action="store_true",
        help="run only the first and the last case of each test",
    )


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Another Python breaks a test by its code, hardly by one of its many cases."""
    if not config.getoption("--few-cases"):
        return
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    items[:] = [
        each for row in cases.values() for each in dict.fromkeys((row[0], row[-1]))
    ]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real logs and oracle data that lies beside some checkouts."""
    folder = Path(os.environ.get("HPUWATCH_SHARED", _CHECKOUT.parent / "shared"))
    if not (folder / "corpus").is_dir():
        pytest.skip("the shared folder with real logs is not beside this checkout")
    return folder


_numbers = count()


@pytest.fixture(autouse=True)
def _state_of_its_own(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep what a test's own ``suggest`` remembers from the machine and from other tests.

    Nothing is made here: hpuwatch makes the folder if it needs it.
    """
    home = tmp_path_factory.getbasetemp() / f"state-home-{next(_numbers)}"
    monkeypatch.setenv("XDG_STATE_HOME", str(home))


@pytest.fixture
def checkout() -> Path:
    """The root of this checkout."""
    return _CHECKOUT


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With HPUWATCH_NO_SKIP set, a skipped test is a failed run."""
    if _skipped and os.environ.get("HPUWATCH_NO_SKIP"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
