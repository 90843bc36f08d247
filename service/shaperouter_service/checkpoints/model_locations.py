"""Locations of models: built in, a directory, or a hub."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from shaperouter_service.checkpoints.digest import READ_SUFFIXES
from shaperouter_service.checkpoints.functions import KERAS_SUFFIX, function_in
from shaperouter_service.checkpoints.model_files import check_model_directory, is_checkpoint
from shaperouter_service.errors import StartupError, shortened
from shaperouter_service.telemetry.logs import adopt_loggers

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# An id is `name` or `owner/name`; a branch, a tag or a commit may follow.
_HUB_ID = re.compile(r"(?P<id>[\w-][\w.-]*(/[\w.-]+)?)(@(?P<revision>[\w./-]+))?")
_HUB_FILES = [f"*{suffix}" for suffix in READ_SUFFIXES]
# The same weights once more, as the programs of Mistral and Meta read them.
_OTHER_HUB_FILES = ["consolidated*", "original/*"]


@dataclass(frozen=True, kw_only=True)
class ModelLocation:
    """A model as named on the command line.

    Attributes:
        name: Name that requests use.
        directory: Directory of its checkpoint or SavedModel, or its `.keras` file.
    """

    name: str
    directory: Path


def parse_models(specs: Iterable[str]) -> list[ModelLocation]:
    """Parses `NAME` (built in) and `NAME=DIRECTORY_OR_HUB_ID`, and downloads if needed.

    Raises:
        StartupError: A name is invalid or given twice, or its model is missing or unsafe.
    """
    located: dict[str, ModelLocation] = {}
    for spec in specs:
        name, equals, location = spec.partition("=")
        try:
            check_name(name)
        except ValueError as error:
            raise StartupError(f"model: a name {error}") from error
        if name in located:
            raise StartupError(f"model: {name} is given twice")
        directory = _locate(location, "model") if equals else _built_in(name)
        if directory.is_dir():
            check_model_directory(directory)
            if not is_checkpoint(directory):
                directory = function_in(directory) or directory
        located[name] = ModelLocation(name=name, directory=directory)
    return list(located.values())


def parse_drafts(specs: Iterable[str], models: Collection[str]) -> dict[str, Path]:
    """Parses `NAME=DIRECTORY_OR_HUB_ID` of draft models, and downloads if needed.

    Args:
        specs: Values of the option `draft`.
        models: Names of the models that are served.

    Returns:
        The directory of each model's draft model, by the model's name.

    Raises:
        StartupError: A model is not served or has two draft models, or a draft model is missing or
            unsafe.
    """
    located: dict[str, Path] = {}
    for spec in specs:
        name, equals, location = spec.partition("=")
        if not equals:
            raise StartupError(f"draft: must be NAME=DIRECTORY or NAME=HUB_ID, got {spec!r}")
        if name not in models:
            known = ", ".join(models)
            raise StartupError(f"draft: unknown model {name!r}; served models: {known}")
        if name in located:
            raise StartupError(f"draft: model {name} must have one draft model, got two")
        directory = _locate(location, "draft")
        if not is_checkpoint(directory):
            raise StartupError(f"draft: {location!r} is not a checkpoint: it has no config.json")
        check_model_directory(directory)
        located[name] = directory
    return located


def check_name(name: str) -> None:
    """Checks the name that requests use for a model.

    Raises:
        ValueError: It cannot be a name.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            "must begin with a letter or digit and have at most 64 letters, digits, dots, dashes "
            f"and underscores, got {shortened(repr(name), 80)}"
        )


def _built_in(name: str) -> Path:
    root = Path(str(files("shaperouter_service"))) / "builtin"
    directory = root / name
    if not directory.is_dir():
        known = ", ".join(sorted(path.name for path in root.iterdir() if path.is_dir()))
        raise StartupError(
            f"model: {name!r} is not a built-in model ({known}); for your own checkpoint, use "
            f"{name}=DIRECTORY or {name}=HUB_ID"
        )
    return directory


def _locate(location: str, option: str) -> Path:
    path = Path(location).expanduser()
    if location and path.is_dir():
        return path.resolve()
    if path.suffix == KERAS_SUFFIX:
        if not path.is_file():
            raise StartupError(f"{option}: {location!r} is not a file")
        return path.resolve()
    on_hub = _HUB_ID.fullmatch(location)
    # Anything else must be a path.
    if on_hub is None:
        raise StartupError(f"{option}: {location!r} is not a directory")
    try:
        return _download(on_hub["id"], on_hub["revision"])
    except StartupError as error:
        raise StartupError(f"{option}: {location!r} is not a directory, and {error}") from error


def _download(hub_id: str, revision: str | None) -> Path:
    # Imported here, because most services read local directories.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, HTTPError, LocalEntryNotFoundError

    adopt_loggers()
    try:
        return Path(
            snapshot_download(
                hub_id,
                revision=revision,
                allow_patterns=_HUB_FILES,
                ignore_patterns=_OTHER_HUB_FILES,
            )
        )
    except (OSError, HTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        raise StartupError(f"could not be downloaded from the Hub: {error}") from error
