"""Draws the figures of `make simulate`; runs where Matplotlib is, without the service.

python plot.py build/simulation.json docs/scale.svg
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from common.plots import OTHERS, OURS, plt, save

Rows = list[dict[str, Any]]
SHADES = ("#a9b4c2", "#7f9cc4", OURS, "#1d3d6e")


def main() -> None:
    """Draws all plots into one picture."""
    source, target = map(Path, sys.argv[1:])
    rows: defaultdict[str, Rows] = defaultdict(list)
    for row in json.loads(source.read_text(encoding="utf-8")):
        rows[row["scenario"]].append(row)
    figure, axes = plt.subplots(3, 2, figsize=(8, 9), layout="constrained")
    draw = (_sizes, _scale, _policies, _one_router, _failures, _autoscaling)
    names = ("sizes", "scale", "policies", "one router", "failures", "autoscaling")
    for axis, drawing, name in zip(axes.flat, draw, names, strict=True):
        drawing(axis, rows[name])
    save(figure, target)


def _sizes(axis: Any, rows: Rows) -> None:
    for workers, shade in zip(_values(rows, "workers"), SHADES[1:], strict=False):
        mine = [row for row in rows if row["names"]["workers"] == workers]
        label = f"{workers} worker{'s' if workers > 1 else ''}"
        axis.plot(
            [row["names"]["rate"] for row in mine],
            [1000 * row["figures"]["first_p95"] for row in mine],
            marker="o",
            markersize=3,
            color=shade,
            label=label,
        )
    axis.set(
        title="How many workers",
        xlabel="requests/s for each worker",
        ylabel="ms to the first token, 95th percentile",
        yscale="log",
    )
    axis.legend(frameon=False)


def _scale(axis: Any, rows: Rows) -> None:
    workers = [row["names"]["workers"] for row in rows]
    for percentile, color in ((50, OTHERS), (95, OURS)):
        axis.plot(
            workers,
            [1000 * row["figures"][f"first_p{percentile}"] for row in rows],
            marker="o",
            markersize=3,
            color=color,
            label=f"{percentile}th percentile",
        )
    axis.set(
        title="10 requests/s for each worker, in cells of 10",
        xlabel="workers",
        ylabel="ms to the first token",
        xscale="log",
        ylim=(0, None),
    )
    axis.legend(frameon=False)


def _policies(axis: Any, rows: Rows) -> None:
    names = _values(rows, "policy")
    for offset, (state, color) in enumerate((("hot", OURS), ("cold", OTHERS))):
        mine = [row for row in rows if row["names"]["shapes"] == state]
        axis.bar(
            [index + 0.4 * offset for index in range(len(mine))],
            [row["figures"]["whole_p95"] for row in mine],
            width=0.38,
            color=color,
            label=f"{state} shapes",
        )
    axis.set_xticks([index + 0.2 for index in range(len(names))], names)
    axis.set(title="How workers are chosen", ylabel="seconds of a request, 95th percentile")
    axis.legend(frameon=False)


def _one_router(axis: Any, rows: Rows) -> None:
    mine = [row for row in rows if row["figures"]["rate"] > 0]
    axis.plot(
        [row["names"]["workers"] for row in mine],
        [row["figures"]["rate"] for row in mine],
        marker="o",
        markersize=3,
        color=OURS,
    )
    axis.set(
        title="What one router can do",
        xlabel="workers that it watches",
        ylabel="requests/s",
        xscale="log",
        ylim=(0, None),
    )


def _failures(axis: Any, rows: Rows) -> None:
    deaths = [row["names"]["deaths"] for row in rows]
    for percentile, color in ((50, OTHERS), (95, OURS), (99, SHADES[-1])):
        axis.plot(
            deaths,
            [row["figures"][f"whole_p{percentile}"] for row in rows],
            marker="o",
            markersize=3,
            color=color,
            label=f"{percentile}th percentile",
        )
    axis.set(
        title="Workers that die within 30 s, of 8",
        xlabel="deaths",
        ylabel="seconds of a request",
        ylim=(0, None),
    )
    axis.legend(frameon=False)


def _autoscaling(axis: Any, rows: Rows) -> None:
    for row, color in zip(rows, (OTHERS, SHADES[1], OURS), strict=True):
        timeline = row["figures"]["timeline"]
        axis.plot(
            [float(at) for at in timeline],
            list(timeline.values()),
            color=color,
            label=row["names"]["fleet"],
        )
    axis.set(
        title="Four times the load after 30 s",
        xlabel="seconds",
        ylabel="seconds to the first token, 95th percentile",
        yscale="log",
    )
    axis.legend(frameon=False)


def _values(rows: Rows, name: str) -> list[Any]:
    return list(dict.fromkeys(row["names"][name] for row in rows))


if __name__ == "__main__":
    main()
