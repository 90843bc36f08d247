"""The decision: which worker and which graphs finish a request soonest.

A request starts at once on any ready graph that covers it. When its tight graph becomes ready, the
request continues there from the next chunk. So waiting for a compilation never pays if there is a
cover; if there is none, the request waits for the first one.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.rendezvous import named
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.views import GraphState, LaneView, WorkerView

# Options whose expected end is within this fraction of the soonest count as equal, because
# estimates are no more precise. Among equal options, requests of one shape go to one worker, so
# that it compiles for them.
EQUAL_WITHIN = 0.1

# Maximum options in an explanation.
MAX_EXPLAINED_OPTIONS = 16


@dataclass(frozen=True, kw_only=True)
class RequestShape:
    """The size and the options of a request that matter for routing.

    Attributes:
        model: Name of the model.
        prompt_tokens: Length of the prompt.
        new_tokens: Maximum number of tokens to generate.
        num_beams: Number of beams; 1 means no beam search.
        source_tokens: Positions of its source, if the model has an encoder.
        aligns: Whether the prompt is a whole transcript to align with the source.
    """

    model: str
    prompt_tokens: int
    new_tokens: int
    num_beams: int
    source_tokens: int = 0
    aligns: bool = False


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option to serve a request, with expected times in seconds.

    Attributes:
        worker: Name of the worker.
        encode: The graph that reads the source; None without one.
        prefill: The graph that reads the prompt; None if no part of it is left to read.
        decode: The graph that decodes first, or the one that aligns.
        tight: The smallest graph that covers the request alone.
        queue_seconds: Waiting for earlier requests.
        stall_seconds: Additional waiting for graphs.
        prefill_seconds: Reading source and prompt.
        decode_seconds: Generating all tokens, on a tighter graph once that is ready; or aligning.
        informed: Whether all times are based on measurements of the worker.
    """

    worker: str
    encode: Signature | None = None
    prefill: Signature | None
    decode: Signature
    tight: Signature
    queue_seconds: float
    stall_seconds: float
    prefill_seconds: float
    decode_seconds: float
    informed: bool

    @property
    def graphs(self) -> list[Signature]:
        """The graphs, in the order of their use."""
        found = (self.encode, self.prefill, self.decode)
        return [signature for signature in found if signature is not None]

    @property
    def first_seconds(self) -> float:
        """Seconds until the first token."""
        return self.queue_seconds + self.stall_seconds + self.prefill_seconds

    @property
    def total_seconds(self) -> float:
        """Seconds until the last token."""
        return self.first_seconds + self.decode_seconds

    def __str__(self) -> str:
        """The short form for logs."""
        graphs = ", ".join(map(str, self.graphs))
        parts = [f"{self.worker}: {graphs}, {self.total_seconds:.3g} s"]
        if self.stall_seconds:
            parts.append(f"{self.stall_seconds:.3g} s of it stalled")
        if self.queue_seconds:
            parts.append(f"{self.queue_seconds:.3g} s of it queued")
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The options for a request, best first."""

    options: tuple[Option, ...]

    @property
    def taken(self) -> Option:
        """The best option, which is taken."""
        return self.options[0]


class NoOption:
    """The answer when no worker can serve a request."""


NO_OPTION: Final = NoOption()


def decide(shape: RequestShape, workers: Iterable[WorkerView], now: float) -> Decision | NoOption:
    """Finds the option that ends soonest. Equal inputs give equal decisions.

    Args:
        shape: The shape of the request.
        workers: The workers that have its model.
        now: The time on the monotonic clock of the views, in seconds.
    """
    options = sorted(
        (option for worker in workers for option in _options(shape, worker, now)),
        key=lambda option: (option.total_seconds, option.worker, option.decode),
    )
    if not options:
        return NO_OPTION
    limit = (1 + EQUAL_WITHIN) * options[0].total_seconds
    as_good = {option.worker for option in options if option.total_seconds <= limit}
    name = named(options[0].tight, sorted(as_good))
    taken = next(option for option in options if option.worker == name)
    others = [option for option in options if option is not taken]
    return Decision(options=(taken, *others[: MAX_EXPLAINED_OPTIONS - 1]))


def _options(shape: RequestShape, worker: WorkerView, now: float) -> Iterator[Option]:
    """Yields options for the narrowest lane, and for wider ones with a present or coming graph."""
    ladders = worker.ladders[shape.model]
    narrowest = ladders.lane(shape.num_beams).beams
    for lane in ladders.lanes:
        # A request may be padded to more beams, but not from no beam search to beam search, which
        # has another graph.
        if lane.beams < narrowest or (lane.beams > 1) != (shape.num_beams > 1):
            continue
        load = worker.lanes.get((shape.model, lane.beams))
        if load is None:
            continue
        option = _option(shape, worker, lane.beams, load, now)
        state = worker.state(option.decode)
        if lane.beams == narrowest or state is GraphState.READY or state.on_the_way:
            yield option


def _option(
    shape: RequestShape, worker: WorkerView, beams: int, load: LaneView, now: float
) -> Option:
    costs = worker.costs
    # Lanes take turns, one chunk each.
    turns = 1 + sum(1 for _ in worker.busy_lanes((shape.model, beams)))

    encode, prefill, read_seconds = _read_graphs(shape, worker)

    # Transcripts are aligned one at a time.
    together = 1 if shape.aligns else min(load.active + 1, load.slots)
    tight, joint, first = _answer_signatures(shape, worker.ladders[shape.model], beams, together)
    decode = worker.cheapest(tight, together) or first
    calls = math.ceil(together / decode.rows)
    step_seconds = turns * calls * costs.step_seconds(decode)
    joint_seconds = turns * costs.step_seconds(joint)

    graphs = [graph for graph in (encode, prefill, decode) if graph is not None]
    stall = max(worker.ready_at(graph, now) for graph in graphs) - now
    queue = turns * _unread_seconds(worker, shape.model, load) + _slot_seconds(load, step_seconds)
    steps = max(1, shape.new_tokens - 1)
    decode_seconds = steps * step_seconds
    if joint_seconds < step_seconds and worker.state(joint).on_the_way:
        begun = max(queue, stall) + read_seconds
        until = max(0.0, worker.ready_at(joint, now) - now - begun)
        if until < decode_seconds:
            decode_seconds = until + (steps - until / step_seconds) * joint_seconds
    return Option(
        worker=worker.name,
        encode=encode,
        prefill=prefill,
        decode=decode,
        tight=tight,
        queue_seconds=queue,
        # Compilations continue while the request is queued.
        stall_seconds=max(0.0, stall - queue),
        prefill_seconds=turns * read_seconds,
        decode_seconds=decode_seconds,
        informed=all(map(costs.is_informed, graphs))
        and (stall == 0 or costs.has_compiled(shape.model)),
    )


def _answer_signatures(
    shape: RequestShape, ladders: Ladders, beams: int, together: int
) -> tuple[Signature, Signature, Signature]:
    """The answering graphs: tight alone, tight with the running requests, and the first to run."""
    if shape.aligns:
        tight = ladders.align(shape.model, tokens=shape.prompt_tokens)
        return tight, tight, ladders.first_align(shape.model)
    positions = ladders.positions(
        prompt_tokens=shape.prompt_tokens,
        new_tokens=shape.new_tokens,
        beams=beams,
        source_tokens=shape.source_tokens,
    )
    return (
        ladders.decode(shape.model, rows=1, length=positions, beams=beams),
        ladders.decode(shape.model, rows=together, length=positions, beams=beams),
        ladders.first_decode(shape.model, beams),
    )


def _read_graphs(
    shape: RequestShape, worker: WorkerView
) -> tuple[Signature | None, Signature | None, float]:
    """The graphs that read source and prompt, and the time that they take in seconds."""
    encode = prefill = None
    encode_seconds = prefill_seconds = 0.0
    if shape.source_tokens:
        encode, encode_seconds = _encode(worker, shape.model, 1, shape.source_tokens)
    if shape.aligns:
        return encode, None, encode_seconds
    if read_tokens := worker.ladders[shape.model].read_tokens(shape.prompt_tokens):
        prefill, prefill_seconds = _prefill(worker, shape.model, 1, read_tokens)
    return encode, prefill, encode_seconds + prefill_seconds


def _unread_seconds(worker: WorkerView, model: str, load: LaneView) -> float:
    """Time to read a lane's unread sources and prompts, as if all had their mean length.

    The time of a call and the number of prompts it reads depend on the graph that covers them, not
    on the lane that waits for it.
    """
    seconds = 0.0
    if load.sources:
        mean = math.ceil(load.source_tokens / load.sources)
        seconds += _encode(worker, model, load.sources, mean)[1]
    if load.prompts:
        mean = math.ceil(load.prompt_tokens / load.prompts)
        seconds += _prefill(worker, model, load.prompts, mean)[1]
    return seconds


def _encode(worker: WorkerView, model: str, sources: int, tokens: int) -> tuple[Signature, float]:
    """The graph to read some sources of a length, and the total time of its calls in seconds."""
    ladders = worker.ladders[model]
    tight = ladders.encode(model, rows=1, source_tokens=tokens)
    graph = worker.cheapest(tight, sources) or ladders.first_encode(model)
    return graph, math.ceil(sources / graph.rows) * worker.costs.step_seconds(graph)


def _prefill(worker: WorkerView, model: str, prompts: int, tokens: int) -> tuple[Signature, float]:
    """The graph to read some prompts of a length, and the total time of its calls in seconds."""
    ladders = worker.ladders[model]
    tight = ladders.prefill(model, rows=1, prompt_tokens=tokens)
    graph = worker.cheapest(tight, prompts) or ladders.first_prefill(model)
    pieces = math.ceil(tokens / min(ladders.prefill_piece, graph.length))
    return graph, math.ceil(prompts / graph.rows) * pieces * worker.costs.step_seconds(graph)


def _slot_seconds(load: LaneView, step_seconds: float) -> float:
    """Time until a slot is free: earlier requests generate their tokens, `slots` at a time.

    Args:
        load: Load of the lane.
        step_seconds: Time of one token of all active requests.
    """
    requests = load.active + load.queued
    ahead = load.queued + 1 - (load.slots - load.active)
    if ahead <= 0 or requests == 0:
        return 0.0
    each = load.tokens / requests * step_seconds
    return ahead * each / load.slots
