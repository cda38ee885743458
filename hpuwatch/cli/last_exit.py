"""``hpuwatch last-exit``: say again how the last server ended."""

from __future__ import annotations

import typer

from hpuwatch.cli.options import JSON_OR_TEXT, SHARE, Format, check_choice


def last_exit(
    name: str | None = typer.Option(
        None, "--name", help="The instance (default: default)."
    ),
    state_dir: str | None = typer.Option(
        None, "--state-dir", help="The state directory of the run."
    ),
    share: bool = SHARE,
    form: Format = "text",
) -> None:
    """Print why the last server of this name ended, and what to do next."""
    from hpuwatch.advise.render.share import site_masked
    from hpuwatch.errors import MissingFileError
    from hpuwatch.runtime.instance import Instance
    from hpuwatch.runtime.last_exit import LastExit, read_last_exit
    from hpuwatch.settings import load_settings

    check_choice("--format", form, JSON_OR_TEXT)
    settings = load_settings(name=name, state_dir=state_dir)
    instance = Instance(settings.state_root(), settings.name)
    document = read_last_exit(instance)
    if document is None:
        raise MissingFileError(
            f"no server named {settings.name!r} has ended under {settings.state_root()}: "
            "check --name and --state-dir"
        )
    if share:
        whole = document.model_dump(by_alias=True, mode="json")
        document = LastExit.model_validate(site_masked(whole))
    if form == "json":
        print(document.model_dump_json(by_alias=True, indent=2))
    else:
        print(document.text())
