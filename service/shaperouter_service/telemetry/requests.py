"""What happened to each request: metrics, and one line in the log at its end.

==================== ============================================================
event                when
==================== ============================================================
arrived              the router has read the message
first token          the router has the first token
end                  the router has said its last word, or the caller has gone
==================== ============================================================

Time to first token and end-to-end latency are differences of these; queue time is measured by the
worker, between the run's arrival there and its slot.
"""

import itertools
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Self

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from shaperouter_service.errors import Code
from shaperouter_service.generation.run_events import GraphUse, RunTimings
from shaperouter_service.routing.decision import Decision
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.rpc.call import current_call
from shaperouter_service.telemetry.payer import current_payer
from shaperouter_service.telemetry.progress import SequenceProgress
from shaperouter_service.telemetry.refusals import LEVELS, RefusalLog
from shaperouter_service.telemetry.tracing import start_span

log = structlog.get_logger("shaperouter.request")

# Seconds. From a warm tiny model to a cold start on a large one.
_LATENCY_BOUNDS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300,
)  # fmt: skip
# Seconds. From a short text to the longest ones of several clients.
_TOKENIZE_BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
)  # fmt: skip
# Seconds. From a tiny model to one slower than anybody reads.
_TOKEN_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2.5)


# The model of requests that name one which is not served: a closed label, whatever they wrote. No
# model can have this name.
UNKNOWN_MODEL = "(unknown)"


# Whether a graph was no larger than what was asked for.
FITS = TIGHT, LOOSE = "tight", "loose"


class RequestMetrics:
    """The metrics that are made of requests, for one router."""

    def __init__(
        self, registry: CollectorRegistry, models: Iterable[str], refusals: RefusalLog
    ) -> None:
        """Registers them.

        Args:
            registry: Where they are shown.
            models: That are served. Theirs begin at zero now, not with the first event: a rate
                does not see what a series begins with.
            refusals: Writes the lines of requests that no worker was given.
        """
        self.refusals = refusals
        by_model = ["model"]
        self.requests = Counter(
            "shaperouter_requests",
            "Requests that have ended, by gRPC status code.",
            ["model", "code"],
            registry=registry,
        )
        self.client_requests = Counter(
            "shaperouter_client_requests",
            "Requests that have ended, by the client whose token they carried and by gRPC status "
            "code.",
            ["client", "code"],
            registry=registry,
        )
        self.client_tokens = Counter(
            "shaperouter_client_tokens",
            "Tokens that the requests of a client used: read from prompts and sources (prompt), "
            "or generated (generation).",
            ["client", "kind"],
            registry=registry,
        )
        self.running = Gauge(
            "shaperouter_num_requests_running",
            "Requests that have produced a first token and are still running.",
            by_model,
            registry=registry,
        )
        self.waiting = Gauge(
            "shaperouter_num_requests_waiting",
            "Requests that have not produced a first token.",
            by_model,
            registry=registry,
        )
        self.queue_time = Histogram(
            "shaperouter_request_queue_time_seconds",
            "Time from a request's arrival at the worker until it got a slot, without stalls, "
            "in seconds. Failed requests, and those whose sequences were all ended by stop "
            "strings, are not counted.",
            by_model,
            buckets=_LATENCY_BOUNDS,
            registry=registry,
        )
        self.tokenize_queue_time = Histogram(
            "shaperouter_tokenize_queue_time_seconds",
            "Time that the texts of a request waited to be tokenized, in seconds.",
            by_model,
            buckets=_TOKENIZE_BOUNDS,
            registry=registry,
        )
        self.tokenize_time = Histogram(
            "shaperouter_tokenize_time_seconds",
            "Time that it took to tokenize the texts of a request, in seconds.",
            by_model,
            buckets=_TOKENIZE_BOUNDS,
            registry=registry,
        )
        self.time_to_first_token = Histogram(
            "shaperouter_time_to_first_token_seconds",
            "Time from a request's arrival at the router to its first token, in seconds.",
            by_model,
            buckets=_LATENCY_BOUNDS,
            registry=registry,
        )
        self.inter_token_latency = Histogram(
            "shaperouter_inter_token_latency_seconds",
            "Time between consecutive tokens of a sequence, in seconds. The time of a chunk is "
            "divided equally among its tokens.",
            by_model,
            buckets=_TOKEN_BOUNDS,
            registry=registry,
        )
        self.e2e_latency = Histogram(
            "shaperouter_e2e_request_latency_seconds",
            "Time from a request's arrival at the router to its end, in seconds.",
            by_model,
            buckets=_LATENCY_BOUNDS,
            registry=registry,
        )
        self.prompt_tokens = Counter(
            "shaperouter_prompt_tokens",
            "Tokens read from prompts and sources.",
            by_model,
            registry=registry,
        )
        self.generation_tokens = Counter(
            "shaperouter_generation_tokens", "Tokens generated.", by_model, registry=registry
        )
        self.cover_served = Counter(
            "shaperouter_cover_served",
            "Calls of graphs, counted once for each request that they served: tight if the "
            "graph was no larger than the signature asked for, else loose. Failed requests, and "
            "sequences that a stop string ended, are not counted.",
            ["model", "kind", "fit"],
            registry=registry,
        )
        for model in models:
            self._begin(model)
        self.waiting.labels(UNKNOWN_MODEL)
        for code in Code:
            self.requests.labels(UNKNOWN_MODEL, code.name)

    def _begin(self, model: str) -> None:
        for metric in (
            self.running,
            self.waiting,
            self.queue_time,
            self.tokenize_queue_time,
            self.tokenize_time,
            self.time_to_first_token,
            self.inter_token_latency,
            self.e2e_latency,
            self.prompt_tokens,
            self.generation_tokens,
        ):
            metric.labels(model)
        for code in Code:
            self.requests.labels(model, code.name)
        for kind, fit in itertools.product(GraphKind, FITS):
            self.cover_served.labels(model, kind, fit)


class RequestRecord:
    """One request's events, as they happen; a context manager around its handling.

    Attributes:
        request_id: Given at its arrival.
        code: How it ended; set before leaving the context otherwise than well.
        error: What was wrong, if anything was.
        generated_tokens: Tokens that have come, of all sequences.
        worker: That runs it, or the first of its sequences; empty before one does.
        routes: The decisions on where its runs went, in order.
    """

    def __init__(self, metrics: RequestMetrics, request_id: str) -> None:
        """The request arrives."""
        self.request_id = request_id
        self.code = Code.OK
        self.error = ""
        self.worker = ""
        self.routes: list[Decision] = []
        self._metrics = metrics
        self._payer = current_payer.get()
        self._span = start_span("", {"shaperouter.request_id": request_id})
        # It waits, if only for workers that tell which model serves a request that names none: an
        # autoscaler must see it.
        self._model = UNKNOWN_MODEL
        metrics.waiting.labels(UNKNOWN_MODEL).inc()
        self._arrived = time.monotonic()
        self._first_route: float | None = None
        self._first_token: float | None = None
        self._prompt_tokens = 0
        self._tokenize_seconds = 0.0
        self.generated_tokens = 0
        self._timings = RunTimings()
        self._graphs: Sequence[GraphUse] = ()
        self._progress: defaultdict[int, SequenceProgress] = defaultdict(SequenceProgress)

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def waits(self, model: str) -> None:
        """Its model is known, and it waits for its first token as one of that model."""
        self._metrics.waiting.labels(self._model).dec()
        self._model = model
        self._metrics.waiting.labels(model).inc()

    def __exit__(self, *_: object) -> None:
        """It has ended."""
        metrics, model = self._metrics, self._model
        if self._first_token is not None:
            metrics.running.labels(model).dec()
        else:
            metrics.waiting.labels(model).dec()
        metrics.requests.labels(model, self.code.name).inc()
        metrics.e2e_latency.labels(model).observe(self.total_seconds, self._span.exemplar)
        if self._payer:
            metrics.client_requests.labels(self._payer.name, self.code.name).inc()
        for progress in self._progress.values():
            progress.resumes()
        stalls = (progress.stall_seconds for progress in self._progress.values())
        fields: dict[str, Any] = {
            "request_id": self.request_id,
            "model": model,
            "code": self.code.name,
            "prompt_tokens": self._prompt_tokens,
            "tokenize_seconds": round(self._tokenize_seconds, 4),
            "generated_tokens": self.generated_tokens,
            "first_token_seconds": round(self.time_to_first_token, 4),
            "total_seconds": round(self.total_seconds, 4),
            "stall_seconds": round(max(stalls, default=0.0), 4),
            "worker": self.worker,
        }
        if self._payer:
            fields["client"] = self._payer.name
        if self.routes:
            fields["route"] = str(self.routes[0].taken)
            fields["route_seconds"] = round(self.route_seconds, 4)
        if self._graphs:
            # What only the worker knows, and tells at a good end: just what the response says.
            for part in ("queue", "stall", "prefill", "decode"):
                fields[f"{part}_seconds"] = round(getattr(self._timings, f"{part}_seconds"), 4)
            fields["graphs"] = [str(use.served) for use in self._graphs]
        if self.error:
            fields["error"] = self.error
        self._end_span()
        if call := current_call.get():
            call.logged = True
        if self.code is Code.OK or self.routes:
            log.log(LEVELS.get(self.code, logging.INFO), "request", **fields)
        else:
            self._metrics.refusals.write(self.code, "request", fields)

    def tokenized(self, *, queue_seconds: float, seconds: float) -> None:
        """Its texts, if there are any, have been tokenized, or it has ended before."""
        if queue_seconds or seconds:
            self._tokenize_seconds = queue_seconds + seconds
            self._metrics.tokenize_queue_time.labels(self._model).observe(
                queue_seconds, self._span.exemplar
            )
            self._metrics.tokenize_time.labels(self._model).observe(seconds, self._span.exemplar)

    def prompt(self, tokens: int) -> None:
        """Its prompt, and its source if there is one, have been tokenized and found good."""
        self._prompt_tokens = tokens
        self._metrics.prompt_tokens.labels(self._model).inc(tokens)
        self._pay("prompt", tokens)

    def routed(self, decision: Decision) -> None:
        """A run of it was given to a worker."""
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
                    "shaperouter.expected.prefill_seconds": taken.prefill_seconds,
                    "shaperouter.expected.decode_seconds": taken.decode_seconds,
                    "shaperouter.options": len(decision.options),
                },
            )

    def stalls(self, sequence: int = 0) -> None:
        """A sequence waits for a compilation from now on."""
        self._progress[sequence].stalls()
        self._span.event("stall")

    def tokens(self, count: int, sequence: int = 0) -> None:
        """A sequence has new tokens."""
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
            histogram = metrics.inter_token_latency.labels(model)
            for _ in range(count):
                histogram.observe(since / count)
        self.generated_tokens += count
        metrics.generation_tokens.labels(model).inc(count)
        self._pay("generation", count)

    def _end_span(self) -> None:
        self._span.set(
            {
                "gen_ai.operation.name": "text_completion",
                "gen_ai.request.model": self._model,
                "gen_ai.usage.input_tokens": self._prompt_tokens,
                "gen_ai.usage.output_tokens": self.generated_tokens,
                "rpc.grpc.status_code": self.code.value,
                "shaperouter.worker": self.worker,
                **({"shaperouter.client": self._payer.name} if self._payer else {}),
            }
        )
        self._span.end(error=self.error or ("" if self.code is Code.OK else self.code.name))

    def _pay(self, kind: str, tokens: int) -> None:
        if self._payer:
            self._payer.use(tokens)
            self._metrics.client_tokens.labels(self._payer.name, kind).inc(tokens)

    def completed(self, *, worker: str, timings: RunTimings, graphs: Sequence[GraphUse]) -> None:
        """It has ended well.

        Args:
            worker: The worker that ran it.
            timings: Times that the worker measured.
            graphs: The graphs that served it; empty if the worker could not report them.
        """
        self.worker, self._timings, self._graphs = worker, timings, graphs
        metrics, model = self._metrics, self._model
        if graphs:
            metrics.queue_time.labels(model).observe(timings.queue_seconds, self._span.exemplar)
        for use in graphs:
            fit = TIGHT if use.asked.covers(use.served) else LOOSE
            metrics.cover_served.labels(model, use.served.kind, fit).inc(use.calls)

    def progress(self, sequence: int) -> SequenceProgress:
        """What is known of one of its sequences."""
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
        """Seconds since its arrival."""
        return time.monotonic() - self._arrived
