"""The graphs of a request to warm: validated, one entry for each graph on each worker."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from shaperouter_service.errors import (
    InvalidRequestError,
    ModelLoadingError,
    Violation,
    shortened,
)
from shaperouter_service.generation.limits import MAX_WARM_SIGNATURES
from shaperouter_service.generation.text_validation import MAX_VIOLATIONS_OF_LIST
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.rendezvous import named
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.warm_request import RequestedGraph, WarmRequest

AnyLadders: TypeAlias = Ladders | CallLadders

# Sizes that an axis without a ladder may have.
_SIZES = range(1, 2**31)


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
        raise InvalidRequestError.of("signatures", description)
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
            further=graph.further,
            exact=graph.exact,
        )
        if request.workers or request.all_workers:
            workers = request.workers or able[model]
        else:
            workers = [named(signature, able[model])]
        requests += [CompileRequest(signature=signature, worker=worker) for worker in workers]
    return requests


def _ladders(name: str, catalog: Catalog) -> AnyLadders:
    model = catalog.model(name)
    ladders = None if model is None else _ladders_of(model)
    if ladders is None or not catalog.workers(name):
        raise ModelLoadingError(name)
    return ladders


def _ladders_of(model: ServedModel) -> AnyLadders | None:
    return model.ladders if model.call is None else model.call.ladders


def _model(name: str, kind: GraphKind | int, catalog: Catalog) -> str:
    """What workers call the model of a signature: the named one, or the only one of its kind."""

    def has_kind(model: ServedModel) -> bool:
        ladders = _ladders_of(model)
        return ladders is not None and kind in _kinds(ladders)

    call = f"have graphs of kind {kind}"
    return catalog.revisions.main(catalog.resolve(name, serves=has_kind, call=call))


def _kinds(ladders: AnyLadders) -> list[GraphKind]:
    """The kinds of graphs of a model with these ladders."""
    if isinstance(ladders, CallLadders):
        return [GraphKind.CALL]
    return list(dict.fromkeys(kind for kind, _ in ladders.kinds))


def _signature_violations(
    graphs: Iterable[RequestedGraph],
    models: Iterable[str],
    ladders: Mapping[str, AnyLadders],
) -> Iterator[Violation]:
    for index, (graph, model) in enumerate(zip(graphs, models, strict=True)):
        for field, value, rungs, ladder in _dimensions(graph, ladders[model]):
            if value not in rungs:
                if isinstance(rungs, range):
                    allowed = f"from {rungs.start} to {rungs.stop - 1}"
                else:
                    allowed = f"one of {', '.join(map(str, rungs))}"
                yield Violation(
                    field=f"signatures[{index}].{field}",
                    description=f"must be {allowed} ({ladder} of {model}), got {value}",
                )
                # The allowed values of the others depend on this one.
                break


def _dimensions(
    graph: RequestedGraph, ladders: AnyLadders
) -> Iterator[tuple[str, object, Sequence[object], str]]:
    """Each dimension with its field, value, allowed values and name, in order of dependence."""
    kinds = tuple(map(str, _kinds(ladders)))
    yield "kind", str(graph.kind), kinds, "kinds of graphs"
    if isinstance(ladders, CallLadders):
        yield from _call_dimensions(graph, ladders)
        return
    yield "further", len(graph.further), (0,), "further sizes"
    yield "exact", len(graph.exact), (0,), "exact sizes"
    kind = GraphKind(str(graph.kind))
    widths = [beams for each, beams in ladders.kinds if each is kind]
    yield "beams", graph.beams, widths, f"beam widths of {kind}"
    of = f"of {kind} beams {graph.beams}" if kind is GraphKind.DECODE else f"of {kind}"
    yield "length", graph.length, ladders.lengths(kind, graph.beams).rungs, f"lengths {of}"
    rows = ladders.rows(kind, graph.length, graph.beams).rungs
    yield "rows", graph.rows, rows, f"rows {of} of length {graph.length}"


def _call_dimensions(
    graph: RequestedGraph, ladders: CallLadders
) -> Iterator[tuple[str, object, Sequence[object], str]]:
    padded = [(each.name, each.ladder) for each in ladders.axes if each.ladder is not None]
    exact = [each.name for each in ladders.axes if each.ladder is None]
    if ladders.rows is None:
        exact.insert(0, "batch")
    yield "beams", graph.beams, (1,), "beam width of call"
    yield "rows", graph.rows, ladders.rows.rungs if ladders.rows else (1,), "rows of call"
    length = f"sizes of axis {padded[0][0]}" if padded else "length of call"
    yield "length", graph.length, padded[0][1].rungs if padded else (1,), length
    yield "further", len(graph.further), (max(0, len(padded) - 1),), "further sizes"
    for index, (size, (name, ladder)) in enumerate(zip(graph.further, padded[1:], strict=True)):
        yield f"further[{index}]", size, ladder.rungs, f"sizes of axis {name}"
    yield "exact", len(graph.exact), (len(exact),), "exact sizes"
    for index, (size, name) in enumerate(zip(graph.exact, exact, strict=True)):
        yield f"exact[{index}]", size, _SIZES, f"sizes of axis {name}"


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
