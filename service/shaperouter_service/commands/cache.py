"""`shaperouterd cache`: lists, checks and shrinks the compile cache, without TensorFlow."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from shaperouter_service.commands.options.numbers import Number
from shaperouter_service.commands.tables import aligned
from shaperouter_service.compile_cache.cache import CompileCache, Entry, least_valuable
from shaperouter_service.compile_cache.directory import default_directory
from shaperouter_service.system.sizes import format_size, parse_size

DAY_SECONDS = 24 * 3600.0

# Units of ages in seconds, the largest first.
_UNITS = (("d", DAY_SECONDS), ("h", 3600.0), ("min", 60.0))


def _open(_: click.Context, __: click.Parameter, value: str | None) -> CompileCache:
    directory = default_directory() if value is None else Path(value)
    if directory is None or value == "off":
        raise click.UsageError("--compile-cache: must be a directory, got off")
    cache = CompileCache(directory, max_bytes=sys.maxsize)
    # The default directory does not exist before the first start.
    if value is not None and not cache.exists:
        what = "is not a compile cache" if directory.is_dir() else "is not a directory"
        raise click.UsageError(f"--compile-cache: {directory} {what}")
    return cache


_cache = click.option(
    "--compile-cache",
    "cache",
    envvar="SHAPEROUTER_COMPILE_CACHE",
    show_envvar=True,
    metavar="DIRECTORY",
    callback=_open,
    help="Directory of the cache. Default: shaperouter in the user's cache home.",
)


@click.group("cache")
def cache_command() -> None:
    """List, check and shrink the compile cache."""


@cache_command.command("list")
@_cache
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def list_command(*, cache: CompileCache, as_json: bool) -> None:
    """List the graphs in the cache, newest first.

    A section holds the graphs of one model compiled in one way; a different model size, version or
    processor has a section of its own. SECONDS is the time that tracing and compiling took.
    """
    entries = cache.entries()
    click.echo(_as_json(cache, entries) if as_json else _as_table(cache, entries))


@cache_command.command()
@_cache
def verify(*, cache: CompileCache) -> None:
    """Read every file and check it. Exit code 1 if any is damaged.

    Prints a line for each damaged file. A damaged file costs one compilation: the next worker that
    reads it removes it and compiles the graph again.
    """
    checked = len(list(cache.files()))
    damaged = list(cache.damaged_files())
    for path, reason in damaged:
        click.echo(f"{path}: {reason}")
    click.echo(f"{checked} files, {len(damaged)} damaged")
    if damaged:
        raise click.exceptions.Exit(1)


@cache_command.command()
@_cache
@click.option(
    "--max-size",
    type=parse_size,
    metavar="SIZE",
    help="Remove the least valuable graphs until the cache is no larger than this.",
)
@click.option(
    "--unused-for",
    type=Number(min=0),
    metavar="DAYS",
    help="Remove graphs that were neither written nor loaded for this many days.",
)
@click.option("--all", "everything", is_flag=True, help="Remove all graphs.")
def prune(
    *, cache: CompileCache, max_size: int | None, unused_for: float | None, everything: bool
) -> None:
    """Remove graphs. Running workers keep the graphs that they have loaded."""
    if max_size is None and unused_for is None and not everything:
        raise click.UsageError("one of --max-size, --unused-for and --all must be given")
    now, entries = time.time(), cache.entries()
    removed = [
        entry
        for entry in entries
        if everything or (unused_for is not None and now - entry.used >= unused_for * DAY_SECONDS)
    ]
    if max_size is not None:
        rest = [entry for entry in entries if entry not in removed]
        removed += least_valuable(rest, max_size, now)
    freed = cache.remove(removed)
    left = [path for entry in removed for path in entry.paths if path.exists()]
    for entry in removed:
        click.echo(f"{entry.section}/{entry.graph}")
    click.echo(f"removed {len(removed)} of {len(entries)} graphs, freed {format_size(freed)}")
    if left:
        raise click.ClickException(f"{len(left)} files can't be removed, e.g. {left[0]}")


def _as_table(cache: CompileCache, entries: Sequence[Entry]) -> str:
    now = time.time()
    rows = [("SECTION", "GRAPH", "SIZE", "SECONDS", "AGE", "UNUSED")]
    rows += [
        (
            entry.section,
            entry.graph,
            format_size(entry.bytes),
            f"{entry.seconds:.1f}" if entry.created else "damaged",
            _age(now - entry.created) if entry.created else "",
            _age(now - entry.used) if entry.created else "",
        )
        for entry in entries
    ]
    lines = aligned(rows, texts=(0, 1)) if entries else []
    total = (
        f"{len(entries)} graphs, {format_size(sum(entry.bytes for entry in entries))}, "
        f"{sum(entry.seconds for entry in entries):.0f} s of compiling in {cache.directory}"
    )
    return "\n".join([*lines, total])


def _as_json(cache: CompileCache, entries: Sequence[Entry]) -> str:
    sections = {entry.section for entry in entries}
    return json.dumps(
        {
            "directory": str(cache.directory),
            "bytes": sum(entry.bytes for entry in entries),
            "sections": {section: dict(cache.key_parts(section)) for section in sorted(sections)},
            "graphs": [
                {
                    "section": entry.section,
                    "graph": entry.graph,
                    "bytes": entry.bytes,
                    "seconds": round(entry.seconds, 3),
                    "created": entry.created,
                    "used": entry.used,
                }
                for entry in entries
            ],
        },
        indent=1,
    )


def _age(seconds: float) -> str:
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
