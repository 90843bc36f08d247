"""Plots of latency since a cold start, and of latency and goodput at each rate."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes

from common.plots import OURS, plt, save

from .contestants import CTRANSLATE2, ENTRIES, SHAPEROUTER, TRANSFORMERS, Entry
from .result import Result, Run, State

COLORS = {SHAPEROUTER: OURS, CTRANSLATE2: "#c98a2b", TRANSFORMERS: "#8a94a3"}


def plot(result: Result, path: Path) -> None:
    """Draws the panels: cold starts above, rates below."""
    if not result.runs:
        return
    figure = plt.figure(figsize=(8, 5.4), layout="constrained")
    above, below = figure.subfigures(2, 1)
    taking_part = [entry for entry in ENTRIES if result.find(entry.name, State.COLD)]
    panels = above.subplots(1, len(taking_part), sharey=True, squeeze=False)
    for panel, entry in zip(panels.flat, taking_part, strict=True):
        run = result.find(entry.name, State.COLD)
        if run:
            _draw_cold(panel, entry, run)
    panels.flat[0].set_ylabel("latency, s")
    latency, goodput = below.subplots(1, 2)
    _draw_rates(latency, result, lambda run: run.latency(0.99))
    latency.set_yscale("log")
    latency.set_title("Warm: p99 latency, s", fontsize=8, loc="left")
    _draw_rates(goodput, result, lambda run: run.goodput(result.unloaded))
    sent = [
        (run.rate, run.requests / run.seconds) for run in result.runs if run.state is State.WARM
    ]
    goodput.plot(*_columns(sorted(sent)), color="black", linewidth=0.6, linestyle=":")
    goodput.set_ylim(bottom=0)
    goodput.set_title("Warm: answers in time per second (dotted: requests)", fontsize=8, loc="left")
    goodput.legend(frameon=False, fontsize=7)
    save(figure, path)


def _draw_cold(panel: Axes, entry: Entry, run: Run) -> None:
    """Draws a dot for each request at its send time, and a cross for one without an answer."""
    answered = [(at, took) for at, took in zip(run.sent, run.total, strict=True) if took]
    missing = [at for at, took in zip(run.sent, run.total, strict=True) if took is None]
    panel.scatter(*_columns(answered), s=6, color=COLORS[entry])
    panel.scatter(
        missing, [run.deadline] * len(missing), s=12, marker="x", color=COLORS[entry], linewidth=0.8
    )
    panel.set_yscale("log")
    panel.set_xlim(0, run.seconds)
    panel.set_xlabel("sent, seconds after a cold start; × not answered", fontsize=7)
    panel.set_title(entry.label, fontsize=8, loc="left")


def _draw_rates(panel: Axes, result: Result, figure_of: Callable[[Run], float]) -> None:
    for entry in ENTRIES:
        points = [
            (rate, figure_of(run))
            for rate in result.rates
            if (run := result.find(entry.name, State.WARM, rate))
        ]
        panel.plot(
            *_columns(points), marker="o", markersize=3, color=COLORS[entry], label=entry.label
        )
    panel.set_xlabel("requests a second")


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
