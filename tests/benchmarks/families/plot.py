"""Bar plot of the ratios between contestants."""

from collections.abc import Sequence
from pathlib import Path

from common.plots import Bar, draw_ratios, plt, save

from .measuring import Measured
from .parts import Part


def plot(parts: Sequence[tuple[Part, Measured]], path: Path) -> None:
    """Draws a row for each part and in it a panel for each workload: times relative to ours."""
    columns = max(len(part.workloads) for part, _ in parts)
    figure, panels = plt.subplots(
        len(parts),
        columns,
        figsize=(3.6 * columns, 1.1 * len(parts)),
        squeeze=False,
        layout="constrained",
    )
    for row, (part, measured) in zip(panels, parts, strict=True):
        ours = part.entries[0]
        for panel in row[len(part.workloads) :]:
            panel.set_visible(False)
        for panel, workload in zip(row, part.workloads, strict=False):
            bars = [
                Bar(entry.label, ratio, entry.environment == ours.environment)
                for entry in part.entries
                if entry.label not in measured.failures
                and (ratio := measured.ratios(workload, entry, ours))
            ]
            draw_ratios(panel, f"{part.title}: {workload.label}", bars)
    figure.suptitle("Time relative to Shaperouter; shorter is faster", fontsize=9)
    save(figure, path)
