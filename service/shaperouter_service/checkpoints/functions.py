"""Functions on disk: SavedModels and `.keras` files, and the settings beside them."""

from pathlib import Path

SAVED_MODEL = "saved_model.pb"
KERAS_SUFFIX = ".keras"


def is_function(path: Path) -> bool:
    """Whether a model is a function: a directory with a SavedModel, or a `.keras` file."""
    return path.suffix == KERAS_SUFFIX or (path / SAVED_MODEL).is_file()
