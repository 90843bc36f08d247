"""Values of the core as JSON for the page. Fields that are zero or empty are left out."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

from shaperouter_service.fleet.losses import WorkerLoss
from shaperouter_service.generation.option import ModelLimit, Option, shown
from shaperouter_service.generation.run_events import GraphUse
from shaperouter_service.routing.choice import Decision, WorkerOption
from shaperouter_service.routing.fitting import Demand
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.routing.ladder_fit import Fit
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import GraphReport, Snapshot
from shaperouter_service.serving.request_summary import RequestSummary

Row: TypeAlias = dict[str, Any]

# Digits of seconds: microseconds are measured, and longer texts would only cost bytes.
_DIGITS = 6


def graph_row(graph: GraphReport) -> Row:
    """One graph on one worker."""
    signature = graph.signature
    return _known(
        {
            "signature": str(signature),
            "model": signature.model,
            "kind": signature.kind,
            "beams": signature.beams,
            "rows": signature.rows,
            "length": signature.length_text,
            "exact": "x".join(map(str, signature.exact)),
            "worker": graph.worker,
            "state": graph.state,
            "traces": graph.traces,
            "compiles": graph.compiles,
            "loads": graph.loads,
            "failures": graph.failures,
            "make_seconds": _rounded(graph.make_seconds),
            "calls": sum(graph.device_seconds.counts),
            "device_seconds": _rounded(graph.device_seconds.sum),
            "stalls": sum(graph.stall_seconds.counts),
            "stall_seconds": _rounded(graph.stall_seconds.sum),
            "padded_seconds": _rounded(graph.padded_seconds),
            "missed_seconds": _rounded(graph.missed_seconds),
            "step_seconds": _rounded(graph.step_seconds),
            "error": graph.error,
        }
    )


def graph_marks(graph: GraphReport) -> tuple[object, ...]:
    """Values that change whenever the row of a graph does, and cost less to make than the row."""
    return (
        graph.state,
        graph.device_seconds.sum,
        graph.stall_seconds.sum,
        graph.padded_seconds,
        graph.missed_seconds,
        graph.step_seconds,
        graph.traces,
        graph.compiles,
        graph.loads,
        graph.failures,
        graph.error,
    )


def worker_row(snapshot: Snapshot) -> Row:
    """One worker's load and limits."""
    budget, lanes = snapshot.budget, snapshot.lanes
    padding = sum(
        lane.encode_padding_tokens
        + lane.prefill_padding_tokens
        + lane.decode_padding_tokens
        + lane.align_padding_tokens
        + lane.score_padding_tokens
        for lane in lanes
    )
    padding += sum(queue.padding_elements for queue in snapshot.call_queues)
    return {
        "name": snapshot.worker,
        "incarnation": snapshot.incarnation,
        "device": snapshot.device,
        "warm": snapshot.warm,
        "mode": budget.mode,
        "room": budget.room,
        "max_graphs": budget.max_graphs,
        "exhausted": budget.exhausted,
        "memory_bytes": budget.memory_bytes,
        "max_memory_bytes": budget.max_memory_bytes,
        "compile_queue": snapshot.compile_queue_depth,
        "padding_tokens": padding,
        "start": _known(asdict(snapshot.start)),
        "lanes": [
            {
                "model": lane.model,
                "beams": lane.beams,
                "active": lane.active_slots,
                "slots": lane.total_slots,
                "queued": lane.queued,
                "backlog_tokens": lane.backlog_tokens,
            }
            for lane in lanes
        ],
        "queues": [
            {"model": queue.model, "calls": queue.calls, "rows": queue.rows}
            for queue in snapshot.call_queues
        ],
        "revisions": [_known(asdict(revision)) for revision in snapshot.revisions],
        "cache_bytes": {model.name: model.kv_cache_bytes for model in snapshot.models},
    }


def loss_row(loss: WorkerLoss) -> Row:
    """The end of a worker's process."""
    return {"worker": loss.worker.name, "loss": loss.loss, "at": round(loss.at, 3)}


def model_row(model: ServedModel, revisions: list[str], lattices: list[Row]) -> Row:
    """One model, with what workers call its revisions, and all shapes of their ladders."""
    return _known(
        {
            "name": model.name,
            "family": model.family,
            "kind": model.kind,
            "dtype": model.dtype,
            "weight_dtype": model.weight_dtype,
            "kernels": model.kernels,
            "parameters": model.parameters,
            "weight_bytes": model.weight_bytes,
            "kv_cache_bytes_per_token": model.kv_cache_bytes_per_token,
            "slots": model.slots,
            "max_length": model.max_length,
            "max_source_length": model.max_source_length,
            "max_beams": model.max_beams,
            "vocab_size": model.vocab_size,
            "tokenizer": model.tokenizer,
            "revision": model.revision,
            "revisions": revisions,
            "lattices": lattices,
        }
    ) | {"ready_workers": model.ready_workers}


def lattice_rows(signatures: Iterable[Signature]) -> list[Row]:
    """The lattices that signatures form: the lengths of each, with the rows of each length."""
    lattices: dict[tuple[str, str, int], dict[str, list[int]]] = {}
    for each in signatures:
        lengths = lattices.setdefault((each.model, each.kind, each.beams), {})
        lengths.setdefault(each.length_text, []).append(each.rows)
    return [
        {
            "model": model,
            "kind": kind,
            "beams": beams,
            "lengths": list(map(list, lengths.items())),
        }
        for (model, kind, beams), lengths in lattices.items()
    ]


def request_row(request: RequestSummary) -> Row:
    """One request, with the decision about its first run."""
    return _known(
        {
            "id": request.request_id,
            "method": request.method,
            "model": request.model,
            "client": request.client,
            "code": "" if request.code is None else request.code.name,
            "error": request.error,
            "arrived_at": round(request.arrived_at, 3),
            "total_seconds": _rounded(request.total_seconds),
            "tokenize_seconds": _rounded(request.tokenize_seconds),
            "route_seconds": _rounded(request.route_seconds),
            "first_token_seconds": _rounded(request.first_token_seconds),
            **{name: _rounded(value) for name, value in asdict(request.timings).items()},
            "prompt_tokens": request.prompt_tokens,
            "generated_tokens": request.generated_tokens,
            "rows": request.rows,
            "worker": request.worker,
            "lost_workers": list(request.lost_workers),
            "tight": str(request.routes[0].taken.tight) if request.routes else "",
            "graphs": list(map(_use_row, request.graphs)),
            "trace_id": request.trace_id,
        }
    )


def fit_row(fit: Fit) -> Row:
    """The fitted ladders of one model beside today's, with what each is expected to cost."""
    return {
        "model": fit.traffic.model,
        "recorded_seconds": _rounded(fit.traffic.seconds),
        "is_thin": fit.is_thin,
        "cost_today": _rounded(fit.cost_today),
        "cost_fitted": _rounded(fit.cost_fitted),
        "ladders": [
            {
                "title": one.title,
                "today": _ladder_row(one.demand, one.today),
                "fitted": _ladder_row(one.demand, one.fitted),
            }
            for one in fit.comparisons
        ],
    }


def explained_request(request: RequestSummary) -> Row:
    """One request with all options that the router had."""
    return request_row(request) | {"routes": list(map(_decision, request.routes))}


def option_row(option: Option) -> Row:
    """One generation option with its help."""
    bounds = option.range
    limits: Row = {}
    if bounds is not None:
        high = bounds.high
        told = None if high is None else _LIMITS[high] if isinstance(high, ModelLimit) else high
        limits = {
            "rule": bounds.rule(None if told is None else shown(told)),
            "low": bounds.low,
            "high": None if isinstance(high, ModelLimit) else high,
        }
    return {
        "name": option.name,
        "kind": option.kind.name.lower(),
        "group": option.group,
        "help": option.help,
        "default": option.default_help or _default(option.default),
        "needs": option.needs.name.lower() if option.needs else "",
        **limits,
    }


_LIMITS: Mapping[ModelLimit, str] = {
    ModelLimit.VOCABULARY: "the vocabulary's size",
    ModelLimit.BEAMS: "the model's largest beam width",
}


def _default(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}"
    return "" if value is None else str(value)


def _ladder_row(demand: Demand, ladder: Ladder) -> Row:
    expected = demand.expected(ladder)
    return {
        "rungs": list(ladder.rungs),
        "padding_share": round(expected.padding_share, 4),
        "padding_seconds": _rounded(expected.padding_seconds),
        "compile_seconds": _rounded(expected.compile_seconds),
        "cost": _rounded(expected.cost),
    }


def _decision(decision: Decision[WorkerOption]) -> list[Row]:
    return [
        {
            "worker": option.worker,
            "tight": str(option.tight),
            "graphs": list(map(str, option.graphs)),
            "queue_seconds": _rounded(option.queue_seconds),
            "stall_seconds": _rounded(option.stall_seconds),
            "device_seconds": _rounded(option.device_seconds),
            "total_seconds": _rounded(option.total_seconds),
            "informed": option.informed,
        }
        for option in decision.options
    ]


def _use_row(use: GraphUse) -> Row:
    return {
        "asked": str(use.asked),
        "served": str(use.served),
        "calls": use.calls,
        "device_seconds": _rounded(use.device_seconds),
    }


def _rounded(seconds: float) -> float:
    return round(seconds, _DIGITS)


def _known(row: Row) -> Row:
    return {name: value for name, value in row.items() if value or value is False}
