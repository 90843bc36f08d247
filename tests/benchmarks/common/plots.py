"""Style of the plots; the same figures always give the same file."""

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

__all__ = ["OTHERS", "OURS", "plt", "save"]

OURS, OTHERS = "#3566a8", "#a9b4c2"

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


def save(figure: Figure, path: Path) -> None:
    """Writes and closes a figure."""
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
