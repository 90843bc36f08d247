"""Bar plot of the ratios between contestants."""

from pathlib import Path

from common.plots import Bar, draw_ratios, plt, save

from .contestants import ENGINE, ENTRIES, SERVICE
from .report import ratios
from .result import Result
from .workloads import workloads


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
        bars = [
            Bar(entry.label, ratio, entry in (ENGINE, SERVICE))
            for entry in ENTRIES
            if (ratio := ratios(result, workload.name, entry, ENGINE))
        ]
        draw_ratios(panel, workload.label, bars)
    figure.suptitle(f"Time relative to {ENGINE.label}; shorter is faster", fontsize=9)
    save(figure, path)
