"""The doctor judges a recipe cache, a state directory, a port and a runtime."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hpuwatch.app import doctor
from hpuwatch.settings import load_settings

pytestmark = pytest.mark.unit

_MOUNTS = [(Path("/"), "ext4"), (Path("/data"), "nfs4"), (Path("/data/local"), "xfs")]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/etc", "ext4"),
        ("/data/x", "nfs4"),
        ("/data/local/x", "xfs"),
        ("/database", "ext4"),
    ],
)
def test_the_longest_mount_point_decides(path: str, kind: str) -> None:
    assert doctor.file_system(Path(path), _MOUNTS) == kind


def test_a_recipe_cache_on_a_network_file_system_is_a_warning() -> None:
    check = doctor.recipe_cache("/data/recipes,false,1024", _MOUNTS)
    assert check.status == doctor.WARNING
    assert "nfs4" in check.text


def test_a_recipe_cache_in_user_space_over_the_network_is_a_warning() -> None:
    check = doctor.recipe_cache("/s/recipes,false,1024", [(Path("/"), "fuse.sshfs")])
    assert check.status == doctor.WARNING


def test_a_recipe_cache_that_is_emptied_at_start_is_a_warning() -> None:
    check = doctor.recipe_cache("/data/local/recipes,true,1024", _MOUNTS)
    assert check.status == doctor.WARNING
    assert "emptied" in check.text


def test_no_recipe_cache_is_worth_a_note() -> None:
    assert doctor.recipe_cache(None, _MOUNTS).status == doctor.NOTE
    assert doctor.recipe_cache(",false,1024,false", _MOUNTS).status == doctor.NOTE


def test_a_local_recipe_cache_is_fine(tmp_path: Path) -> None:
    check = doctor.recipe_cache(f"{tmp_path},false,1024", [(Path("/"), "ext4")])
    assert check.status == doctor.OK


def test_the_state_directory_need_not_exist_yet(tmp_path: Path) -> None:
    check = doctor.state_directory(tmp_path / "a/b/c", [(Path("/"), "ext4")])
    assert check.status in {
        doctor.OK,
        doctor.WARNING,
    }  # a nearly full disk is a warning
    assert str(tmp_path) in check.text


def test_a_port_in_use_is_a_warning() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        checks = doctor.examine(load_settings(listen=listen), {}, sys.executable)
    port = next(check for check in checks if check.name == "port of hpuwatch")
    assert port.status == doctor.WARNING
    assert listen in port.text


def test_every_address_of_the_machine_can_be_tried() -> None:
    checks = doctor.examine(load_settings(listen=":0"), {}, sys.executable)
    port = next(check for check in checks if check.name == "port of hpuwatch")
    assert (port.status, port.text) == (doctor.OK, ":0 is free")


def test_the_runtime_is_asked_in_a_process_of_its_own(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    versions = {
        "vllm": "0.26.0",
        "vllm-gaudi": "0.26.0",
        "habana-torch-plugin": "1.24.1.1",
    }
    fake.write_text(f"#!/bin/sh\necho '{json.dumps(versions)}'\n", encoding="utf-8")
    fake.chmod(0o755)
    checks = {c.name: c for c in doctor.examine(load_settings(), {}, str(fake))}
    assert "vllm-gaudi 0.26.0" in checks["runtime"].text
    assert "plugin-0.26" in checks["release"].text


def test_a_vllm_without_a_gaudi_bridge_is_a_warning(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\necho \'{"vllm": "0.26.0"}\'\n', encoding="utf-8")
    fake.chmod(0o755)
    checks = {c.name: c for c in doctor.examine(load_settings(), {}, str(fake))}
    assert checks["release"].status == doctor.WARNING


def test_an_interpreter_that_fails_is_a_warning() -> None:
    checks = {
        c.name: c for c in doctor.examine(load_settings(), {}, "/nonexistent/python")
    }
    assert checks["runtime"].status == doctor.WARNING


def test_the_verb_prints_json_and_can_fail(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hpuwatch", "doctor", "--format", "json"]
    command += ["--state-dir", str(tmp_path), "--server-python", "/nonexistent/python"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    document = json.loads(said.stdout)
    assert document["schema"] == "hpuwatch.doctor/1"
    assert {"hpuwatch", "runtime", "port of hpuwatch", "port of the server"} <= {
        check["name"] for check in document["checks"]
    }
    failing = subprocess.run(
        [*command, "--fail-on", "info"], capture_output=True, check=False
    )
    assert failing.returncode == 1
