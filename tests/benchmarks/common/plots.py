"""Style of the plots; the same figures always give the same file."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .tables import Spread

__all__ = ["OTHERS", "OURS", "Bar", "draw_ratios", "plt", "save"]

OURS, OTHERS = "#3566a8", "#a9b4c2"
# Longer bars of ratios are cut here and show their length as a number.
LONGEST = 4.0

# Keep text as text, not as outlines.
mpl.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "bench",
        "font.family": "sans-serif",
        "font.size": 8,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
)


class Bar(NamedTuple):
    """A contestant's time relative to that of the first contestant.

    Attributes:
        label: Its name.
        ratio: The ratio.
        is_ours: Whether it is one of ours.
    """

    label: str
    ratio: Spread
    is_ours: bool


def draw_ratios(panel: Axes, title: str, bars: Sequence[Bar]) -> None:
    """Draws ratios as bars and their spread as lines, except for the first: all divide by it."""
    for place, (_, ratio, is_ours) in enumerate(bars):
        length = min(ratio.median, LONGEST)
        panel.barh(place, length, color=OURS if is_ours else OTHERS, height=0.7)
        end = length
        if ratio.median <= LONGEST and place > 0:
            end = min(ratio.max, LONGEST)
            panel.plot([ratio.min, end], [place, place], color="black", linewidth=0.8)
        cut = " (cut off)" if ratio.median > LONGEST else ""
        panel.text(
            max(end, length) + 0.06, place, f"{ratio.median:.2f}{cut}", va="center", fontsize=7
        )
    panel.axvline(1, color="black", linewidth=0.6, linestyle=":")
    panel.set_yticks(range(len(bars)), [bar.label for bar in bars])
    panel.invert_yaxis()
    panel.set_xlim(0, LONGEST + 1)
    panel.set_title(title, fontsize=8, loc="left")


def save(figure: Figure, path: Path) -> None:
    """Writes and closes a figure."""
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
