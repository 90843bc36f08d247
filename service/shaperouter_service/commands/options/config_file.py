"""The configuration file: defaults of a command's options."""

import tomllib
from pathlib import Path

import click

from shaperouter_service.commands.options.declaring import option


def _read_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Takes defaults from a TOML file whose keys are the options' names."""
    if path is None:
        return
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{path}: {error}") from error
    known = {
        parameter.opts[0].removeprefix("--"): parameter
        for parameter in ctx.command.params
        if not getattr(parameter, "hidden", False)
    }
    for key, value in values.items():
        if key not in known or key in ("config", "help"):
            raise click.BadParameter(f"{path}: no option {key!r}; there are {', '.join(known)}")
        if isinstance(value, dict) or (isinstance(value, list) != known[key].multiple):
            form = "a list of values" if known[key].multiple else "one value"
            raise click.BadParameter(f"{path}: {key} must be {form}, got {value!r}")
    # As text, as from the environment: so that 1.5 is no integer here either.
    ctx.default_map = {
        known[key].name: [str(v) for v in value] if isinstance(value, list) else str(value)
        for key, value in values.items()
    }


config_option = option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_read_config,
    is_eager=True,
    expose_value=False,
    help="A TOML file of defaults: keys are the names of these options without dashes in "
    "front. The command line goes before the environment, and both before the file.",
)
