"""The graphs of a request to warm: validated, one entry for each graph on each worker."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from shaperouter.v1 import graph_pb2, signature_pb2
from shaperouter_service.errors import (
    InvalidRequestError,
    ModelLoadingError,
    Violation,
    shortened,
)
from shaperouter_service.generation.limits import MAX_WARM_SIGNATURES
from shaperouter_service.generation.texts import MOST_OF_A_LIST
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.rendezvous import named
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.wire.signatures import signature_from_message

_KINDS = {number: name for name, number in signature_pb2.GraphKind.items() if number}


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
    """The requested graphs, in the order of the request's signatures.

    Args:
        request: The request as received.
        catalog: The present workers.

    Raises:
        InvalidRequestError: It is invalid; contains all violations, at most three for each list.
        UnknownModelError: The service has no such model.
        ModelLoadingError: No worker has loaded the model.
    """
    count = len(request.signatures)
    if not 1 <= count <= MAX_WARM_SIGNATURES:
        description = f"must have from 1 to {MAX_WARM_SIGNATURES} signatures, got {count}"
        raise InvalidRequestError(Violation(field="signatures", description=description))
    # Each pair once: computing the kinds needs all ladders, and there may be 1000 signatures.
    pairs = dict.fromkeys((message.model, message.kind) for message in request.signatures)
    model_of = {pair: _model(*pair, catalog) for pair in pairs}
    models = [model_of[message.model, message.kind] for message in request.signatures]
    ladders = {name: _ladders(name, catalog) for name in models}
    able = {name: sorted({worker.name for worker in catalog.workers(name)}) for name in ladders}
    violations = [
        *islice(_signature_violations(request.signatures, models, ladders), MOST_OF_A_LIST),
        *islice(_worker_violations(request, able), MOST_OF_A_LIST),
    ]
    if violations:
        raise InvalidRequestError(*violations)
    wishes = []
    for message, model in zip(request.signatures, models, strict=True):
        signature = dataclasses.replace(signature_from_message(message), model=model)
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
    return model.ladders


def _model(name: str, kind: int, catalog: Catalog) -> str:
    """The model of a signature: the named one, or the only one that has graphs of its kind."""

    def has_kind(model: ServedModel) -> bool:
        return kind in _kinds(model.ladders)

    call = f"have graphs of kind {_KINDS.get(kind, kind)}"
    return catalog.resolve(name, serves=has_kind, call=call)


def _kinds(ladders: Ladders) -> dict[int, str]:
    """The kinds of graphs of a model with these ladders, with their names."""
    kinds = dict(_KINDS)
    if ladders.encoder is None:
        del kinds[signature_pb2.GRAPH_KIND_ENCODE]
    if not ladders.aligns:
        del kinds[signature_pb2.GRAPH_KIND_ALIGN]
    return kinds


def _signature_violations(
    signatures: Iterable[signature_pb2.Signature],
    models: Iterable[str],
    ladders: Mapping[str, Ladders],
) -> Iterator[Violation]:
    for index, (message, model) in enumerate(zip(signatures, models, strict=True)):
        for field, value, rungs, ladder in _dimensions(message, ladders[model]):
            if value not in rungs:
                allowed = ", ".join(map(str, rungs))
                yield Violation(
                    field=f"signatures[{index}].{field}",
                    description=f"must be one of {allowed} ({ladder} of {model}), got {value}",
                )
                # The allowed values of the others depend on this one.
                break


def _dimensions(
    message: signature_pb2.Signature, ladders: Ladders
) -> Iterator[tuple[str, object, Sequence[object], str]]:
    """Each dimension with its field, value, allowed values and name, in order of dependence."""
    kinds = _kinds(ladders)
    kind = _KINDS.get(message.kind, message.kind)
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
    named_before = set()
    for index, worker in enumerate(request.workers):
        # 1 MB holds about 100,000 names, each of which would give an entry for each signature.
        if worker in named_before:
            yield Violation(
                field=f"workers[{index}]",
                description=f"must name each worker only once, got {shortened(worker, 64)!r} again",
            )
        named_before.add(worker)
        for model, workers in able.items():
            if worker not in workers:
                yield Violation(
                    field=f"workers[{index}]",
                    description=f"must be one of {', '.join(workers) or 'none'} (workers that have "
                    f"{model}), got {shortened(worker, 64)!r}",
                )
                break
