"""Metrics of requests.

==================== ============================================================
event                when
==================== ============================================================
arrived              the router has read the request
first token          the router has the first token
end                  the router has sent its last event, or the caller has left
==================== ============================================================

Time to first token and end-to-end latency are differences of these; queue time is measured by the
worker, between the run's arrival there and its slot.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from shaperouter_service.errors import Code
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.telemetry.request_totals import RequestTotals
from shaperouter_service.telemetry.revisions import RevisionSeries
from shaperouter_service.telemetry.series import RepeatedHistogram, remember_series, remove_series

# Seconds. From a warm tiny model to a cold start on a large one.
_LATENCY_BOUNDS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300,
)  # fmt: skip
# Seconds. From a short text to the longest ones of several clients.
_TOKENIZE_BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
)  # fmt: skip
# Seconds. From a tiny model to one that generates more slowly than people read.
_TOKEN_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2.5)


# The label of requests whose model is not served, whatever name they gave. No model can have it.
UNKNOWN_MODEL = "(unknown)"


# Whether a graph was no larger than requested.
FITS = TIGHT, LOOSE = "tight", "loose"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """Counts of all models together, since the router started.

    Attributes:
        prompt_tokens: Tokens read from prompts and sources.
        generated_tokens: Tokens generated.
        ended: Requests that have ended.
        waiting: Requests that have not produced a first token.
        running: Requests that have produced a first token and are still running.
    """

    prompt_tokens: int
    generated_tokens: int
    ended: int
    waiting: int
    running: int


class RequestMetrics:
    """The metrics of one router's requests.

    Attributes:
        totals: Totals of the requests of each served model.
        revisions: Metrics by revision.
    """

    def __init__(self, registry: CollectorRegistry, models: Iterable[str]) -> None:
        """Registers the metrics.

        Args:
            registry: The registry of the metrics.
            models: The served models. Their series begin at zero now, not with the first event,
                because a rate does not see the value that a series begins with.
        """
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, labelnames=["model"], registry=registry)
        histogram = partial(Histogram, labelnames=["model"], registry=registry)
        latency = partial(histogram, buckets=_LATENCY_BOUNDS)
        self.requests = counter(
            "shaperouter_requests",
            "Requests that have ended, by gRPC status code.",
            ["model", "code"],
        )
        self.client_requests = counter(
            "shaperouter_client_requests",
            "Requests that have ended, by the client whose token they carried and by gRPC status "
            "code.",
            ["client", "code"],
        )
        self.client_tokens = counter(
            "shaperouter_client_tokens",
            "Tokens that the requests of a client used: read from prompts and sources (prompt), "
            "or generated (generation).",
            ["client", "kind"],
        )
        self.running = gauge(
            "shaperouter_num_requests_running",
            "Requests that have produced a first token and are still running.",
        )
        self.waiting = gauge(
            "shaperouter_num_requests_waiting",
            "Requests that have not produced a first token.",
        )
        self.queue_time = latency(
            "shaperouter_request_queue_time_seconds",
            "Time from a request's arrival at the worker until it got a slot, without stalls, "
            "in seconds. Failed requests, and those whose sequences were all ended by stop "
            "strings, are not counted.",
        )
        self.tokenize_queue_time = histogram(
            "shaperouter_tokenize_queue_time_seconds",
            "Time that the texts of a request waited to be tokenized, in seconds.",
            buckets=_TOKENIZE_BOUNDS,
        )
        self.tokenize_time = histogram(
            "shaperouter_tokenize_time_seconds",
            "Time that it took to tokenize the texts of a request, in seconds.",
            buckets=_TOKENIZE_BOUNDS,
        )
        self.time_to_first_token = latency(
            "shaperouter_time_to_first_token_seconds",
            "Time from a request's arrival at the router to its first token, in seconds.",
        )
        self.inter_token_latency = RepeatedHistogram(
            "shaperouter_inter_token_latency_seconds",
            "Time between consecutive tokens of a sequence, in seconds. The time of a chunk is "
            "divided equally among its tokens.",
            labelnames=["model"],
            buckets=_TOKEN_BOUNDS,
            registry=registry,
        )
        self.e2e_latency = latency(
            "shaperouter_e2e_request_latency_seconds",
            "Time from a request's arrival at the router to its end, in seconds.",
        )
        self.prompt_tokens = counter(
            "shaperouter_prompt_tokens", "Tokens read from prompts and sources.", ["model"]
        )
        self.generation_tokens = counter(
            "shaperouter_generation_tokens", "Tokens generated.", ["model"]
        )
        self.cover_served = counter(
            "shaperouter_cover_served",
            "Calls of graphs, counted once for each request that they served: tight if the "
            "graph was no larger than the signature asked for, else loose. Failed requests, and "
            "sequences that a stop string ended, are not counted.",
            ["model", "kind", "fit"],
        )
        remember_series(vars(self).values())
        self.totals: dict[str, RequestTotals] = {}
        self.revisions = RevisionSeries(registry)
        # What counters had counted for models whose series were removed.
        self._removed = defaultdict[Counter, int](int)
        for model in models:
            self.begin(model)
        self.waiting.labels(UNKNOWN_MODEL)
        for code in Code:
            self.requests.labels(UNKNOWN_MODEL, code.name)

    def counts(self) -> RequestCounts:
        """The present counts of all models together."""
        return RequestCounts(
            prompt_tokens=_sum(self.prompt_tokens) + self._removed[self.prompt_tokens],
            generated_tokens=_sum(self.generation_tokens) + self._removed[self.generation_tokens],
            ended=_sum(self.requests) + self._removed[self.requests],
            waiting=_sum(self.waiting),
            running=_sum(self.running),
        )

    def begin(self, model: str) -> None:
        """Begins the series of a model at zero, if it has none."""
        if model in self.totals:
            return
        self.totals[model] = RequestTotals()
        for metric, labels in self._series(model):
            metric.labels(*labels)

    def keep(self, models: Collection[str]) -> None:
        """Ends the series of all other models; no request of these may be in progress."""
        for model in [model for model in self.totals if model not in models]:
            del self.totals[model]
            for counter in (self.prompt_tokens, self.generation_tokens, self.requests):
                self._removed[counter] += _sum(counter, model)
            for metric, labels in self._series(model):
                remove_series(metric, *labels)

    def _series(self, model: str) -> Iterator[tuple[Counter | Gauge | Histogram, tuple[str, ...]]]:
        """The metrics and labels of a model's series."""
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
            yield metric, (model,)
        for code in Code:
            yield self.requests, (model, code.name)
        for kind, fit in itertools.product(GraphKind, FITS):
            yield self.cover_served, (model, kind, fit)


def _sum(metric: Counter | Gauge, model: str | None = None) -> int:
    """The sum of a metric's series, of all models or of one."""
    return int(
        sum(
            sample.value
            for family in metric.collect()
            for sample in family.samples
            if not sample.name.endswith("_created") and model in (None, sample.labels["model"])
        )
    )
