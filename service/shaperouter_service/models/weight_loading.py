"""Loading the weights of a model of any kind, at once or beside other work."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import structlog
import tensorflow as tf
from tqdm import tqdm

from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.models.weight_memory import Layout, WeightMemory, variable
from shaperouter_service.models.weights import DeviceKind, Weights
from shaperouter_service.system.populated_memory import PopulatedMemory

log = structlog.get_logger(__name__)

# Weights that are packed at the same time. Each may be in memory once more, as a converted copy.
PACKERS = 2

# Names shown when a checkpoint has unused tensors; a classifier has a few, another model hundreds.
MAX_UNUSED_SHOWN = 5

# Reads weights of a checkpoint, converted to a type, one at a time, with their names.
Reader = Callable[[Checkpoint, np.dtype], Iterable[tuple[str, np.ndarray]]]
# Calls a function that reads weights, now or in another thread.
StartReading = Callable[[Callable[[], None]], object]


def read_now(read: Callable[[], None]) -> None:
    """Reads weights before the model is returned."""
    read()


@dataclass(frozen=True, kw_only=True)
class LoadedWeights:
    """The weights of a model.

    Attributes:
        weights: Variables on the device.
        dtype: Type of most computations.
        weight_dtype: Type that matrices are stored in.
        parameters: Number of parameters.
    """

    weights: Weights
    dtype: tf.DType
    weight_dtype: tf.DType
    parameters: int

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each variable."""
        return {
            name: weight.dtype.size * weight.shape.num_elements()
            for name, weight in self.weights.items()
        }


def load_weights(
    name: str,
    checkpoint: Checkpoint,
    layout: Layout,
    read_weights: Reader,
    dtype: tf.DType,
    *,
    packed: bool,
    start_reading: StartReading,
    populated: PopulatedMemory | None = None,
) -> LoadedWeights:
    """Loads the weights of a checkpoint onto the device.

    Args:
        name: Name of the model, for the progress bar.
        checkpoint: The checkpoint, opened with `only_headers`.
        layout: Stacks and roles of the weights.
        read_weights: Reads the weights.
        dtype: Type to store the weights in. If they are packed, it applies only to matrices, and
            everything else is stored and computed in float32.
        packed: Pack matrices for the native kernels.
        start_reading: Gets what reads the values if they are packed. Until that has ended, the
            variables have their memory but arbitrary values.
        populated: Memory to use first if they are packed.

    Raises:
        StartupError: A tensor is missing or has a wrong shape or type.
    """
    computing_dtype = tf.float32 if packed else dtype
    numpy_dtype = np.dtype(computing_dtype.as_numpy_dtype)
    device = DeviceKind.present()
    memory = WeightMemory(layout, dtype, populated)
    parameters = 0
    for weight, array in read_weights(checkpoint, numpy_dtype):
        parameters += array.size
        if packed:
            memory.reserve(weight, array)
    if populated is not None:
        populated.free_rest()

    def read() -> Iterator[tuple[str, np.ndarray]]:
        # The progress bar is drawn only on a terminal.
        with tqdm(
            desc=name, unit="B", unit_scale=True, leave=False, disable=None, file=sys.stderr
        ) as progress:
            values = Checkpoint(checkpoint.directory, on_read=progress.update)
            progress.total = values.file_bytes
            yield from read_weights(values, numpy_dtype)

    if packed:
        weights = memory.weights(device)
        start_reading(lambda: _fill(memory, read()))
    else:
        variables = {weight: variable(weight, array) for weight, array in read()}
        weights = Weights(variables, device)
    return LoadedWeights(
        weights=weights, dtype=computing_dtype, weight_dtype=dtype, parameters=parameters
    )


def _fill(memory: WeightMemory, arrays: Iterable[tuple[str, np.ndarray]]) -> None:
    """Packs weights in threads while further ones are read."""
    with ThreadPoolExecutor(PACKERS, thread_name_prefix="pack") as packers:
        packing: deque[Future[None]] = deque()
        for weight, array in arrays:
            if len(packing) == PACKERS:
                packing.popleft().result()
            packing.append(packers.submit(memory.fill, weight, array))
        for packed in packing:
            packed.result()


def warn_of_unused(model: str, tensors: list[str]) -> None:
    """Logs which tensors of a model's checkpoint were ignored, if there are any."""
    if tensors:
        log.warning(
            "unused tensors of the checkpoint were ignored",
            model=model,
            count=len(tensors),
            tensors=tensors[:MAX_UNUSED_SHOWN],
        )
