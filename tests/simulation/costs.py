"""What a device, a compiler and a router cost: measured on a real service by `measure.py`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from shaperouter_service.routing.costs import Costs, Dimensions
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import GraphKind, Signature

MEASURED = Path(__file__).with_name("costs.json")


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
        way_seconds: Quantiles of a request's time besides queue and device, equally spaced: the
            middles of as many equal parts.
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
    way_seconds: Sequence[float]

    @classmethod
    def read(cls, path: Path = MEASURED) -> "MeasuredCosts":
        """Reads a file that `write` has written."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

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

    def way(self, share: float) -> float:
        """The seconds of a request besides queue and device.

        Args:
            share: Share of requests that take less, from 0 to 1.
        """
        return self.way_seconds[min(len(self.way_seconds) - 1, int(share * len(self.way_seconds)))]

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
