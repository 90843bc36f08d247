"""Functions on disk: SavedModels and `.keras` files, and the directories they lie in."""

from pathlib import Path

from shaperouter_service.errors import StartupError

SAVED_MODEL = "saved_model.pb"
KERAS_SUFFIX = ".keras"
# Where Triton keeps the SavedModel of a version.
_TRITON = "model.savedmodel"


def is_function(path: Path) -> bool:
    """Whether a model is a function: a directory with a SavedModel, or a `.keras` file."""
    return path.suffix == KERAS_SUFFIX or (path / SAVED_MODEL).is_file()


def function_in(directory: Path) -> Path | None:
    """The function in a directory, in the layouts that other servers use.

    The directory is a SavedModel, or contains one as `model.savedmodel` (Triton), or contains one
    `.keras` file. Or it contains versions, which are such directories named by numbers (TensorFlow
    Serving, Triton); the highest version counts.

    Returns:
        The SavedModel's directory or the `.keras` file; None if there is no function.

    Raises:
        StartupError: There are several `.keras` files.
    """
    versions = [path for path in directory.iterdir() if path.name.isdecimal() and path.is_dir()]
    versions.sort(key=lambda path: int(path.name), reverse=True)
    found = (_function_of_version(path) for path in (directory, *versions))
    return next((function for function in found if function is not None), None)


def _function_of_version(directory: Path) -> Path | None:
    for saved_model in (directory, directory / _TRITON):
        if is_function(saved_model):
            return saved_model
    keras_files = sorted(directory.glob(f"*{KERAS_SUFFIX}"))
    if len(keras_files) > 1:
        names = ", ".join(path.name for path in keras_files)
        raise StartupError(f"{directory}: has several .keras files, name one of them: {names}")
    return next(iter(keras_files), None)
