"""The record of a request: metrics, a span, and one line in the log at its end."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Self

import structlog

from shaperouter_service.errors import Code, ServiceError, shortened
from shaperouter_service.generation.run_events import GraphUse, InputUsage, RunTimings
from shaperouter_service.inference.calls import CallTimings
from shaperouter_service.routing.choice import Decision, WorkerOption
from shaperouter_service.routing.deployments import REVISION_DIGITS
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.refusal_log import (
    LEVELS,
    MAX_CLIENT_CHARACTERS,
    MAX_ERROR_CHARACTERS,
    RefusalLog,
)
from shaperouter_service.serving.request_history import RequestHistory
from shaperouter_service.serving.request_summary import RequestSummary
from shaperouter_service.telemetry.progress import SequenceProgress
from shaperouter_service.telemetry.requests import LOOSE, TIGHT, UNKNOWN_MODEL, RequestMetrics
from shaperouter_service.telemetry.tracing import start_span

# A caller whose deadline passes leaves a moment before the service's own deadline, by the time that
# the call took to arrive: at most so many seconds, or this share of the time that it had left.
TRANSIT, TRANSIT_SHARE = 0.1, 0.1

log = structlog.get_logger("shaperouter.request")


@dataclass(frozen=True, kw_only=True)
class RequestRecorder:
    """Makes the records of requests.

    Attributes:
        metrics: Metrics of requests.
        refusals: Writes the lines of requests that never reached a worker.
        history: The last requests.
    """

    metrics: RequestMetrics
    refusals: RefusalLog
    history: RequestHistory = field(default_factory=RequestHistory)

    def record(self, call: Call) -> "RequestRecord":
        """Begins the record of a request that has arrived."""
        record = RequestRecord(call, self.metrics, self.refusals)
        self.history.add(record)
        return record


class RequestRecord:
    """One request's events, as they happen; a context manager around its handling.

    Attributes:
        request_id: Id of the request.
        generated_tokens: Tokens that all its sequences have so far.
        worker: The worker that last reported on it; empty before one does.
        revision: Revision of the model that serves it; empty before it is known.
        routes: The decisions on where its runs went, in order.
    """

    def __init__(self, call: Call, metrics: RequestMetrics, refusals: RefusalLog) -> None:
        """Records that a request has arrived.

        Args:
            call: The call that brought it.
            metrics: Metrics of requests.
            refusals: Writes the lines of requests that never reached a worker.
        """
        self.request_id = call.request_id
        self._call = call
        self._code = Code.OK
        self._error, self._reason = "", ""
        self.worker = ""
        self.revision = ""
        self.routes: list[Decision[WorkerOption]] = []
        self._lost_workers: list[str] = []
        self._metrics = metrics
        self._refusals = refusals
        self._span = start_span("", {"shaperouter.request_id": call.request_id})
        # Autoscalers must see a request that waits to learn which model serves it.
        self._model = UNKNOWN_MODEL
        metrics.waiting.labels(UNKNOWN_MODEL).inc()
        self._arrived, self._arrived_at = time.monotonic(), time.time()
        self._ended: float | None = None
        self._first_route: float | None = None
        self._first_token: float | None = None
        self._prompt_tokens = 0
        self._tokenize_seconds = 0.0
        self.generated_tokens = 0
        self._timings: RunTimings | CallTimings = RunTimings()
        self._rows: int | None = None
        self._graphs: Sequence[GraphUse] = ()
        self._progress: defaultdict[int, SequenceProgress] = defaultdict(SequenceProgress)

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def waits(self, model: str) -> None:
        """Records which model serves the request; until now it counted as an unknown one."""
        self._metrics.waiting.labels(self._model).dec()
        self._model = model
        self._metrics.waiting.labels(model).inc()

    def uses(self, revision: str) -> None:
        """Records which revision of the model is to serve the request."""
        self.revision = revision

    def __exit__(
        self, _: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Records how the request has ended."""
        self._note_failure(error)
        self._ended = time.monotonic()
        metrics, model = self._metrics, self._model
        if self._first_token is not None:
            metrics.running.labels(model).dec()
        else:
            metrics.waiting.labels(model).dec()
        metrics.requests.labels(model, self._code.name).inc()
        metrics.e2e_latency.labels(model).observe(self.total_seconds, self._span.exemplar)
        metrics.revisions.ended(model, self.revision, self._code, self.total_seconds)
        if totals := metrics.totals.get(model):
            ended = totals.succeeded if self._code is Code.OK else totals.failed
            ended.add(self.total_seconds)
        quota = self._call.quota
        if quota:
            metrics.client_requests.labels(quota.name, self._code.name).inc()
        for progress in self._progress.values():
            progress.resumes()
        stalls = (progress.stall_seconds for progress in self._progress.values())
        fields: dict[str, Any] = {
            "request_id": self.request_id,
            "method": self._call.method,
            "client": shortened(self._call.client, MAX_CLIENT_CHARACTERS),
            "model": model,
            "revision": self.revision[:REVISION_DIGITS],
            "code": self._code.name,
            "prompt_tokens": self._prompt_tokens,
            "tokenize_seconds": round(self._tokenize_seconds, 4),
            **self._progress_fields(),
            "total_seconds": round(self.total_seconds, 4),
            "stall_seconds": round(max(stalls, default=0.0), 4),
            "worker": self.worker,
        }
        if self.routes:
            fields["route"] = str(self.routes[0].taken)
            fields["route_seconds"] = round(self.route_seconds, 4)
        if self._graphs:
            # Measured by the worker, and known only at a successful end.
            for name, seconds in asdict(self._timings).items():
                fields[name] = round(seconds, 4)
            fields["graphs"] = [str(use.served) for use in self._graphs]
        if self._reason:
            fields["reason"] = self._reason
        if self._error:
            fields["error"] = self._error
            fields["peer"] = self._call.peer
        self._end_span()
        self._call.logged = True
        if self._code is Code.OK or self.routes:
            log.log(LEVELS.get(self._code, logging.INFO), "request", **fields)
        else:
            self._refusals.write(self._code, "request", fields)

    def _progress_fields(self) -> dict[str, Any]:
        if self._rows is not None:
            return {"rows": self._rows}
        return {
            "generated_tokens": self.generated_tokens,
            "first_token_seconds": round(self.time_to_first_token, 4),
        }

    def rows(self, rows: int) -> None:
        """Records that it is a call of a model that answers once, with some rows."""
        self._rows = rows

    def tokenized(self, *, queue_seconds: float, seconds: float) -> None:
        """Records how long its texts waited and were tokenized; both are 0 without texts."""
        if queue_seconds or seconds:
            self._tokenize_seconds = queue_seconds + seconds
            self._metrics.tokenize_queue_time.labels(self._model).observe(
                queue_seconds, self._span.exemplar
            )
            self._metrics.tokenize_time.labels(self._model).observe(seconds, self._span.exemplar)

    def prompt(self, tokens: int) -> None:
        """Records the tokens of its prompt and source, which are valid."""
        self._prompt_tokens = tokens
        self._metrics.prompt_tokens.labels(self._model).inc(tokens)
        self._pay("prompt", tokens)

    def routed(self, decision: Decision[WorkerOption], revision: str) -> None:
        """Records that a run was sent to a worker, and the revision there; empty if unknown."""
        # Workers that were started with a model may have different files for its name.
        self.revision = revision or self.revision
        if self._first_route is None:
            self._first_route = time.monotonic()
        self.routes.append(decision)
        if self._span:
            taken = decision.taken
            self._span.event(
                "route",
                {
                    "shaperouter.worker": taken.worker,
                    "shaperouter.graphs": [str(signature) for signature in taken.graphs],
                    "shaperouter.expected.queue_seconds": taken.queue_seconds,
                    "shaperouter.expected.stall_seconds": taken.stall_seconds,
                    "shaperouter.expected.device_seconds": taken.device_seconds,
                    "shaperouter.options": len(decision.options),
                },
            )

    def lost(self, worker: str) -> None:
        """Records that a worker was lost while it had a run of the request."""
        self._lost_workers.append(worker)
        self._span.event("lost", {"shaperouter.worker": worker})

    def stalls(self, sequence: int = 0) -> None:
        """Records that a sequence waits for a compilation from now on."""
        self._progress[sequence].stalls()
        self._span.event("stall")

    def input_read(self, usage: InputUsage, sequence: int = 0) -> None:
        """Records what a worker read for a sequence before its first tokens there."""
        self._progress[sequence].input_usage = usage

    def tokens(self, count: int, sequence: int = 0) -> None:
        """Records new tokens of a sequence."""
        metrics, model = self._metrics, self._model
        since = self._progress[sequence].tokens()
        if self._first_token is None:
            self._first_token = time.monotonic()
            metrics.time_to_first_token.labels(model).observe(
                self.time_to_first_token, self._span.exemplar
            )
            self._span.event("first_token")
            metrics.waiting.labels(model).dec()
            metrics.running.labels(model).inc()
        if since is not None:
            metrics.inter_token_latency.labels(model).observe_repeated(since / count, count)
        self.generated_tokens += count
        metrics.generation_tokens.labels(model).inc(count)
        self._pay("generation", count)

    def _note_failure(self, error: BaseException | None) -> None:
        match error:
            case None:
                return
            case ServiceError():
                self._code, self._error, self._reason = error.code, str(error), error.reason
            case asyncio.CancelledError() | GeneratorExit():
                # A door cancels the task both when the caller leaves and when the deadline passes.
                self._code = Code.DEADLINE_EXCEEDED if self._is_over else Code.CANCELLED
            case _:
                self._code, self._error = Code.INTERNAL, repr(error)

    @property
    def _is_over(self) -> bool:
        """Whether its deadline has passed on the caller's clock, as far as can be told."""
        deadline = self._call.deadline
        if deadline is None:
            return False
        transit = min(TRANSIT, TRANSIT_SHARE * (deadline - self._arrived))
        return time.monotonic() >= deadline - transit

    def _end_span(self) -> None:
        quota = self._call.quota
        self._span.set(
            {
                "gen_ai.operation.name": "text_completion",
                "gen_ai.request.model": self._model,
                "gen_ai.usage.input_tokens": self._prompt_tokens,
                "gen_ai.usage.output_tokens": self.generated_tokens,
                "rpc.grpc.status_code": int(self._code),
                "shaperouter.worker": self.worker,
                "shaperouter.revision": self.revision[:REVISION_DIGITS],
                **({"shaperouter.client": quota.name} if quota else {}),
            }
        )
        self._span.end(error=self._error or ("" if self._code is Code.OK else self._code.name))

    def _pay(self, kind: str, tokens: int) -> None:
        if quota := self._call.quota:
            quota.use(tokens)
            self._metrics.client_tokens.labels(quota.name, kind).inc(tokens)

    def completed(
        self, *, worker: str, timings: RunTimings | CallTimings, graphs: Sequence[GraphUse]
    ) -> None:
        """Records how the request was served, at its successful end.

        Args:
            worker: The worker that ran it.
            timings: Times that the worker measured.
            graphs: The graphs that served it; empty if the worker could not report them.
        """
        self.worker, self._timings, self._graphs = worker, timings, graphs
        metrics, model = self._metrics, self._model
        if graphs:
            metrics.queue_time.labels(model).observe(timings.queue_seconds, self._span.exemplar)
            metrics.totals[model].queued.add(timings.queue_seconds)
        for use in graphs:
            fit = TIGHT if use.asked.covers(use.served) else LOOSE
            metrics.cover_served.labels(model, use.served.kind, fit).inc(use.calls)

    def progress(self, sequence: int) -> SequenceProgress:
        """The progress of one of its sequences."""
        return self._progress[sequence]

    @property
    def route_seconds(self) -> float:
        """Seconds from its arrival until it was first sent to a worker; 0 before."""
        return 0.0 if self._first_route is None else self._first_route - self._arrived

    @property
    def time_to_first_token(self) -> float:
        """Seconds from its arrival to its first token; 0 before."""
        return 0.0 if self._first_token is None else self._first_token - self._arrived

    @property
    def total_seconds(self) -> float:
        """Seconds from its arrival to its end, or until now."""
        return (self._ended or time.monotonic()) - self._arrived

    @property
    def has_ended(self) -> bool:
        """Whether its handling has ended, so that nothing changes any more."""
        return self._ended is not None

    def summary(self) -> RequestSummary:
        """A summary of the request, as far as it is known now."""
        return RequestSummary(
            request_id=self.request_id,
            method=self._call.method,
            model=self._model,
            client=self._call.client,
            code=self._code if self.has_ended else None,
            error=shortened(self._error, MAX_ERROR_CHARACTERS),
            arrived_at=self._arrived_at,
            total_seconds=self.total_seconds,
            tokenize_seconds=self._tokenize_seconds,
            route_seconds=self.route_seconds,
            first_token_seconds=self.time_to_first_token,
            timings=self._timings if self._graphs else self._timings_so_far(),
            prompt_tokens=self._prompt_tokens,
            generated_tokens=self.generated_tokens,
            rows=self._rows,
            worker=self.worker,
            lost_workers=tuple(self._lost_workers),
            routes=tuple(self.routes),
            graphs=self._graphs,
            trace_id=self._span.ids.get("trace_id", ""),
        )

    def _timings_so_far(self) -> RunTimings:
        """The router's own measurements: the times of the sequence that took longest."""
        progress = self._progress.values()
        return RunTimings(
            stall_seconds=max((each.stall_seconds for each in progress), default=0.0),
            decode_seconds=max((each.decode_seconds for each in progress), default=0.0),
        )
