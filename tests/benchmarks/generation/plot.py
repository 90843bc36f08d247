"""Bar plot of the ratios between contestants."""

from pathlib import Path

from matplotlib.axes import Axes

from common.plots import OTHERS, OURS, plt, save

from .contestants import ENGINE, ENTRIES, SERVICE, Entry
from .report import ratios
from .result import Result
from .workloads import Workload, workloads

# Longer bars are cut here and show their length as a number.
LONGEST = 4.0


def plot(result: Result, path: Path) -> None:
    """Draws a panel for each workload: the time of each contestant relative to Shaperouter's."""
    measured = [workload for workload in workloads() if result.seconds.get(workload.name)]
    if not measured:
        return
    rows = (len(measured) + 1) // 2
    figure, panels = plt.subplots(
        rows, 2, figsize=(8, 1.75 * rows), squeeze=False, layout="constrained"
    )
    for panel in panels.flat[len(measured) :]:
        panel.set_visible(False)
    for panel, workload in zip(panels.flat, measured, strict=False):
        _draw(panel, result, workload)
    figure.suptitle(f"Time relative to {ENGINE.label}; shorter is faster", fontsize=9)
    save(figure, path)


def _draw(panel: Axes, result: Result, workload: Workload) -> None:
    bars = [
        (entry, ratio)
        for entry in ENTRIES
        if (ratio := ratios(result, workload.name, entry, ENGINE))
    ]
    for place, (entry, ratio) in enumerate(bars):
        length = min(ratio.median, LONGEST)
        panel.barh(place, length, color=_color(entry), height=0.7)
        end = length
        if ratio.median <= LONGEST and entry is not ENGINE:
            end = min(ratio.max, LONGEST)
            panel.plot([ratio.min, end], [place, place], color="black", linewidth=0.8)
        cut = " (cut off)" if ratio.median > LONGEST else ""
        panel.text(
            max(end, length) + 0.06, place, f"{ratio.median:.2f}{cut}", va="center", fontsize=7
        )
    panel.axvline(1, color="black", linewidth=0.6, linestyle=":")
    panel.set_yticks(range(len(bars)), [entry.label for entry, _ in bars])
    panel.invert_yaxis()
    panel.set_xlim(0, LONGEST + 1)
    panel.set_title(workload.label, fontsize=8, loc="left")


def _color(entry: Entry) -> str:
    return OURS if entry in (ENGINE, SERVICE) else OTHERS
