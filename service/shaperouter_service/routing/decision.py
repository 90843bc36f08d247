"""The decision: which worker and which graphs finish a request soonest.

A request starts at once on any ready graph that covers it. When its tight graph becomes ready, the
request continues there from the next chunk. So waiting for a compilation never pays if there is a
cover; if there is none, the request waits for the first one.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from shaperouter_service.routing.choice import (
    Decision,
    NoOption,
    WorkerOption,
    choose,
    options_of,
)
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.prefixes import shared_tokens
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.snapshots import GraphState, LaneReport
from shaperouter_service.routing.views import WorkerView


@dataclass(frozen=True, kw_only=True)
class RequestShape:
    """The size and the options of a request that matter for routing.

    Attributes:
        model: Name of the model.
        prompt_tokens: Length of the prompt.
        new_tokens: Maximum number of tokens to generate; 0 if it only reads.
        num_beams: Number of beams; 1 means no beam search.
        source_tokens: Positions of its source, if the model has an encoder.
        aligns: Whether the prompt is a whole transcript to align with the source.
        scores: Whether it asks for the log-probabilities of the prompt.
        prefix_keys: Keys of the blocks of its prompt; see `prefixes`. Empty if it must be read.
        expected_tokens: Number of tokens that it is expected to generate; 0 for the maximum.
    """

    model: str
    prompt_tokens: int
    new_tokens: int
    num_beams: int
    source_tokens: int = 0
    aligns: bool = False
    scores: bool = False
    prefix_keys: Sequence[bytes] = ()
    expected_tokens: int = 0

    @property
    def likely_tokens(self) -> int:
        """Number of tokens that it is expected to generate."""
        return self.expected_tokens or self.new_tokens


@dataclass(frozen=True, kw_only=True)
class Option(WorkerOption):
    """An option to serve a run.

    Attributes:
        encode: The graph that reads the source; None without one.
        prefill: The graph that reads the prompt, or scores it; None if no part of it is left to
            read.
        decode: The graph that decodes first, or the one that aligns; None without new tokens.
        beams: Beam width of the lane.
        prefill_seconds: Reading source and prompt.
        decode_seconds: Generating the expected tokens, on a tighter graph once that is ready; or
            aligning.
    """

    encode: Signature | None = None
    prefill: Signature | None
    decode: Signature | None
    beams: int
    prefill_seconds: float
    decode_seconds: float

    @property
    def graphs(self) -> list[Signature]:
        """The graphs, in the order of their use."""
        found = (self.encode, self.prefill, self.decode)
        return [signature for signature in found if signature is not None]

    @property
    def device_seconds(self) -> float:
        """Seconds of reading and decoding."""
        return self.prefill_seconds + self.decode_seconds

    @property
    def queue(self) -> tuple[str, str, int]:
        """The lane in which it waits for a slot."""
        return self.worker, self.tight.model, self.beams


def decide(
    shape: RequestShape, workers: Iterable[WorkerView], now: float
) -> Decision[Option] | NoOption:
    """Finds the option that ends soonest. Equal inputs give equal decisions.

    Args:
        shape: The shape of the request.
        workers: The workers that have its model.
        now: The time on the monotonic clock of the views, in seconds.

    Raises:
        OverLadderError: The request is longer than any of them allows.
    """
    return choose(options_of(workers, lambda worker: _options(shape, worker, now)))


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
        if lane.beams == narrowest or _is_coming(option, worker):
            yield option


def _is_coming(option: Option, worker: WorkerView) -> bool:
    """Whether the graph that decodes is ready or on the way."""
    if option.decode is None:
        return False
    state = worker.state(option.decode)
    return state is GraphState.READY or state.on_the_way


def _option(
    shape: RequestShape, worker: WorkerView, beams: int, load: LaneReport, now: float
) -> Option:
    costs = worker.costs
    # Lanes take turns, one chunk each, and so do queues of calls.
    turns = 1 + worker.busy((shape.model, beams))

    encode, prefill, read_seconds, saved_seconds = _read_graphs(shape, worker)

    # Transcripts are aligned one at a time.
    together = 1 if shape.aligns else min(load.active_slots + 1, load.total_slots)
    tight, joint, first = _answer_signatures(shape, worker.ladders[shape.model], beams, together)
    answer = worker.cheapest(tight, together) or first
    calls = math.ceil(together / answer.rows)
    step_seconds = turns * calls * costs.step_seconds(answer)
    joint_seconds = turns * costs.step_seconds(joint)

    decode: Signature | None = answer
    if not shape.new_tokens and not shape.aligns:
        # The others of the lane still decode, which takes slots.
        decode, tight = None, _tight_reading(shape, worker.ladders[shape.model])
    graphs = [graph for graph in (encode, prefill, decode) if graph is not None]
    stall = max(worker.ready_at(graph, now) for graph in graphs) - now
    queue = turns * _unread_seconds(worker, shape.model, load) + _slot_seconds(load, step_seconds)
    steps = 0 if decode is None else max(1, shape.likely_tokens - 1)
    decode_seconds = steps * step_seconds
    if steps and joint_seconds < step_seconds and worker.state(joint).on_the_way:
        begun = max(queue, stall) + read_seconds
        until = max(0.0, worker.ready_at(joint, now) - now - begun)
        if until < decode_seconds:
            decode_seconds = until + (steps - until / step_seconds) * joint_seconds
    return Option(
        worker=worker.name,
        encode=encode,
        prefill=prefill,
        decode=decode,
        beams=beams,
        tight=tight,
        queue_seconds=queue,
        # Compilations continue while the request is queued.
        stall_seconds=max(0.0, stall - queue),
        prefill_seconds=turns * read_seconds,
        saved_seconds=turns * saved_seconds,
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
        return tight, tight, ladders.first_of(shape.model, GraphKind.ALIGN)
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
) -> tuple[Signature | None, Signature | None, float, float]:
    """The graphs that read source and prompt, the seconds that they take, and those they save."""
    read_tokens = worker.ladders[shape.model].read_tokens(shape.prompt_tokens)
    if shape.aligns:
        read_tokens = 0
    encode, encode_seconds = _reading(worker, shape.model, GraphKind.ENCODE, 1, shape.source_tokens)
    kind = GraphKind.SCORE if shape.scores else GraphKind.PREFILL
    prefill, whole_seconds = _reading(worker, shape.model, kind, 1, read_tokens)
    prefill_seconds = whole_seconds
    if kept := worker.prefixes.get(shape.model):
        copied = min(shared_tokens(shape.prefix_keys, kept), max(0, read_tokens - 1))
        _, prefill_seconds = _reading(worker, shape.model, kind, 1, read_tokens, copied=copied)
    saved_seconds = whole_seconds - prefill_seconds
    return encode, prefill, encode_seconds + prefill_seconds, saved_seconds


def _tight_reading(shape: RequestShape, ladders: Ladders) -> Signature:
    """The tight cover to read the prompt, or the source if no part of the prompt is to be read."""
    if not (read_tokens := ladders.read_tokens(shape.prompt_tokens)):
        return ladders.encode(shape.model, rows=1, source_tokens=shape.source_tokens)
    kind = GraphKind.SCORE if shape.scores else GraphKind.PREFILL
    return ladders.cover(shape.model, kind, rows=1, length=read_tokens)


def _unread_seconds(worker: WorkerView, model: str, load: LaneReport) -> float:
    """Time to read a lane's unread sources and prompts, as if all had their mean length.

    The time of a call and the number of prompts it reads depend on the graph that covers them, not
    on the lane that waits for it.
    """
    sources = load.backlog_sources, load.backlog_source_tokens
    prompts = load.backlog_prompts, load.backlog_prompt_tokens
    _, source_seconds = _reading(worker, model, GraphKind.ENCODE, *sources)
    _, prompt_seconds = _reading(worker, model, GraphKind.PREFILL, *prompts)
    return source_seconds + prompt_seconds


def _reading(
    worker: WorkerView, model: str, kind: GraphKind, requests: int, tokens: int, *, copied: int = 0
) -> tuple[Signature | None, float]:
    """The graph to read sources or prompts, and the time of all its calls in seconds.

    Args:
        worker: The worker.
        model: Name of the model.
        kind: Encode for sources, prefill or score for prompts.
        requests: Number of sources or prompts.
        tokens: Tokens of all of them; 0 if there is nothing to read.
        copied: Tokens of each prompt that the worker has cached.
    """
    if not tokens:
        return None, 0.0
    ladders, length = worker.ladders[model], math.ceil(tokens / requests)
    tight = ladders.cover(model, kind, rows=1, length=length)
    graph = worker.cheapest(tight, requests) or ladders.first_of(model, kind)
    # One call reads a whole source.
    piece = graph.length if kind is GraphKind.ENCODE else min(ladders.prefill_piece, graph.length)
    calls = math.ceil(requests / graph.rows) * math.ceil((length - copied) / piece)
    return graph, calls * worker.costs.step_seconds(graph)


def _slot_seconds(load: LaneReport, step_seconds: float) -> float:
    """Time until a slot is free: earlier requests generate their tokens, `slots` at a time.

    Args:
        load: Load of the lane.
        step_seconds: Time of one token of all active requests.
    """
    requests = load.active_slots + load.queued
    ahead = load.queued + 1 - (load.total_slots - load.active_slots)
    if ahead <= 0 or requests == 0:
        return 0.0
    each = load.backlog_tokens / requests * step_seconds
    return ahead * each / load.total_slots
