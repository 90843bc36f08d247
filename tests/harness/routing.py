"""The state of workers for tests of routing, without workers."""

import dataclasses
from collections.abc import Iterable, Sequence

from shaperouter_service.routing.costs import Costs, Dimensions
from shaperouter_service.routing.decision import Option, RequestShape
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.snapshots import GraphState, LaneReport
from shaperouter_service.routing.views import GraphView, WorkerView

MODEL = "m"
SLOTS = 4
LADDERS = Ladders.default(max_length=1024, slots=SLOTS)
# Dimensions of GPT-2 small.
DIMENSIONS = Dimensions(weight_bytes=497_759_232, cache_bytes_per_token=73_728, prefill_piece=128)
# Likewise, with half of the layers in an encoder.
SOURCE_LADDERS = Ladders.default(
    max_length=512, slots=SLOTS, prefill_piece=8, max_source_length=512
)
SOURCE_DIMENSIONS = dataclasses.replace(
    DIMENSIONS,
    encoder_weight_bytes=DIMENSIONS.weight_bytes // 2,
    prefill_piece=8,
    max_source_length=512,
)


def decode(rows: int, length: int, beams: int = 1) -> Signature:
    return Signature(model=MODEL, kind=GraphKind.DECODE, beams=beams, rows=rows, length=length)


def prefill(length: int, rows: int = 1) -> Signature:
    return Signature(model=MODEL, kind=GraphKind.PREFILL, beams=1, rows=rows, length=length)


def shape(prompt_tokens: int = 10, new_tokens: int = 30, num_beams: int = 1) -> RequestShape:
    return RequestShape(
        model=MODEL, prompt_tokens=prompt_tokens, new_tokens=new_tokens, num_beams=num_beams
    )


def option(
    queue: float = 0.0,
    *,
    stall: float = 0.0,
    decoding: float = 1.0,
    informed: bool = True,
    worker: str = "a",
    beams: int = 1,
) -> Option:
    """A way to serve a request."""
    return Option(
        worker=worker,
        prefill=LADDERS.first_of(MODEL, GraphKind.PREFILL),
        decode=decode(1, 64, beams),
        beams=beams,
        tight=decode(1, 64, beams),
        queue_seconds=queue,
        stall_seconds=stall,
        prefill_seconds=0.5,
        decode_seconds=decoding,
        informed=informed,
    )


def compiling(signature: Signature, ready_at: float) -> GraphView:
    return GraphView(signature=signature, state=GraphState.COMPILING, ready_at=ready_at)


def cold(signature: Signature, missed_seconds: float) -> GraphView:
    return GraphView(
        signature=signature,
        state=GraphState.COLD,
        missed_seconds=missed_seconds,
        would_save_seconds=missed_seconds,
    )


def failed(signature: Signature, retry_at: float, missed_seconds: float = 0.0) -> GraphView:
    return GraphView(
        signature=signature,
        state=GraphState.FAILED,
        retry_at=retry_at,
        missed_seconds=missed_seconds,
        would_save_seconds=missed_seconds,
    )


def worker(
    name: str,
    *,
    ready: Sequence[Signature] = (),
    graphs: Iterable[GraphView] = (),
    active: int = 0,
    queued: int = 0,
    tokens: int | None = None,
    unread: Sequence[int] = (),
    room: int = 1000,
    exhausted: bool = False,
    compiles: bool = True,
) -> WorkerView:
    """A worker of one model; the load is that of its lane without beam search.

    `unread` are the lengths of prompts that are still to be read.
    """
    lanes = {
        (MODEL, lane.beams): LaneReport(
            model=MODEL, beams=lane.beams, total_slots=lane.decode_rows.maximum
        )
        for lane in LADDERS.lanes
    }
    lanes[MODEL, 1] = LaneReport(
        model=MODEL,
        beams=1,
        active_slots=active,
        total_slots=SLOTS,
        queued=queued,
        backlog_tokens=30 * (active + queued) if tokens is None else tokens,
        backlog_prompts=len(unread),
        backlog_prompt_tokens=sum(unread),
    )
    there = [GraphView(signature=signature, state=GraphState.READY) for signature in ready]
    return WorkerView(
        name=name,
        ladders={MODEL: LADDERS},
        lanes=lanes,
        graphs={view.signature: view for view in (*there, *graphs)},
        costs=Costs({MODEL: DIMENSIONS}),
        room=room,
        exhausted=exhausted,
        compiles=compiles,
    )


def encoding_worker(
    ready: Sequence[Signature], *, active: int = 0, sources: Sequence[int] = ()
) -> WorkerView:
    """A worker of one model with an encoder; `sources` are those that are still to be read."""
    view = worker("a", ready=ready, active=active)
    load = view.lanes[MODEL, 1]
    unread = dataclasses.replace(
        load, backlog_sources=len(sources), backlog_source_tokens=sum(sources)
    )
    return dataclasses.replace(
        view,
        ladders={MODEL: SOURCE_LADDERS},
        lanes={**view.lanes, (MODEL, 1): unread},
        costs=Costs({MODEL: SOURCE_DIMENSIONS}),
    )
