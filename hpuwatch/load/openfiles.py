"""Open files: each connection is one, and the usual limit is 1,024."""

from __future__ import annotations

import resource

from hpuwatch.errors import ResourceError
from hpuwatch.units import counted

_OTHERS = 64  # what a process has open besides


def allow_connections(wanted: int) -> None:
    """Raise our own limit of open files as far as we may, and check that it is enough.

    Args:
        wanted: connections that will be open at a time, at least.

    Raises:
        ResourceError: the limit is lower, and only its owner can raise it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass  # some systems allow less than they say
    if soft != resource.RLIM_INFINITY and wanted + _OTHERS > soft:
        raise ResourceError(
            f"{counted(wanted, 'connection')} and the rest need {wanted + _OTHERS:,} open "
            f"files, this process may have {soft:,}: raise that (`ulimit -n`), or take a "
            "lower --concurrency"
        )
