"""Costs of graphs on one worker: measured, or scaled from the nearest measured graph."""

import math
import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import GraphKind, Signature

# Assumed bytes per second that a device reads, before anything is measured. Until then only ratios
# of estimates matter, and all have the same error.
NOMINAL_BANDWIDTH = 10e9

# Rows that take the native kernels as long to compute as the weights take to be read.
KERNEL_ROWS = 20

# Rows times sizes of a call that take as long to compute as the weights take to be read, and bytes
# that could be read while a function without weights is called. Only estimates of graphs that have
# not been measured depend on them.
CALL_ELEMENTS, CALL_BYTES = 10, 1e6

# Assumed seconds to compile a graph, before one of its model has been compiled: the time for GPT-2
# small on two cores.
NOMINAL_COMPILE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """The sizes of a model that determine how much its graphs compute.

    Attributes:
        weight_bytes: Memory of the weights.
        encoder_weight_bytes: Memory of the weights that only an encoder reads.
        cache_bytes_per_token: Memory of one position of the key/value caches.
        prefill_piece: Maximum tokens of a prompt that one call reads.
        max_source_length: Maximum positions of a source; 0 without an encoder.
        has_whole_source: See `EncoderLadders`.
        has_kernels: Whether the native kernels compute products and attention.
    """

    weight_bytes: int
    cache_bytes_per_token: int
    prefill_piece: int
    encoder_weight_bytes: int = 0
    max_source_length: int = 0
    has_whole_source: bool = False
    has_kernels: bool = False

    @classmethod
    def of(cls, model: ServedModel) -> "Dimensions":
        """The sizes of a served model."""
        ladders = model.ladders
        encoder = None if ladders is None else ladders.encoder
        return cls(
            weight_bytes=model.weight_bytes,
            cache_bytes_per_token=model.kv_cache_bytes_per_token,
            prefill_piece=1 if ladders is None else ladders.prefill_piece,
            encoder_weight_bytes=model.encoder_weight_bytes,
            max_source_length=model.max_source_length,
            has_whole_source=encoder is not None and encoder.has_whole_source,
            has_kernels=bool(model.kernels),
        )

    def work(self, signature: Signature) -> float:
        """The work of one step of a graph, in bytes read; only ratios are meaningful.

        Weights are read once for all tokens of a call, but products of more tokens take longer. On
        two cores, XLA's products of 1, 2, 4, 8 and 128 rows took 1, 1.6, 2, 2.6 and 14 times as
        long, which the square root follows closely. Those of the native kernels took 1, 1.2, 5.3
        and 19 times as long for 1, 8, 128 and 512 rows, and their attention reads only the part of
        the cache that is in use.
        """
        weight_bytes = self.weight_bytes - self.encoder_weight_bytes
        source = self.max_source_length
        match signature.kind:
            case GraphKind.ENCODE:
                weight_bytes = self.encoder_weight_bytes
                tokens = signature.rows * signature.length
                # A graph that attends only to its own tokens reads no cache; it writes one.
                source = 0
            case GraphKind.ALIGN:
                tokens = signature.rows * signature.length
            case GraphKind.PREFILL | GraphKind.SCORE:
                tokens = signature.rows * min(signature.length, self.prefill_piece)
            case GraphKind.CALL:
                return self._call_work(signature)
            case GraphKind.DECODE:
                tokens = signature.rows * signature.beams
                if not self.has_whole_source:
                    source = min(source, signature.length)
        if self.has_kernels:
            # A source is often all in use.
            positions = signature.rows * source if self.has_whole_source else 0
            read = positions * self.cache_bytes_per_token
            return weight_bytes * (1 + tokens / KERNEL_ROWS) + read
        positions = signature.rows * (signature.length + source)
        return weight_bytes * math.sqrt(tokens) + positions * self.cache_bytes_per_token

    def _call_work(self, signature: Signature) -> float:
        """The work of a call, whose elements are many more than the rows of other products.

        Computing on the weights takes as long as reading them at about CALL_ELEMENTS elements, and
        a function without weights takes some time, too.
        """
        return (self.weight_bytes + CALL_BYTES) * (1 + signature.elements / CALL_ELEMENTS)


class Costs:
    """Device times of steps, and compile times. Not thread-safe.

    A step is one token of each row for decode, and one piece of a prompt for prefill and score.
    """

    def __init__(self, dimensions: Mapping[str, Dimensions]) -> None:
        """Starts without measurements.

        Args:
            dimensions: The sizes of each model.
        """
        self._dimensions = dict(dimensions)
        self._steps: dict[Signature, float] = {}
        self._compiles: dict[Signature, float] = {}
        self._estimates: dict[Signature, float] = {}

    def add(self, dimensions: Mapping[str, Dimensions]) -> None:
        """Takes further models, given their sizes by name."""
        self._dimensions |= dimensions

    def remove(self, model: str) -> None:
        """Forgets a model, and the times of its graphs."""
        self._dimensions.pop(model, None)
        for times in (self._steps, self._compiles, self._estimates):
            for signature in [each for each in times if each.model == model]:
                del times[signature]

    def measured(self, signature: Signature, step_seconds: float) -> None:
        """Records the present time of a graph's step, average or best."""
        if signature not in self._steps:
            # A nearer neighbour may now be known for other graphs.
            self._estimates.clear()
        self._steps[signature] = step_seconds

    def compiled(self, signature: Signature, seconds: float) -> None:
        """Records a graph's time from cold to ready without a cache."""
        self._compiles[signature] = seconds

    def step_seconds(self, signature: Signature) -> float:
        """Device time of a step: measured, or scaled from the nearest measured graph."""
        measured = self._steps.get(signature)
        if measured is not None:
            return measured
        if signature not in self._estimates:
            self._estimates[signature] = self._estimate(signature)
        return self._estimates[signature]

    def is_informed(self, signature: Signature) -> bool:
        """Whether any graph of the kind has been measured; otherwise step times are guesses."""
        return any(
            known.model == signature.model and known.kind is signature.kind for known in self._steps
        )

    def has_compiled(self, model: str) -> bool:
        """Whether any graph of a model has been compiled; otherwise compile times are guesses."""
        return any(known.model == model for known in self._compiles)

    def sound(self, signatures: Collection[Signature]) -> dict[Signature, float]:
        """Device times of a step, where no graph takes longer than a larger one.

        Without this, a graph that was last measured on a busy machine would lose to a larger one
        forever, because only graphs that run are measured again.
        """
        # A router does this for each snapshot, so for thousands of graphs a second.
        known = [
            ((signature.rows, *signature.sizes), self.step_seconds(signature))
            for signature in signatures
        ]
        return {
            signature: min(
                seconds for other, seconds in known if all(map(operator.ge, other, shape))
            )
            for signature, (shape, _) in zip(signatures, known, strict=True)
        }

    def compile_seconds(self, signature: Signature) -> float:
        """Time from cold to ready: the mean of the most similar graphs."""
        own = self._compiles.get(signature)
        if own is not None:
            return own
        model = [known for known in self._compiles if known.model == signature.model]
        # The computation matters; a graph's dimensions hardly do.
        kind = [known for known in model if known.kind is signature.kind]
        width = [known for known in kind if (known.beams > 1) == (signature.beams > 1)]
        similar = width or kind or model
        if not similar:
            return NOMINAL_COMPILE_SECONDS
        return sum(self._compiles[known] for known in similar) / len(similar)

    def _estimate(self, signature: Signature) -> float:
        dimensions = self._dimensions[signature.model]
        work = dimensions.work(signature)
        model = [known for known in self._steps if known.model == signature.model]
        similar = [known for known in model if known.kind is signature.kind] or model
        if not similar:
            return work / NOMINAL_BANDWIDTH
        nearest = min(similar, key=lambda known: (_distance(known, signature), known))
        return self._steps[nearest] * work / dimensions.work(nearest)


def _distance(one: Signature, other: Signature) -> float:
    """Distance of two shapes, in doublings of each dimension."""
    ours = (one.rows, one.beams, *one.sizes, *one.exact)
    theirs = (other.rows, other.beams, *other.sizes, *other.exact)
    # A model's axis may have lost its ladder since a graph was measured.
    return sum(abs(math.log2(a / b)) for a, b in zip(ours, theirs, strict=False))


def cheapest(seconds: Mapping[Signature, float], runs: int) -> Signature | None:
    """The graph that gives each of `runs` runs a step in the least time.

    A graph with fewer rows is called several times in turn.

    Args:
        seconds: Graphs that are long enough, with device times of a step from `Costs.sound`.
        runs: Number of runs.
    """
    return min(
        seconds,
        key=lambda one: (math.ceil(runs / one.rows) * seconds[one], one.cost_order),
        default=None,
    )
