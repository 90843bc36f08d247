"""Draws the dashboard's main panels from what dashboard.py saved of them."""

import argparse
import json
import math
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

COLUMNS = 3
MAIN = [
    "Requests running and waiting",
    "Time to first token",
    "Time between tokens",
    "Requests by code",
    "Stalls",
    "Covers",
    "Padding share",
    "Graphs by state",
    "Compiled, loaded, failed",
    "Device time by kind of graph",
    "Slots",
    "Lattice of decode: device time",
]
# How axes call Grafana's units.
UNITS = {"short": "", "s": "s", "reqps": "1/s", "ops": "1/s", "percentunit": "share", "none": ""}


def label(legend: str, labels: dict[str, str]) -> str:
    """A legend with its labels filled in."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), legend)


def draw_lines(axes: plt.Axes, panel: dict[str, Any]) -> None:
    """Series over the minutes of the run; stacked ones above each other."""
    lines = [
        (label(target["legend"], series["metric"]), series["values"])
        for target in panel["targets"]
        for series in target["series"]
    ]
    start = min(values[0][0] for _, values in lines)
    times = sorted({time for _, values in lines for time, _ in values})
    minutes = [(time - start) / 60 for time in times]
    samples = [{time: float(value) for time, value in values} for _, values in lines]
    rows = [[found.get(time, math.nan) for time in times] for found in samples]
    names = [name for name, _ in lines]
    if panel["stacked"]:
        filled = [[0.0 if math.isnan(value) else value for value in row] for row in rows]
        axes.stackplot(minutes, filled, labels=names, alpha=0.8)
    else:
        for name, row in zip(names, rows, strict=True):
            axes.plot(minutes, row, label=name, linewidth=1.2)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(UNITS[panel["unit"]])
    axes.legend(fontsize=6, loc="upper left", ncols=2)


def draw_lattice(axes: plt.Axes, panel: dict[str, Any]) -> None:
    """Rows by lengths, as a heat map."""
    cells = {
        (int(series["metric"]["rows"]), int(series["metric"]["length"])): float(series["value"][1])
        for series in panel["targets"][0]["series"]
    }
    rows, lengths = sorted({row for row, _ in cells}), sorted({length for _, length in cells})
    grid = [[cells.get((row, length), 0.0) for length in lengths] for row in rows]
    image = axes.imshow(grid, cmap="Oranges", aspect="auto", origin="lower")
    axes.set_xticks(range(len(lengths)), lengths)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel("length")
    axes.set_ylabel("rows")
    axes.figure.colorbar(image, ax=axes, label=UNITS[panel["unit"]])


def main(saved: Path, picture: Path) -> None:
    """Draws it."""
    panels = {panel["title"]: panel for panel in json.loads(saved.read_text(encoding="utf-8"))}
    mpl.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False})
    height = -(-len(MAIN) // COLUMNS)
    figure, grid = plt.subplots(
        height, COLUMNS, figsize=(5 * COLUMNS, 2.8 * height), layout="constrained"
    )
    for title, axes in zip(MAIN, grid.flat, strict=True):
        axes.set_title(title, loc="left", fontweight="bold")
        draw = draw_lattice if title.startswith("Lattice") else draw_lines
        draw(axes, panels[title])
    # It looks like a dashboard and must not be taken for one.
    note = "Drawn from the results of the dashboard's queries. Not a screenshot."
    figure.supxlabel(note, fontsize=8)
    figure.savefig(picture, metadata={"Date": None} if picture.suffix == ".svg" else None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("saved", type=Path, help="what dashboard.py --save wrote")
    parser.add_argument("picture", type=Path, help="an SVG or PNG file")
    given = parser.parse_args()
    main(given.saved, given.picture)
