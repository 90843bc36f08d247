"""An estimate of the memory that models need, checked before any is allocated."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from shaperouter_service.checkpoints.digest import model_files
from shaperouter_service.checkpoints.functions import is_function
from shaperouter_service.checkpoints.model_files import read_json
from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.errors import StartupError
from shaperouter_service.models import DType, Family
from shaperouter_service.models.encoders import is_encoder, read_encoder
from shaperouter_service.models.loading import weight_bytes
from shaperouter_service.system.populated_memory import PopulatedMemory
from shaperouter_service.system.sizes import format_size
from shaperouter_service.worker.device_memory import device_memory_left

# Memory of a worker besides weights and caches: TensorFlow, and the first graphs.
WORKER_BYTES = 10**9
# Beams of the search that is counted: a graph for one is compiled as soon as a worker is ready.
_BEAMS = 4
# Shortest length that is worth a suggestion.
_SHORTEST = 256


@dataclass(frozen=True, kw_only=True)
class MemoryNeed:
    """The memory of a model that generates tokens.

    Attributes:
        weights: Approximate bytes of the weights.
        position: Bytes of one position of the caches of a request.
        positions: Positions of a request of the maximum length.
        max_length: That length, in tokens.
        slots: Requests that run at the same time.
        keeps_prefixes: Whether the worker caches prefixes of its prompts.
    """

    weights: int
    position: int
    positions: int
    max_length: int
    slots: int
    keeps_prefixes: bool = True

    @classmethod
    def of(
        cls,
        checkpoint: Checkpoint,
        family: Family,
        *,
        dtype: DType,
        packed: bool,
        number_bytes: int,
        slots: int,
        draft: tuple[Checkpoint, Family] | None = None,
    ) -> "MemoryNeed":
        """Estimates the memory of a model and its draft model from the headers of checkpoints.

        Args:
            checkpoint: The checkpoint, opened with `only_headers`.
            family: Its dimensions.
            dtype: Type of the weights.
            packed: Whether weights are packed for the native kernels.
            number_bytes: Size of a number in a cache.
            slots: See above.
            draft: Checkpoint and dimensions of the draft model, if there is one.
        """
        length = family.max_length
        parts = [(checkpoint, family), *([] if draft is None else [draft])]
        return cls(
            weights=sum(weight_bytes(*part, dtype, packed=packed) for part in parts),
            position=sum(2 * f.layers * f.heads * f.head_size * number_bytes for _, f in parts),
            positions=length + family.source_positions(length),
            max_length=length,
            slots=slots,
            keeps_prefixes=not family.max_source_length,
        )

    @property
    def caches(self) -> int:
        """Bytes of the caches of all slots and of a beam search, at the maximum length."""
        return (self.slots + _BEAMS) * self.positions * self.position

    @property
    def purposes(self) -> str:
        """What the memory is for."""
        return (
            f"{format_size(self.weights)} for weights, {format_size(self.caches)} for the caches "
            f"of {self.slots} requests and of a search with {_BEAMS} beams, {self.max_length} "
            "tokens each"
        )

    def advice(self, available: int) -> str:
        """What to use if it does not fit into this memory."""
        longest = self.longest_in(available)
        if longest is not None and longest < self.max_length:
            return f"--max-length {longest}, or fewer --slots"
        return "fewer --slots, or weights of fewer bits (--dtype)"

    def longest_in(self, available: int) -> int | None:
        """The longest power of two that a request may have in this memory; None if none may."""
        per_token = self.caches / self.max_length
        length = _SHORTEST
        if self.weights + length * per_token > available:
            return None
        while self.weights + 2 * length * per_token <= available:
            length *= 2
        return length


@dataclass(frozen=True, kw_only=True)
class CallMemoryNeed:
    """The memory of a model that answers once, which has no caches.

    Attributes:
        weights: Approximate bytes of the weights.
        is_converted: Whether the weights get the type of `--dtype`.
    """

    weights: int
    is_converted: bool
    caches: ClassVar[int] = 0
    keeps_prefixes: ClassVar[bool] = False

    @property
    def purposes(self) -> str:
        """What the memory is for."""
        return f"{format_size(self.weights)} for weights"

    def advice(self, _: int) -> str:
        """What to use if it does not fit into this memory."""
        fewer = "weights of fewer bits (--dtype)" if self.is_converted else "fewer models"
        return f"{fewer}, or more memory"


Need = MemoryNeed | CallMemoryNeed


def call_need(path: Path, dtype: DType, *, packed: bool) -> CallMemoryNeed | None:
    """Estimates the memory of a function by its files, of a text encoder by its headers.

    Args:
        path: The model.
        dtype: Type of an encoder's weights.
        packed: Whether these are packed for the native kernels.

    Returns:
        The memory; None if the model generates tokens.

    Raises:
        StartupError: A file is missing or unusable.
    """
    if is_function(path):
        size = sum(file.stat().st_size for _, file in model_files(path))
        return CallMemoryNeed(weights=size, is_converted=False)
    if not is_encoder(read_json(path / "config.json")):
        return None
    checkpoint = Checkpoint(path, only_headers=True)
    encoder, head, _ = read_encoder(checkpoint)
    size = sum(weight_bytes(checkpoint, part, dtype, packed=packed) for part in (encoder, head))
    return CallMemoryNeed(weights=size, is_converted=True)


def require_memory(
    needs: Mapping[str, Need],
    available: int,
    *,
    prefix_growth: int = 0,
    cache_growth: int | None = None,
) -> None:
    """Checks that models fit into the memory of this machine, container or GPU.

    Args:
        needs: The need of each model, by name; the last one is new.
        available: Bytes that are available before any of them is read.
        prefix_growth: Bytes by which the prefix cache may still grow: all of it at a start. Not
            needed if all models have an encoder.
        cache_growth: If the worker serves already, bytes by which the caches of its other models
            may still grow.

    Raises:
        StartupError: They do not fit; the message has the numbers, and a length that would fit.
    """
    besides, what = WORKER_BYTES, "TensorFlow and graphs"
    if cache_growth is not None:
        besides, what = cache_growth, "the growing caches of others"
    if not any(need.keeps_prefixes for need in needs.values()):
        prefix_growth = 0
    total = besides + prefix_growth + sum(need.weights + need.caches for need in needs.values())
    if total <= available:
        return
    *others, (name, need) = needs.items()
    of_others = sum(other.weights + other.caches for _, other in others)
    others_text = f"{format_size(of_others)} for other models, " if of_others else ""
    if prefix_growth:
        others_text += f"{format_size(prefix_growth)} for --prefix-cache-memory, "
    advice = need.advice(available - besides - prefix_growth - of_others)
    raise StartupError(
        f"model {name}: needs about {format_size(total)} of memory, but "
        f"{format_size(available)} are available: {need.purposes}, {others_text}"
        f"{format_size(besides)} for {what}; use {advice}"
    )


class MemoryCheck:
    """Checks that the models of a worker fit together, one by one, before each is loaded.

    Attributes:
        needs: The needs of the models so far, by name.
    """

    def __init__(
        self,
        populated: Mapping[str, PopulatedMemory],
        *,
        prefix_growth: int,
        cache_growth: int | None,
    ) -> None:
        """Starts without models, and notes the available memory, which loading will use.

        Args:
            populated: Memory that the worker has already taken for weights, by name of the model.
            prefix_growth: See `require_memory`.
            cache_growth: Likewise.
        """
        self.needs: dict[str, Need] = {}
        held = sum(memory.populated for memory in populated.values())
        self._available = device_memory_left() + held
        self._prefix_growth, self._cache_growth = prefix_growth, cache_growth

    def require(self, name: str, need: Need) -> None:
        """Checks that a further model fits.

        Raises:
            StartupError: See `require_memory`.
        """
        self.needs[name] = need
        require_memory(
            self.needs,
            self._available,
            prefix_growth=self._prefix_growth,
            cache_growth=self._cache_growth,
        )
