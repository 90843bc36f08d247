"""What a device, a compiler and a router cost: measured on a real service by `measure.py`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from shaperouter_service.routing.costs import Costs, Dimensions
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import GraphKind, Signature

MEASURED = Path(__file__).with_name("costs.json")


@dataclass(frozen=True, kw_only=True)
class Contention:
    """How processes slow each other down that share a machine's cores and memory.

    A load is the number of workers that compute at once, plus the cores that router, caller and all
    other processes use.

    Attributes:
        machine: The processor and the number of cores that this was measured on.
        base_load: The load at which `MeasuredCosts.step_seconds` were measured.
        loads: Measured loads, in ascending order.
        step_seconds: Device time of a step of the same graph at each of these loads.
        way_loads: Measured loads of other processes, in ascending order.
        way_seconds: Quantiles of a request's time besides queue and device at each of these loads,
            equally spaced: the middles of as many equal parts.
    """

    machine: str
    base_load: float
    loads: Sequence[float]
    step_seconds: Sequence[float]
    way_loads: Sequence[float]
    way_seconds: Sequence[Sequence[float]]

    def slowdown(self, load: float) -> float:
        """How many times as long a call takes at a load as when costs were measured."""
        return self._step_seconds(load) / self._step_seconds(self.base_load)

    def _step_seconds(self, load: float) -> float:
        # A higher load never helps; what the figures say else is noise.
        rising = np.maximum.accumulate(self.step_seconds)
        # Beyond the loads that were measured, processes share what there is.
        return float(np.interp(load, self.loads, rising) * max(1.0, load / self.loads[-1]))

    def way(self, load: float, share: float) -> float:
        """The seconds of a request besides queue and device.

        Args:
            load: The load of other processes.
            share: Share of requests that take less, from 0 to 1.
        """
        number = len(self.way_seconds[0])
        quantile = min(number - 1, int(share * number))
        return float(np.interp(load, self.way_loads, [each[quantile] for each in self.way_seconds]))


@dataclass(frozen=True, kw_only=True)
class MeasuredCosts:
    """The costs of one model on one kind of worker, in seconds unless said otherwise.

    Attributes:
        model: Name of the model.
        max_length: Maximum tokens of a sequence.
        slots: Slots of the worker.
        weight_bytes: Memory of the weights.
        cache_bytes_per_token: Memory of one position of the caches.
        step_seconds: Device time of a step of each measured graph, by the short form.
        first_token_seconds: Time of the call that chooses the first tokens of runs.
        call_seconds: Time of a worker between two calls of its device, for one request.
        compile_seconds: Time from cold to ready without a cache.
        start_seconds: Time from the start of a worker's process until it is warm, with a cache.
        router_seconds: CPU time of a router for a request of one chunk, without its decision.
        chunk_seconds: CPU time of a router for each further chunk.
        option_seconds: CPU time of a router's decision for each worker.
        report_seconds: CPU time of a router for each graph of a snapshot.
        worker_seconds: CPU time of a worker for a request, besides its device thread.
        way_seconds: Time of a request besides queue and device, on an idle service.
        caller_seconds: CPU time of the measuring caller for a request, for comparisons with reality
            on one machine.
        contention: What sharing that machine costs, likewise.
    """

    model: str
    max_length: int
    slots: int
    weight_bytes: int
    cache_bytes_per_token: int
    step_seconds: Mapping[str, float]
    first_token_seconds: float
    call_seconds: float
    compile_seconds: float
    start_seconds: float
    router_seconds: float
    chunk_seconds: float
    option_seconds: float
    report_seconds: float
    worker_seconds: float
    way_seconds: float
    caller_seconds: float
    contention: Contention

    @classmethod
    def read(cls, path: Path = MEASURED) -> "MeasuredCosts":
        """Reads a file that `write` has written."""
        fields = json.loads(path.read_text(encoding="utf-8"))
        return cls(**fields | {"contention": Contention(**fields["contention"])})

    def write(self, path: Path = MEASURED) -> None:
        """Writes the costs."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @property
    def dimensions(self) -> Dimensions:
        """The sizes of the model, for the product's estimates of graphs without measurement."""
        return Dimensions.of(self.served(self.ladders()))

    def ladders(self, **lengths: tuple[int, ...]) -> Ladders:
        """The ladders of a worker; see `Ladders.default`."""
        return Ladders.default(max_length=self.max_length, slots=self.slots, **lengths)

    def served(self, ladders: Ladders) -> ServedModel:
        """The model as a worker describes it."""
        return ServedModel(
            name=self.model,
            max_length=self.max_length,
            ladders=ladders,
            slots=self.slots,
            weight_bytes=self.weight_bytes,
            kv_cache_bytes_per_token=self.cache_bytes_per_token,
        )

    def device(self) -> Costs:
        """The times of the device; those of graphs that were not measured are scaled."""
        costs = Costs({self.model: self.dimensions})
        for text, seconds in self.step_seconds.items():
            costs.measured(Signature.parse(text), seconds)
        return costs


def all_graphs(ladders: Ladders, model: str) -> Sequence[Signature]:
    """The graphs that requests without beam search may need."""
    return [
        signature
        for signature in ladders.signatures(model)
        if signature.beams == 1 and signature.kind is not GraphKind.SCORE
    ]
