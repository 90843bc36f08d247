"""The graphs of a request to warm: validated, one entry for each graph on each worker."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from shaperouter_service.errors import (
    InvalidRequestError,
    ModelLoadingError,
    Violation,
    shortened,
)
from shaperouter_service.generation.limits import MAX_WARM_SIGNATURES
from shaperouter_service.generation.text_validation import MAX_VIOLATIONS_OF_LIST
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.rendezvous import named
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.warm_request import RequestedGraph, WarmRequest

# In the order in which errors list them.
_KINDS = (GraphKind.PREFILL, GraphKind.DECODE, GraphKind.ENCODE, GraphKind.ALIGN)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileRequest:
    """One graph on one worker.

    Attributes:
        signature: The graph's shape.
        worker: Name of the worker.
    """

    signature: Signature
    worker: str


def compile_requests(request: WarmRequest, catalog: Catalog) -> list[CompileRequest]:
    """The requested graphs, in the order of the request's signatures.

    Args:
        request: The request as received.
        catalog: The present workers.

    Raises:
        InvalidRequestError: It is invalid; contains all violations, at most three for each list.
        UnknownModelError: The service has no such model.
        ModelLoadingError: No worker has loaded the model.
    """
    if not 1 <= request.count <= MAX_WARM_SIGNATURES:
        description = f"must have from 1 to {MAX_WARM_SIGNATURES} signatures, got {request.count}"
        raise InvalidRequestError(Violation(field="signatures", description=description))
    # Each pair once: computing the kinds needs all ladders, and there may be 1000 signatures.
    pairs = dict.fromkeys((graph.model, graph.kind) for graph in request.graphs)
    model_of = {pair: _model(*pair, catalog) for pair in pairs}
    models = [model_of[graph.model, graph.kind] for graph in request.graphs]
    ladders = {name: _ladders(name, catalog) for name in models}
    able = {name: sorted({worker.name for worker in catalog.workers(name)}) for name in ladders}
    violations = [
        *islice(_signature_violations(request.graphs, models, ladders), MAX_VIOLATIONS_OF_LIST),
        *islice(_worker_violations(request, able), MAX_VIOLATIONS_OF_LIST),
    ]
    if violations:
        raise InvalidRequestError(*violations)
    requests = []
    for graph, model in zip(request.graphs, models, strict=True):
        signature = Signature(
            model=model,
            kind=GraphKind(str(graph.kind)),
            beams=graph.beams,
            rows=graph.rows,
            length=graph.length,
        )
        if request.workers or request.all_workers:
            workers = request.workers or able[model]
        else:
            workers = [named(signature, able[model])]
        requests += [CompileRequest(signature=signature, worker=worker) for worker in workers]
    return requests


def _ladders(name: str, catalog: Catalog) -> Ladders:
    model = catalog.model(name)
    if model is None or not catalog.workers(name):
        raise ModelLoadingError(name)
    return model.ladders


def _model(name: str, kind: GraphKind | int, catalog: Catalog) -> str:
    """The model of a signature: the named one, or the only one that has graphs of its kind."""

    def has_kind(model: ServedModel) -> bool:
        return kind in _kinds(model.ladders)

    call = f"have graphs of kind {_shown(kind)}"
    return catalog.resolve(name, serves=has_kind, call=call)


def _kinds(ladders: Ladders) -> list[GraphKind]:
    """The kinds of graphs of a model with these ladders."""
    missing = {
        GraphKind.ENCODE: ladders.encoder is None,
        GraphKind.ALIGN: not ladders.aligns,
    }
    return [kind for kind in _KINDS if not missing.get(kind)]


def _shown(kind: GraphKind | int) -> str:
    return f"GRAPH_KIND_{kind.name}" if isinstance(kind, GraphKind) else str(kind)


def _signature_violations(
    graphs: Iterable[RequestedGraph],
    models: Iterable[str],
    ladders: Mapping[str, Ladders],
) -> Iterator[Violation]:
    for index, (graph, model) in enumerate(zip(graphs, models, strict=True)):
        for field, value, rungs, ladder in _dimensions(graph, ladders[model]):
            if value not in rungs:
                allowed = ", ".join(map(str, rungs))
                yield Violation(
                    field=f"signatures[{index}].{field}",
                    description=f"must be one of {allowed} ({ladder} of {model}), got {value}",
                )
                # The allowed values of the others depend on this one.
                break


def _dimensions(
    graph: RequestedGraph, ladders: Ladders
) -> Iterator[tuple[str, object, Sequence[object], str]]:
    """Each dimension with its field, value, allowed values and name, in order of dependence."""
    kinds = tuple(map(_shown, _kinds(ladders)))
    yield "kind", _shown(graph.kind), kinds, "kinds of graphs"
    if graph.kind is GraphKind.ENCODE:
        yield "beams", graph.beams, (1,), "beam width of encode"
        lengths = ladders.encoder.lengths.rungs if ladders.encoder else ()
        yield "length", graph.length, lengths, "lengths of encode"
        rows = ladders.sources_together(graph.length).rungs
        yield "rows", graph.rows, rows, f"rows of encode of length {graph.length}"
        return
    if graph.kind is GraphKind.ALIGN:
        yield "beams", graph.beams, (1,), "beam width of align"
        aligned = ladders.encoder and ladders.encoder.align_lengths
        yield "length", graph.length, aligned.rungs if aligned else (), "lengths of align"
        yield "rows", graph.rows, (1,), "rows of align"
        return
    if graph.kind is GraphKind.PREFILL:
        yield "beams", graph.beams, (1,), "beam width of prefill"
        yield "length", graph.length, ladders.prefill_lengths.rungs, "lengths of prefill"
        rows = ladders.prompts_together(graph.length).rungs
        yield "rows", graph.rows, rows, f"rows of prefill of length {graph.length}"
        return
    widths = tuple(lane.beams for lane in ladders.lanes)
    yield "beams", graph.beams, widths, "beam widths of decode"
    lane = ladders.lane(graph.beams)
    of = f"of decode beams {lane.beams}"
    yield "rows", graph.rows, lane.decode_rows.rungs, f"rows {of}"
    yield "length", graph.length, lane.decode_lengths.rungs, f"lengths {of}"


def _worker_violations(
    request: WarmRequest, able: Mapping[str, Sequence[str]]
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
