"""What a request to warm graphs asks for: checked, and one wish for each graph on each worker."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from shaperouter.v1 import graph_pb2, signature_pb2
from shaperouter_service.api.validation import MOST_OF_A_LIST
from shaperouter_service.errors import (
    InvalidRequestError,
    ModelLoadingError,
    Violation,
    shortened,
)
from shaperouter_service.limits import MAX_WARM_SIGNATURES
from shaperouter_service.messages import ladders_from_proto, signature_from_proto
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.rendezvous import named
from shaperouter_service.routing.signatures import Signature


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wish:
    """One graph on one worker.

    Attributes:
        signature: The graph's shape.
        worker: Name of the worker.
    """

    signature: Signature
    worker: str


def wishes_of(request: graph_pb2.WarmGraphsRequest, catalog: Catalog) -> list[Wish]:
    """The wishes of a request, in the order of its signatures.

    Args:
        request: As it came.
        catalog: The workers there are.

    Raises:
        InvalidRequestError: With all violations there are, but at most three of each list.
        UnknownModelError: The service has no such model.
        ModelLoadingError: No worker has loaded the model.
    """
    count = len(request.signatures)
    if not 1 <= count <= MAX_WARM_SIGNATURES:
        description = f"must have from 1 to {MAX_WARM_SIGNATURES} signatures, got {count}"
        raise InvalidRequestError(Violation(field="signatures", description=description))
    models = {message.model: catalog.resolve(message.model) for message in request.signatures}
    ladders = {name: _ladders(name, catalog) for name in models.values()}
    able = {name: sorted({worker.name for worker in catalog.workers(name)}) for name in ladders}
    violations = [
        *islice(_signature_violations(request.signatures, models, ladders), MOST_OF_A_LIST),
        *islice(_worker_violations(request, able), MOST_OF_A_LIST),
    ]
    if violations:
        raise InvalidRequestError(*violations)
    wishes = []
    for message in request.signatures:
        model = models[message.model]
        signature = dataclasses.replace(signature_from_proto(message), model=model)
        if request.workers or request.all_workers:
            workers = request.workers or able[model]
        else:
            workers = [named(signature, able[model])]
        wishes += [Wish(signature=signature, worker=worker) for worker in workers]
    return wishes


def _ladders(name: str, catalog: Catalog) -> Ladders:
    model = catalog.model(name)
    if model is None or not catalog.workers(name):
        raise ModelLoadingError(name)
    return ladders_from_proto(model.ladders)


def _signature_violations(
    signatures: Iterable[signature_pb2.Signature],
    models: Mapping[str, str],
    ladders: Mapping[str, Ladders],
) -> Iterator[Violation]:
    for index, message in enumerate(signatures):
        model = models[message.model]
        for field, value, rungs, ladder in _dimensions(message, ladders[model]):
            if value not in rungs:
                allowed = ", ".join(map(str, rungs))
                yield Violation(
                    field=f"signatures[{index}].{field}",
                    description=f"must be one of {allowed} ({ladder} of {model}), got {value}",
                )
                # What the others may be depends on this one.
                break


def _dimensions(
    message: signature_pb2.Signature, ladders: Ladders
) -> Iterator[tuple[str, object, Sequence[object], str]]:
    """Field, value, allowed values and their name, of each dimension after those it depends on."""
    kinds = {number: name for name, number in signature_pb2.GraphKind.items() if number}
    kind = kinds.get(message.kind, message.kind)
    if ladders.encoder is None:
        del kinds[signature_pb2.GRAPH_KIND_ENCODE]
    if not ladders.aligns:
        del kinds[signature_pb2.GRAPH_KIND_ALIGN]
    yield "kind", kind, tuple(kinds.values()), "kinds of graphs"
    if message.kind == signature_pb2.GRAPH_KIND_ENCODE:
        yield "beams", message.beams, (1,), "beam width of encode"
        lengths = ladders.encoder.lengths.rungs if ladders.encoder else ()
        yield "length", message.length, lengths, "lengths of encode"
        rows = ladders.sources_together(message.length).rungs
        yield "rows", message.rows, rows, f"rows of encode of length {message.length}"
        return
    if message.kind == signature_pb2.GRAPH_KIND_ALIGN:
        yield "beams", message.beams, (1,), "beam width of align"
        aligned = ladders.encoder and ladders.encoder.align_lengths
        yield "length", message.length, aligned.rungs if aligned else (), "lengths of align"
        yield "rows", message.rows, (1,), "rows of align"
        return
    if message.kind == signature_pb2.GRAPH_KIND_PREFILL:
        yield "beams", message.beams, (1,), "beam width of prefill"
        yield "length", message.length, ladders.prefill_lengths.rungs, "lengths of prefill"
        rows = ladders.prompts_together(message.length).rungs
        yield "rows", message.rows, rows, f"rows of prefill of length {message.length}"
        return
    widths = tuple(lane.beams for lane in ladders.lanes)
    yield "beams", message.beams, widths, "beam widths of decode"
    lane = ladders.lane(message.beams)
    of = f"of decode beams {lane.beams}"
    yield "rows", message.rows, lane.decode_rows.rungs, f"rows {of}"
    yield "length", message.length, lane.decode_lengths.rungs, f"lengths {of}"


def _worker_violations(
    request: graph_pb2.WarmGraphsRequest, able: Mapping[str, Sequence[str]]
) -> Iterator[Violation]:
    if request.workers and request.all_workers:
        yield Violation(field="all_workers", description="must not be set together with workers")
    for index, worker in enumerate(request.workers):
        for model, workers in able.items():
            if worker not in workers:
                yield Violation(
                    field=f"workers[{index}]",
                    description=f"must be one of {', '.join(workers) or 'none'} (workers that have "
                    f"{model}), got {shortened(worker, 64)!r}",
                )
                break
