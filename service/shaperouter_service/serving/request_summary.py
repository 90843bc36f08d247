"""A summary of a request, running or ended, for people."""

from collections.abc import Sequence
from dataclasses import dataclass

from shaperouter_service.errors import Code
from shaperouter_service.generation.run_events import GraphUse, RunTimings
from shaperouter_service.inference.calls import CallTimings
from shaperouter_service.routing.choice import Decision, WorkerOption


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSummary:
    """A request so far. Times are in seconds.

    Attributes:
        request_id: Id of the request.
        method: The method or path that it called.
        model: Name of the model; `(unknown)` until it is known.
        client: Name of the client.
        code: How it ended; None while it runs.
        error: Why it failed; empty if it did not.
        arrived_at: When it arrived, in seconds of Unix time.
        total_seconds: From its arrival to its end, or until now.
        tokenize_seconds: Waiting for its texts to be tokenized, and tokenizing them.
        route_seconds: From its arrival until it was first sent to a worker; 0 before.
        first_token_seconds: From its arrival to its first token; 0 before.
        timings: Times on its worker. While it runs, and if it did not succeed, only its stalls and
            the time from the first token to the newest are known.
        prompt_tokens: Tokens of its prompt and source.
        generated_tokens: Tokens of all its sequences so far.
        rows: Rows of a call; None for a generation.
        worker: The worker that last reported on it; empty before one does.
        lost_workers: Workers that were lost while they had a part of it, in order.
        routes: The decisions on where its runs went, in order.
        graphs: The graphs that served it, known at its successful end.
        trace_id: Id of its trace; empty if it is not traced.
    """

    request_id: str
    method: str
    model: str
    client: str
    code: Code | None
    error: str
    arrived_at: float
    total_seconds: float
    tokenize_seconds: float
    route_seconds: float
    first_token_seconds: float
    timings: RunTimings | CallTimings
    prompt_tokens: int
    generated_tokens: int
    rows: int | None
    worker: str
    lost_workers: Sequence[str]
    routes: Sequence[Decision[WorkerOption]]
    graphs: Sequence[GraphUse]
    trace_id: str
