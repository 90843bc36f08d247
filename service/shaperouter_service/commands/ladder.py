"""`shaperouterd ladder`: fits ladders to recorded traffic."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from shaperouter_service.commands.aligned import aligned
from shaperouter_service.commands.options.lengths import ChosenLengths
from shaperouter_service.commands.options.numbers import Integer, Number
from shaperouter_service.compile_cache.cache import CompileCache
from shaperouter_service.compile_cache.directory import default_directory, record_directory
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.costs import NOMINAL_COMPILE_SECONDS
from shaperouter_service.routing.demand import demands
from shaperouter_service.routing.fitting import Demand, fit_ladder
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.routing.traffic import Traffic
from shaperouter_service.telemetry.logs import LogSettings, configure_logs
from shaperouter_service.traffic_record import read_record

# Requests below which a fitted ladder is unreliable: about ten for each of about ten rungs.
ENOUGH_REQUESTS = 100

COLUMNS = ("", "", "rungs", "padding", "padding s", "compile s", "total s", "lengths")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The current and the fitted ladder of encode, of prefill or of one lane.

    Attributes:
        title: Which of these, as the table names it.
        demand: The recorded demand.
        today: The current ladder, in positions.
        fitted: The fitted ladder, in positions.
    """

    title: str
    demand: Demand
    today: Ladder
    fitted: Ladder


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The ladders fitted to the traffic of one model.

    Attributes:
        traffic: The recorded traffic.
        chosen: Lengths for the model's options, by kind; None if no device time was recorded.
        comparisons: Comparisons with the current ladders.
    """

    traffic: Traffic
    chosen: Mapping[GraphKind, ChosenLengths | None]
    comparisons: Sequence[Comparison]

    @property
    def cost_today(self) -> float:
        """Seconds for padding and compilations on the current ladders."""
        return sum(one.demand.expected(one.today).cost for one in self.comparisons)

    @property
    def cost_fitted(self) -> float:
        """Seconds for padding and compilations on the fitted ladders."""
        return sum(one.demand.expected(one.fitted).cost for one in self.comparisons)


def _record(_: click.Context, __: click.Parameter, given: Path | None) -> Path:
    """Finds the record of traffic in a compile cache."""
    directory = given or default_directory()
    if directory is None or directory == Path("off"):
        raise click.BadParameter("must be a directory, got off: the compile cache is off")
    if not directory.is_dir():
        raise click.BadParameter(f"{directory} is not a directory")
    is_cache = CompileCache(directory, max_bytes=sys.maxsize).exists
    return record_directory(directory) if is_cache else directory


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
@click.option(
    "--prefill-rungs",
    type=Integer(min=1),
    metavar="K",
    help="Maximum number of lengths for prompts.  [default: as many as pay]",
)
@click.option(
    "--decode-rungs",
    type=Integer(min=1),
    metavar="K",
    help="Maximum number of lengths for caches.  [default: as many as pay]",
)
@click.option(
    "--encode-rungs",
    type=Integer(min=1),
    metavar="K",
    help="Maximum number of lengths for sources.  [default: as many as pay]",
)
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
    help="Write the fitted ladders to this TOML file, for `shaperouterd serve --config`.",
)
def fit(
    *,
    directory: Path,
    model: str | None,
    prefill_rungs: int | None,
    decode_rungs: int | None,
    encode_rungs: int | None,
    horizon: float | None,
    output: Path | None,
) -> None:
    """Fit ladders of lengths to recorded traffic.

    Finds the lengths that cost the least time in padding and compilations together, and compares
    them with the current lengths of the models.
    """
    configure_logs(LogSettings(level="warning"))
    record = {
        name: traffic
        for name, traffic in read_record(directory).items()
        # Ladders of models that are called once are chosen beside the model.
        if not isinstance(traffic.ladders, CallLadders)
    }
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
        _fit(record[name], max_rungs, horizon) for name in sorted(record) if model in (None, name)
    ]
    click.echo("\n\n".join(_report(one, horizon) for one in fits))
    if output is not None:
        try:
            output.write_text(_config(fits), encoding="utf-8")
        except OSError as error:
            raise click.FileError(str(output), str(error)) from error


def _fit(traffic: Traffic, max_rungs: Mapping[GraphKind, int | None], horizon: float | None) -> Fit:
    ladders = traffic.of_generation
    # The counts cover `traffic.seconds` seconds.
    factor = horizon * 3600 / traffic.seconds if horizon and traffic.seconds else 1.0
    chosen: dict[GraphKind, ChosenLengths | None] = {}
    comparisons = []
    for kind in (GraphKind.ENCODE, GraphKind.PREFILL, GraphKind.DECODE):
        if (kind, 1) not in ladders.kinds:
            continue
        lanes = {beams: each.times(factor) for beams, each in demands(traffic, kind).items()}
        chosen[kind] = None
        if not lanes:
            continue
        fitted = fit_ladder(
            list(lanes.values()),
            maximum=ladders.lengths(kind).maximum,
            max_rungs=max_rungs[kind],
        )
        chosen[kind] = ChosenLengths(model=traffic.model, rungs=fitted.rungs)
        comparisons += [
            Comparison(
                title=kind if beams == 1 else f"{kind}, {beams} beams",
                demand=demand,
                today=ladders.lengths(kind, beams),
                fitted=Ladder(tuple(beams * rung for rung in fitted.rungs)),
            )
            for beams, demand in lanes.items()
        ]
    return Fit(traffic=traffic, chosen=chosen, comparisons=comparisons)


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
        for kind, lengths in fit.chosen.items()
        if lengths is None
    ]
    if fit.comparisons and not any(one.compiles for one in traffic.signatures.values()):
        lines.append(
            f"No compilation is recorded; {NOMINAL_COMPILE_SECONDS:g} s are assumed for each."
        )
    if _is_thin(traffic):
        lines.append(
            f"TOO LITTLE TRAFFIC: a ladder fitted to fewer than {ENOUGH_REQUESTS} prompts or runs "
            "is unreliable."
        )
    return "\n".join(lines)


def _recorded(traffic: Traffic) -> str:
    counts = [f"{sum(traffic.prompts.values()):,.0f} prompts"]
    if traffic.sources:
        counts.insert(0, f"{sum(traffic.sources.values()):,.0f} sources")
    counts.append(f"{sum(traffic.runs.values()):,.0f} runs")
    return ", ".join([*counts, f"{traffic.seconds / 3600:,.3g} h of workers' time"])


def _is_thin(traffic: Traffic) -> bool:
    # With an encoder, most prompts have one token: they need no prefill and are not recorded.
    inputs = traffic.prompts if traffic.of_generation.encoder is None else traffic.sources
    return min(sum(inputs.values()), sum(traffic.runs.values())) < ENOUGH_REQUESTS


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
        thin = "(too little traffic to be reliable)" if _is_thin(fit.traffic) else ""
        lines.append(f"# {fit.traffic.model}: {_recorded(fit.traffic)}{thin}.")
    for kind in GraphKind:
        chosen = [lengths for fit in fits if (lengths := fit.chosen.get(kind)) is not None]
        if chosen:
            values = ", ".join(f'"{lengths}"' for lengths in chosen)
            lines.append(f"{kind}-lengths = [{values}]")
    return "\n".join(lines) + "\n"
