"""`shaperouterd ladder`: fits ladders to recorded traffic."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from shaperouter_service.commands.options.lengths import ChosenLengths
from shaperouter_service.commands.options.numbers import Integer, Number
from shaperouter_service.commands.tables import aligned
from shaperouter_service.compile_cache.cache import CompileCache
from shaperouter_service.compile_cache.directory import default_directory, record_directory
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.costs import NOMINAL_COMPILE_SECONDS
from shaperouter_service.routing.ladder_fit import ENOUGH_REQUESTS, Fit, fit_traffic, joined_calls
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.routing.traffic import Traffic
from shaperouter_service.telemetry.logs import LogSettings, configure_logs
from shaperouter_service.traffic_record import read_record

# The file beside a function that chooses its ladders; `calls`, which reads it, needs TensorFlow.
SETTINGS = "shaperouter.toml"

COLUMNS = ("", "", "rungs", "padding", "padding s", "compile s", "total s", "lengths")


def _record(_: click.Context, __: click.Parameter, given: Path | None) -> Path:
    """Finds the record of traffic in a compile cache."""
    directory = given or default_directory()
    if directory is None or directory == Path("off"):
        raise click.BadParameter("must be a directory, got off: the compile cache is off")
    if not directory.is_dir():
        raise click.BadParameter(f"{directory} is not a directory")
    is_cache = CompileCache(directory, max_bytes=sys.maxsize).exists
    return record_directory(directory) if is_cache else directory


def _rungs(name: str, of: str) -> Callable[[Any], Any]:
    """The option that limits the rungs of a fitted ladder."""
    return click.option(
        name,
        type=Integer(min=1),
        metavar="K",
        help=f"Maximum number of {of}.  [default: as many as pay]",
    )


@click.group()
def ladder() -> None:
    """Fit ladders to recorded traffic."""


@ladder.command()
@click.option(
    "--record",
    "directory",
    envvar="SHAPEROUTER_COMPILE_CACHE",
    show_envvar=True,
    type=click.Path(file_okay=False, path_type=Path),
    callback=_record,
    metavar="DIR",
    help="Compile cache of the workers that recorded the traffic, or its subdirectory "
    "`traffic`.  [default: shaperouter in the user's cache home]",
)
@click.option(
    "--model", metavar="NAME", help="Fit only this model.  [default: all models in the record]"
)
@_rungs("--prefill-rungs", "lengths for prompts")
@_rungs("--decode-rungs", "lengths for caches")
@_rungs("--encode-rungs", "lengths for sources")
@_rungs("--axis-rungs", "sizes of each axis of a function, and of its batch")
@click.option(
    "--horizon",
    type=Number(min=0, min_open=True),
    metavar="HOURS",
    help="Time in hours that a worker uses its compiled graphs. The longer, the more lengths "
    "pay.  [default: the recorded time]",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the fitted ladders to this TOML file, for `shaperouterd serve --config`. Those of "
    "functions are comments in it, to be copied to the functions' shaperouter.toml.",
)
def fit(
    *,
    directory: Path,
    model: str | None,
    prefill_rungs: int | None,
    decode_rungs: int | None,
    encode_rungs: int | None,
    axis_rungs: int | None,
    horizon: float | None,
    output: Path | None,
) -> None:
    """Fit ladders to recorded traffic.

    Finds the lengths, and for functions the sizes of each axis, that cost the least time in padding
    and compilations together, and compares them with the current ones of the models.
    """
    configure_logs(LogSettings(level="warning"))
    record = read_record(directory)
    if not record:
        raise click.BadParameter(f"{directory} has no recorded traffic", param_hint="--record")
    if model is not None and model not in record:
        known = ", ".join(sorted(record))
        raise click.BadParameter(
            f"no traffic is recorded for {model!r}; recorded models: {known}", param_hint="--model"
        )
    max_rungs = {
        GraphKind.ENCODE: encode_rungs,
        GraphKind.PREFILL: prefill_rungs,
        GraphKind.DECODE: decode_rungs,
    }
    fits = [
        fit_traffic(traffic, max_rungs=max_rungs, max_axis_rungs=axis_rungs, horizon=horizon)
        for name, traffic in sorted(record.items())
        if model in (None, name)
    ]
    click.echo("\n\n".join(_report(one, horizon) for one in fits))
    if output is not None:
        try:
            output.write_text(_config(fits), encoding="utf-8")
        except OSError as error:
            raise click.FileError(str(output), str(error)) from error


# --- Output -------------------------------------------------------------------------------------


def _report(fit: Fit, horizon: float | None) -> str:
    traffic = fit.traffic
    lines = [f"{traffic.model}: {_recorded(traffic)}"]
    if fit.comparisons:
        expected = f"{horizon:g} h of one worker" if horizon else "the recorded time"
        lines += [f"Expected costs over {expected}:", "", *_table(fit), ""]
        lines.append(_saving(fit))
    lines += [
        f"No device time is recorded for {kind}, so its ladder stays as it is."
        for kind, ladder in fit.chosen.items()
        if ladder is None
    ]
    if fit.comparisons and not any(one.compiles for one in traffic.signatures.values()):
        lines.append(
            f"No compilation is recorded; {NOMINAL_COMPILE_SECONDS:g} s are assumed for each."
        )
    if fit.is_thin:
        lines.append(
            f"TOO LITTLE TRAFFIC: a ladder fitted to fewer than {ENOUGH_REQUESTS} "
            f"{'calls' if fit.of_calls else 'prompts or runs'} is unreliable."
        )
    if fit.of_calls and fit.comparisons:
        lines += ["", f"For {SETTINGS} beside {traffic.model}:", "", *_settings(fit)]
    return "\n".join(lines)


def _recorded(traffic: Traffic) -> str:
    time = f"{traffic.seconds / 3600:,.3g} h of workers' time"
    if isinstance(traffic.ladders, CallLadders):
        return f"{joined_calls(traffic):,.0f} joined calls, {time}"
    counts = [f"{sum(traffic.prompts.values()):,.0f} prompts"]
    if traffic.sources:
        counts.insert(0, f"{sum(traffic.sources.values()):,.0f} sources")
    counts.append(f"{sum(traffic.runs.values()):,.0f} runs")
    return ", ".join([*counts, time])


def _table(fit: Fit) -> list[str]:
    rows = [COLUMNS]
    for one in fit.comparisons:
        for name, ladder in (("today", one.today), ("fitted", one.fitted)):
            expected = one.demand.expected(ladder)
            rows.append(
                (
                    one.title if name == "today" else "",
                    name,
                    str(len(ladder.rungs)),
                    f"{expected.padding_share:.0%}",
                    f"{expected.padding_seconds:,.1f}",
                    f"{expected.compile_seconds:,.1f}",
                    f"{expected.cost:,.1f}",
                    " ".join(map(str, ladder.rungs)),
                )
            )
    return aligned(rows, texts=(0, 1, len(COLUMNS) - 1))


def _saving(fit: Fit) -> str:
    today, fitted = fit.cost_today, fit.cost_fitted
    if not today:
        return "Nothing to save: neither padding nor compilations are expected."
    less = 1 - fitted / today
    return (
        f"The fitted ladders cost {abs(less):.0%} {'less' if less >= 0 else 'more'}: "
        f"{fitted:,.1f} s instead of {today:,.1f} s."
    )


def _config(fits: Sequence[Fit]) -> str:
    lines = ["# Fitted by `shaperouterd ladder fit`, for `shaperouterd serve --config`."]
    for fit in fits:
        thin = "(too little traffic to be reliable)" if fit.is_thin else ""
        lines.append(f"# {fit.traffic.model}: {_recorded(fit.traffic)}{thin}.")
    for kind in GraphKind:
        chosen = [
            ChosenLengths(model=fit.traffic.model, rungs=ladder.rungs)
            for fit in fits
            if not fit.of_calls and (ladder := fit.chosen.get(kind)) is not None
        ]
        if chosen:
            values = ", ".join(f'"{lengths}"' for lengths in chosen)
            lines.append(f"{kind}-lengths = [{values}]")
    for fit in fits:
        if fit.of_calls and fit.comparisons:
            lines += ["", f"# For {SETTINGS} beside {fit.traffic.model}:"]
            lines += [f"# {line}" for line in _settings(fit)]
    return "\n".join(lines) + "\n"


def _settings(fit: Fit) -> Iterator[str]:
    """The lines of a function's settings."""
    for axis, ladder in fit.chosen.items():
        if ladder is not None:
            yield f"[axes.{_key(axis)}]"
            yield f"ladder = {list(ladder.rungs)}"


def _key(name: str) -> str:
    """A key of TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
