"""The configuration file (`--config`), which sets defaults of a command's options."""

from collections.abc import Collection
from pathlib import Path

import click

from shaperouter_service.commands.options.declaring import CONFIG_FILE, Option, option
from shaperouter_service.commands.options.variables import nearest
from shaperouter_service.system import toml


def _read_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Reads defaults from a TOML file whose keys are names of options."""
    if path is None:
        return
    try:
        values = toml.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{path}: {error}") from error
    known = _keys(ctx.command)
    if unknown := [_unknown(key, known, ctx) for key in values if key not in known]:
        raise click.BadParameter(f"{path}: {'; '.join(unknown)}")
    for key, value in values.items():
        if isinstance(value, dict) or (isinstance(value, list) != known[key].multiple):
            form = "a list of values" if known[key].multiple else "one value"
            raise click.BadParameter(f"{path}: {key} must be {form}, got {value!r}")
    ctx.meta[CONFIG_FILE] = path
    # As text, like values of the environment, so that 1.5 is not accepted as an integer.
    ctx.default_map = {
        known[key].name: [str(v) for v in value] if isinstance(value, list) else str(value)
        for key, value in values.items()
    }


def _keys(command: click.Command) -> dict[str, click.Parameter]:
    """The options of a command that a file may set, by their keys."""
    return {
        parameter.opts[0].removeprefix("--"): parameter
        for parameter in command.params
        if isinstance(parameter, Option) and parameter.name != "config"
    }


def _unknown(key: str, known: Collection[str], ctx: click.Context) -> str:
    """Describes an unknown key, with the option that was probably meant."""
    group = ctx.find_root().command
    commands = group.commands if isinstance(group, click.Group) else {}
    if others := [name for name, command in commands.items() if key in _keys(command)]:
        return f"{ctx.info_name} has no option {key!r}; it is an option of {', '.join(others)}"
    meant = nearest(key, known)
    return f"unknown option {key!r}" + (f" (did you mean {meant!r}?)" if meant else "")


config_option = option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_read_config,
    is_eager=True,
    expose_value=False,
    help="TOML file with defaults for these options. Keys are the names of the options "
    "without the leading dashes. The command line overrides the environment, and both "
    "override the file.",
)
