"""The model repository: the directory below which models may be loaded at run time."""

import re
from pathlib import Path

from shaperouter_service.checkpoints.functions import KERAS_SUFFIX, function_in
from shaperouter_service.checkpoints.model_files import check_model_directory, is_checkpoint
from shaperouter_service.errors import StartupError

MAX_LOCATION = 256

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def locate_below(repository: Path, location: str) -> Path:
    """Finds a model in the repository.

    Args:
        repository: The repository.
        location: Path of the model below it, with slashes.

    Returns:
        The directory of a checkpoint or SavedModel, or a `.keras` file.

    Raises:
        StartupError: The path leads elsewhere, or to no model.
    """
    parts = location.split("/")
    if len(location) > MAX_LOCATION or not all(map(_PART.fullmatch, parts)):
        raise StartupError(
            f"must be a path below the model repository, of at most {MAX_LOCATION} letters, "
            f"digits, dots, dashes, underscores and slashes, got {location[:MAX_LOCATION]!r}"
        )
    path = repository.joinpath(*parts)
    if path.suffix == KERAS_SUFFIX and path.is_file():
        return path
    if not path.is_dir():
        raise StartupError(f"{location!r} is not in the model repository {repository}")
    check_model_directory(path)
    found = path if is_checkpoint(path) else function_in(path)
    if found is None:
        raise StartupError(f"{location!r} has neither a checkpoint nor a function")
    return found


def bytes_of(model: Path) -> int:
    """Bytes of the files of a model: about those of its weights, as they are stored."""
    files = model.rglob("*") if model.is_dir() else [model]
    return sum(path.stat().st_size for path in files if path.is_file())


def locations_in(repository: Path) -> list[str]:
    """The entries of the repository that may be models, by name."""
    return sorted(
        path.name
        for path in repository.iterdir()
        if _PART.fullmatch(path.name) and (path.is_dir() or path.suffix == KERAS_SUFFIX)
    )
