"""``hpuwatch doctor``: is this machine fit for the job, and if not, what to do.

Each check is a small function that returns one :class:`Check`.  Nothing of the runtime is
imported: versions come from ``importlib.metadata`` of the *server's* interpreter, asked in
a process of its own, since a Gaudi card belongs to one process only.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from hpuwatch import __version__
from hpuwatch.listen import parse_listen
from hpuwatch.settings import Settings
from hpuwatch.units import format_bytes

VLLM_ADDRESS = "127.0.0.1:8000"  # vLLM's default port
OK, NOTE, WARNING, ERROR = "ok", "note", "warning", "error"

_RUNTIME_PACKAGES = (
    "vllm",
    "vllm-gaudi",
    "torch",
    "habana-torch-plugin",
    "habana-frameworks-torch",
    "pyhlml",
)
_NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "gpfs", "lustre", "nfs", "nfs4", "smb3"}
)
_VOLATILE_FILE_SYSTEMS = {
    "tmpfs": "which the next boot empties",
    "ramfs": "which the next boot empties",
    "overlay": "which goes with its container",
}
_ASK_VERSIONS = """
import importlib.metadata as m, json, sys
def v(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
print(json.dumps({name: v(name) for name in sys.argv[1:]}))
"""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: its name, how it stands, and a sentence."""

    name: str
    status: str
    text: str


def examine(
    settings: Settings,
    environ: Mapping[str, str],
    server_python: str | None = None,
    server_address: str = VLLM_ADDRESS,
) -> list[Check]:
    """Return all checks, in the order in which a person would ask.

    Args:
        settings: where hpuwatch would listen and keep its state.
        environ: the environment that the server would get.
        server_python: the interpreter that runs vLLM, else it is looked for.
        server_address: where the server would listen, HOST:PORT.
    """
    return [
        _interpreter(),
        _tune_extra(),
        *_runtime(_server_python(server_python)),
        *_cards(Path("/dev"), Path("/sys/class/accel")),
        recipe_cache(environ.get("PT_HPU_RECIPE_CACHE_CONFIG"), mounts()),
        _port("port of hpuwatch", settings.listen),
        _port("port of the server", server_address),
        state_directory(settings.state_root(), mounts()),
    ]


def _interpreter() -> Check:
    python = platform.python_version()
    return Check(
        "hpuwatch",
        OK,
        f"{__version__} on Python {python} ({sys.executable}), {platform.system()}",
    )


def _tune_extra() -> Check:
    try:
        version = metadata.version("scikit-optimize")
    except metadata.PackageNotFoundError:
        return Check(
            "tuning",
            NOTE,
            "scikit-optimize is missing: pip install 'hpuwatch[tune]' to use tune",
        )
    return Check("tuning", OK, f"scikit-optimize {version}")


def _server_python(given: str | None) -> str | None:
    """Return the interpreter that runs vLLM: as given, or from the first line of ``vllm``."""
    if given is not None:
        return given
    program = shutil.which("vllm")
    if program is None:
        return shutil.which("python3")
    with Path(program).open("rb") as file:
        first = file.readline(512).decode(errors="replace").strip()
    python = first.removeprefix("#!").strip()
    return python if first.startswith("#!") and Path(python).exists() else None


def _runtime(python: str | None) -> list[Check]:
    if python is None:
        return [
            Check(
                "runtime",
                NOTE,
                "no interpreter with vLLM found (--server-python names it)",
            )
        ]
    versions = _versions(python)
    if versions is None:
        return [
            Check("runtime", WARNING, f"{python} could not be asked for its packages")
        ]
    found = ", ".join(
        f"{name} {version}" for name, version in versions.items() if version
    )
    if versions.get("vllm") is None:
        return [
            Check(
                "runtime",
                NOTE,
                f"no vLLM beside {python}" + (f" ({found})" if found else ""),
            )
        ]
    checks = [Check("runtime", OK, f"{found} ({python})")]
    plugin = versions.get("vllm-gaudi")
    if plugin is None and versions.get("habana-torch-plugin") is None:
        checks.append(
            Check(
                "release",
                WARNING,
                "vLLM without vllm-gaudi or a Habana bridge: not a Gaudi server",
            )
        )
    else:
        checks.append(_release(plugin, str(versions["vllm"])))
    return checks


def _release(plugin: str | None, vllm: str) -> Check:
    from hpuwatch.gaudi.releases import release_of

    name = f"plugin-{plugin}" if plugin else f"fork-{vllm}"
    try:
        release = release_of(name)
    except ValueError as error:
        return Check("release", WARNING, str(error))
    assumed = f", assumed like {release.assumed_like}" if release.assumed_like else ""
    return Check(
        "release", OK, f"{release.name}: buckets as {release.dialect}{assumed}"
    )


def installed_release() -> str | None:
    """Return the release that this machine's ``vllm`` is, as a release is named, or None."""
    if shutil.which("vllm") is None:
        return None
    python = _server_python(None)
    versions = _versions(python) if python else None
    if not versions or not versions.get("vllm"):
        return None
    plugin = versions.get("vllm-gaudi")
    return f"plugin-{plugin}" if plugin else f"fork-{versions['vllm']}"


def _versions(python: str) -> dict[str, str | None] | None:
    try:
        said = subprocess.run(  # noqa: S603  the operator's own interpreter
            [python, "-c", _ASK_VERSIONS, *_RUNTIME_PACKAGES],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        answer: dict[str, str | None] = json.loads(said.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return answer


def _cards(dev: Path, accel: Path) -> list[Check]:
    nodes = sorted(dev.glob("accel/accel[0-9]*")) + sorted(dev.glob("hl[0-9]*"))
    tool = shutil.which("hl-smi")
    checks = []
    if nodes:
        checks.append(Check("cards", OK, f"{len(nodes)} device nodes ({nodes[0]} …)"))
    elif accel.is_dir() and any(accel.iterdir()):
        checks.append(
            Check(
                "cards",
                WARNING,
                f"{accel} lists cards but /dev has none: pass them into the container",
            )
        )
    else:
        checks.append(Check("cards", NOTE, "no Gaudi card on this machine"))
    if tool:
        checks.append(Check("card tools", OK, f"hl-smi at {tool}"))
    else:
        checks.append(Check("card tools", NOTE, "hl-smi is not on the PATH"))
    return checks


def mounts() -> list[tuple[Path, str]]:
    """Return (mount point, file system type) of every mount, as the kernel lists them."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        left, _, right = line.partition(" - ")
        found.append((Path(left.split()[4].replace("\\040", " ")), right.split()[0]))
    return found


def file_system(path: Path, mounts: Sequence[tuple[Path, str]]) -> str:
    """Return the type of the file system that *path* lies on, or ``unknown``."""
    best, kind = Path(), "unknown"
    for point, found in mounts:
        if path.is_relative_to(point) and len(point.parts) >= len(best.parts):
            best, kind = point, found
    return kind


def _is_network(kind: str) -> bool:
    return kind in _NETWORK_FILE_SYSTEMS or kind.startswith("fuse.")


def recipe_cache(config: str | None, mounts: Sequence[tuple[Path, str]]) -> Check:
    """Judge ``PT_HPU_RECIPE_CACHE_CONFIG`` (folder, delete at start, size in MB)."""
    name = "recipe cache"
    if not config or not config.split(",")[0]:
        return Check(
            name,
            NOTE,
            "PT_HPU_RECIPE_CACHE_CONFIG is not set: every start compiles all graphs anew",
        )
    folder, *rest = (part.strip() for part in config.split(","))
    path = Path(folder).absolute()
    kind = file_system(path, mounts)
    if _is_network(kind):
        return Check(
            name,
            WARNING,
            f"{path} is on {kind}: keep it on a local disk, locks fail there",
        )
    trouble = _unusable(path)
    if trouble:
        return Check(name, WARNING, f"{path} {trouble}")
    if rest and rest[0].lower() in {"true", "1"}:
        return Check(
            name,
            WARNING,
            f"{path} is emptied at every start (second field is {rest[0]!r})",
        )
    if kind in _VOLATILE_FILE_SYSTEMS:
        return Check(
            name, WARNING, f"{path} is on {kind}, {_VOLATILE_FILE_SYSTEMS[kind]}"
        )
    state = "exists" if path.exists() else "will be made"
    return Check(name, OK, f"{path} on {kind} ({state})")


def _unusable(path: Path) -> str:
    """Say why nothing can be kept in a folder; empty where it can be."""
    try:
        if path.exists() and not os.access(path, os.W_OK):
            return "is not writable: recipes are not kept"
    except OSError as error:
        return f"can't be a folder ({error.strerror})"
    return ""


def _port(name: str, listen: str) -> Check:
    wanted = parse_listen(listen)
    family = socket.AF_INET6 if ":" in wanted.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((wanted.host, wanted.port))
        except OSError as error:
            return Check(
                name,
                WARNING,
                f"{listen} can't be used ({error.strerror}): pick another, or stop who has it",
            )
    return Check(name, OK, f"{listen} is free")


def state_directory(path: Path, mounts: Sequence[tuple[Path, str]]) -> Check:
    """Judge the folder that spools, studies and exit records go to."""
    name = "state directory"
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if not os.access(there, os.W_OK):
        return Check(
            name,
            WARNING,
            f"{path} is not writable: the server would start, but nothing would be kept;"
            " set HPUWATCH_STATE_DIR",
        )
    kind = file_system(there.absolute(), mounts)
    free = shutil.disk_usage(there).free
    if _is_network(kind):
        return Check(
            name, WARNING, f"{path} is on {kind}: choose a local disk for the spool"
        )
    if free < 1024**3:
        return Check(name, WARNING, f"{path} has only {format_bytes(free)} left")
    return Check(name, OK, f"{path} on {kind}, {format_bytes(free)} free")
