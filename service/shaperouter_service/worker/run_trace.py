"""The trace of a run on a worker, built from its events and timings."""

import time

from shaperouter_service.generation.run_events import NewTokens, Stalled
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.telemetry.tracing import start_span
from shaperouter_service.worker.run import Event, Run


class RunTrace:
    """One run's span and its parts. Only the event loop may use it; idle without tracing."""

    def __init__(self, run: Run, model: str) -> None:
        """Starts the span of a run, as part of the current call."""
        self._run = run
        self._span = start_span(
            "run",
            {
                "gen_ai.request.model": model,
                "shaperouter.request_id": run.request_id,
                "shaperouter.resumed": run.resumed,
            },
            # The run may already be on the device, and its parts begin at its arrival.
            start=run.timings.arrived,
        )
        # The graph that the run waits for, and since when.
        self._stall: tuple[Signature, float] | None = None

    def note(self, event: Event) -> None:
        """Records an event of the run."""
        if not self._span:
            return
        self._end_stall()
        if isinstance(event, Stalled):
            self._stall = event.signature, time.monotonic()
        elif isinstance(event, NewTokens):
            self._span.event("chunk", {"shaperouter.tokens": len(event.token_ids)})

    def end(self, error: str = "") -> None:
        """Ends the span of a run that has ended or was abandoned, with the parts it reached."""
        if not self._span:
            return
        self._end_stall()
        timings, now = self._run.timings, time.monotonic()
        admitted = timings.admitted or now
        self._span.part("queue", timings.arrived, admitted)
        if timings.prefill_started:
            self._span.part("prefill", timings.prefill_started, timings.first_token or now)
        if timings.first_token:
            self._span.part("decode", timings.first_token, timings.ended or now)
        self._span.set(
            {
                "gen_ai.usage.input_tokens": len(self._run.token_ids),
                "gen_ai.usage.output_tokens": self._run.generated,
                "shaperouter.graphs": [str(use.served) for use in self._run.uses.values()],
            }
        )
        self._span.end(error=error)

    def _end_stall(self) -> None:
        if self._stall is not None:
            signature, since = self._stall
            self._stall = None
            # A stall before prefill ends with it, but no event says so.
            until = self._run.timings.prefill_started
            end = until if until > since else time.monotonic()
            self._span.part("stall", since, end, {"shaperouter.graph": str(signature)})
