"""Loading functions: reading, trying their axes, and asking whether XLA can compile them."""

from pathlib import Path
from typing import Any

import structlog
import tensorflow as tf

from shaperouter_service.checkpoints.functions import KERAS_SUFFIX
from shaperouter_service.compile_cache import Part, Section
from shaperouter_service.errors import StartupError
from shaperouter_service.functions.axes import GuessedAxes, guess_axes
from shaperouter_service.functions.dependence import dependences
from shaperouter_service.functions.function import CapturedWeights, Function, LoadedFunction
from shaperouter_service.functions.keras_files import load_keras
from shaperouter_service.functions.operations import stateful
from shaperouter_service.functions.program import CompiledCallProgram, UncompilableError
from shaperouter_service.functions.saved_models import load_saved_model
from shaperouter_service.functions.settings import FunctionSettings, read_settings
from shaperouter_service.functions.trial import TriedAxes, try_axes
from shaperouter_service.models import DeviceKind
from shaperouter_service.tensors.checking import Sizes

log = structlog.get_logger(__name__)


def load_function(name: str, path: Path) -> tuple[Function, Sizes]:
    """Loads a function onto the device and tries its axes.

    Args:
        name: As requests will call it.
        path: The SavedModel's directory, or the `.keras` file.

    Returns:
        The function, and sizes that it takes.

    Raises:
        StartupError: The function, or the file of settings beside it, cannot be used.
    """
    settings, loaded, guessed = _read(path)
    state = stateful(loaded.operations)
    tried = try_axes(
        loaded.call,
        guessed,
        depends=dependences(loaded),
        sizes_follow_shapes=settings.jit and not state,
        state=state,
    )
    for axis, reason in tried.exact.items():
        log.warning(
            "axis served exactly: each size has a graph", model=name, axis=axis, reason=reason
        )
    if state and settings.jit:
        log.warning("function has state, so it is not compiled", model=name, operations=state)
    return _function(name, path, loaded, tried, compiled=settings.jit and not state), tried.sizes


def check_compiles(function: Function, sizes: Sizes, section: Section | None) -> None:
    """Asks whether XLA can compile a function.

    Args:
        function: The function.
        sizes: Sizes that it takes.
        section: Its section of the compile cache, which remembers the answer.

    Raises:
        StartupError: XLA cannot; the message names the operations.
    """
    program = CompiledCallProgram(f"{function.name}_check", function, sizes)
    if section is not None and section.read(program.label, Part.MODULE) is not None:
        return
    try:
        lowered = program.lower()
    except UncompilableError as error:
        raise StartupError(
            f"{function.path}: XLA cannot compile it: {error}; with jit = false in "
            "shaperouter.toml beside it, it is served uncompiled"
        ) from error
    if section is not None:
        section.write(
            program.label,
            Part.MODULE,
            lowered.module.encode(),
            seconds=0.0,
            weights=lowered.weights,
        )


def _read(path: Path) -> tuple[FunctionSettings, LoadedFunction, GuessedAxes]:
    is_keras = path.suffix == KERAS_SUFFIX
    settings = read_settings(path.parent if is_keras else path)
    if is_keras and settings.signature is not None:
        raise settings.error(f"signature must not be set: {path.name} has none")
    loaded = load_keras(path) if is_keras else load_saved_model(path, settings)
    return settings, loaded, guess_axes(loaded.inputs, loaded.outputs, settings)


def _function(
    name: str, path: Path, loaded: LoadedFunction, tried: TriedAxes, *, compiled: bool
) -> Function:
    named = {
        f"captured.{index}": captured
        for index, captured in enumerate(loaded.captured)
        if captured is not None
    }
    dtypes = [each.dtype for each in named.values() if each.dtype.is_floating]
    dtype = dtypes[0] if dtypes else tf.float32
    return Function(
        name=name,
        family=loaded.family,
        spec=tried.spec,
        ladders=tried.ladders,
        weights=CapturedWeights(named, DeviceKind.present()),
        dtype=dtype,
        weight_dtype=dtype,
        parameters=sum(_size(each) for each in named.values()),
        weight_bytes=sum(_size(each) * each.dtype.size for each in named.values()),
        compiled=compiled,
        path=path,
        function=loaded,
        usual=tried.usual,
    )


def _size(captured: Any) -> int:
    return int(captured.shape.num_elements() or 0)
