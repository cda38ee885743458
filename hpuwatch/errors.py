"""Every error that hpuwatch raises on purpose, named after what the caller does next.

    HpuwatchError
    ├── UsageError         the command line makes no sense: exit 2
    ├── InputError         the input can't be used: exit 65
    ├── MissingFileError   no such file: exit 66
    ├── ResourceError      a port, a program or another resource is not to be had: exit 69
    ├── BusyError          another hpuwatch owns it: exit 75
    ├── ConfigError        a setting is wrong, mend the configuration: exit 78
    │   └── RuleError      a rule file is wrong, the old rules stay in force
    ├── RuntimeBootError   the server died before it was ready: exit 69
    ├── StudyBroken        the stored study can't be continued: exit 78
    ├── StoreBroken        the stored starts can't be read: exit 78
    └── ExtraMissing       an optional dependency is not installed: exit 78

Expected outcomes (a line that matches no rule, a trial that failed) are values, not
errors. Messages are one sentence: what, where, and what to do.
"""

from __future__ import annotations


class HpuwatchError(Exception):
    """Base of all errors that hpuwatch raises on purpose.

    ``exit_code`` is what the command line returns when nobody handles it.
    """

    exit_code = 70


class UsageError(HpuwatchError):
    """The command line can't be carried out as written."""

    exit_code = 2


class InputError(HpuwatchError):
    """The input exists but can't be used (empty, binary, not a Gaudi log)."""

    exit_code = 65


class MissingFileError(HpuwatchError):
    """A file that was named doesn't exist or can't be opened."""

    exit_code = 66


class ResourceError(HpuwatchError):
    """A port, a program or another resource can't be had."""

    exit_code = 69


class BusyError(HpuwatchError):
    """Another hpuwatch owns what was asked for."""

    exit_code = 75


class ConfigError(HpuwatchError):
    """A setting is wrong; the configuration has to be mended."""

    exit_code = 78


class RuleError(ConfigError):
    """A rule file is wrong; the rules that were in force stay so."""


class ExtraMissing(ConfigError):  # noqa: N818  says what is the case, not that it is an error
    """An optional dependency is not installed."""


class RuntimeBootError(HpuwatchError):
    """The server died, or never became ready."""

    exit_code = 69


class StudyBroken(HpuwatchError):  # noqa: N818  names the state that the caller must handle
    """A stored study can't be continued."""

    exit_code = 78


class StoreBroken(HpuwatchError):  # noqa: N818  likewise
    """The stored starts can't be read."""

    exit_code = 78
