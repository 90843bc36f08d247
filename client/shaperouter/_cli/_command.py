"""The base of all subcommands: shared options, the connection and error messages.

Exit codes: 0 success, 1 the call failed, 2 an argument is wrong, 130 interrupted.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from shaperouter._cli._field_names import option_names, with_option_names
from shaperouter._cli._interruption import EXIT_INTERRUPTED
from shaperouter._cli._json import print_json
from shaperouter._client import Client
from shaperouter._endpoint import ADDRESS_VARIABLE, DEFAULT_ADDRESS, DEFAULT_TIMEOUT
from shaperouter._errors import InvalidArgumentError, ShaperouterError

# Holds the token itself, for secret stores that set variables; elsewhere --token-file is safer.
TOKEN_VARIABLE = "SHAPEROUTER_TOKEN"  # noqa: S105 (its name)

_META = "shaperouter."  # prefix of the shared options' values in the context


def shared_options() -> list[click.Parameter]:
    """The options that may be given before or after the subcommand's name; the latter wins."""
    return [
        click.Option(
            ["--address"],
            metavar="ADDRESS",
            expose_value=False,
            callback=_remember,
            help="Address of the service: host:port or unix:path. "
            f"[env: {ADDRESS_VARIABLE}; default: {DEFAULT_ADDRESS}]",
        ),
        click.Option(
            ["--timeout"],
            type=float,
            metavar="SECONDS",
            expose_value=False,
            callback=_remember,
            help="Deadline of the call, in seconds. A service that is still starting "
            "compiles before it answers. "
            f"[default: {DEFAULT_TIMEOUT:g}; none for load, warm and graphs --watch]",
        ),
        click.Option(
            ["--tls"],
            is_flag=True,
            default=None,
            expose_value=False,
            callback=_remember,
            help="Use TLS. Each of the next three options implies it. [default: plain text]",
        ),
        _file_option(
            "ca",
            "CA certificates that the service's certificate must be issued by, in PEM.",
            "the public CAs",
        ),
        _file_option(
            "cert", "Client certificate, in PEM, for a service that requires one.", "none"
        ),
        _file_option("key", "Private key of --cert, in PEM.", "none"),
        _file_option(
            "token-file",
            "File with the token that identifies the caller. There is no option for the token "
            f"itself, because other users can see command lines; the variable {TOKEN_VARIABLE} can "
            "hold it.",
            "none",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            default=None,
            expose_value=False,
            callback=_remember,
            help="Print JSON, including errors. [default: text]",
        ),
    ]


def _file_option(name: str, text: str, default: str) -> click.Option:
    return click.Option(
        [f"--{name}"],
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_remember,
        help=f"{text} [env: {_variable(name)}; default: {default}]",
    )


class GroupedOption(click.Option):
    """An option that ``--help`` lists under a heading.

    Attributes:
        group: The heading.
    """

    def __init__(self, *args: Any, group: str, **kwargs: Any) -> None:
        """Takes the heading, and the arguments of any option."""
        super().__init__(*args, **kwargs)
        self.group = group


class Command(click.Command):
    """A subcommand with the shared options, which reports errors.

    Attributes:
        field_names: Names on the command line of request fields that have no option of the same
            name.
    """

    def __init__(
        self, *args: Any, field_names: Mapping[str, str] = MappingProxyType({}), **kwargs: Any
    ) -> None:
        """Adds the shared options to the subcommand's own."""
        super().__init__(*args, **kwargs)
        self.params += shared_options()
        self.field_names = {"token": "--token-file", **field_names}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the options without a group first, then each group under its heading."""
        groups: dict[str, list[tuple[str, str]]] = {"Options": []}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is not None:
                heading = option.group if isinstance(option, GroupedOption) else "Options"
                groups.setdefault(heading, []).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def invoke(self, ctx: click.Context) -> object:
        """Runs the subcommand; after a failure, exits with its code."""
        try:
            return super().invoke(ctx)
        except ShaperouterError as error:
            report(ctx, error)
            ctx.exit(2 if isinstance(error, InvalidArgumentError) else 1)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)


def connect(ctx: click.Context) -> Client:
    """Creates a client from the command line and the environment."""
    return Client(
        ctx.meta.get(_META + "address"),
        timeout=ctx.meta.get(_META + "timeout", DEFAULT_TIMEOUT),
        tls=ctx.meta.get(_META + "tls"),
        ca=_file(ctx, "ca"),
        cert=_file(ctx, "cert"),
        key=_file(ctx, "key"),
        token=_token(ctx),
    )


def _variable(name: str) -> str:
    return "SHAPEROUTER_" + name.replace("-", "_").upper()


def _file(ctx: click.Context, name: str) -> Path | None:
    """The file named by an option, at either place, or else by its variable."""
    given: Path | None = ctx.meta.get(_META + name.replace("-", "_"))
    variable = os.environ.get(_variable(name))
    return given or (Path(variable) if variable else None)


def _token(ctx: click.Context) -> str | None:
    file = _file(ctx, "token-file")
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError.of("token-file", f"cannot read {file} as text") from error


def given_timeout(ctx: click.Context, *, default: float) -> float:
    """The timeout from the command line in seconds, or a default."""
    return float(ctx.meta.get(_META + "timeout", default))


def wants_json(ctx: click.Context) -> bool:
    """Whether ``--json`` was given."""
    return bool(ctx.meta.get(_META + "json"))


def _remember(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
    if value is not None:
        ctx.meta[f"{_META}{parameter.name}"] = value


def report(ctx: click.Context, error: ShaperouterError) -> None:
    """Prints an error of a command's call, with the names of the command's options."""
    if wants_json(ctx):
        details = {
            "code": error.code.name,
            "message": str(error),
            "retriable": error.retriable,
            "request_id": error.request_id,
            "retry_after": error.retry_after,
            "violations": [dataclasses.asdict(v) for v in getattr(error, "violations", ())],
        }
        print_json({"error": details}, err=True)
    else:
        request = f" (request {error.request_id})" if error.request_id else ""
        message = str(error)
        if isinstance(error, InvalidArgumentError):
            others = ctx.command.field_names if isinstance(ctx.command, Command) else {}
            message = with_option_names(error, option_names(ctx.command, others))
        click.echo(f"Error: {message}{request}", err=True)
        if error.retry_after is not None:
            click.echo(f"The service suggests retrying in {error.retry_after:g} s.", err=True)
