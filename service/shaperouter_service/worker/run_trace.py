"""The trace of a run on a worker, made of what happens to it anyway."""

import time

from shaperouter_service.generation.run_events import NewTokens, Stalled
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.telemetry.tracing import start_span
from shaperouter_service.worker.run import Event, Run


class RunTrace:
    """One run's span and its parts. Belongs to the event loop; idle where nothing is traced."""

    def __init__(self, run: Run, model: str) -> None:
        """The run has come, as part of a call."""
        self._run = run
        self._span = start_span(
            "run",
            {
                "gen_ai.request.model": model,
                "shaperouter.request_id": run.request_id,
                "shaperouter.resumed": run.resumed,
            },
            # Its parts begin then, and the device may have been at it for a while.
            start=run.timings.arrived,
        )
        # The graph that it waits for, and since when.
        self._stall: tuple[Signature, float] | None = None

    def note(self, event: Event) -> None:
        """Something has happened to it."""
        if not self._span:
            return
        self._end_stall()
        if isinstance(event, Stalled):
            self._stall = event.signature, time.monotonic()
        elif isinstance(event, NewTokens):
            self._span.event("chunk", {"shaperouter.tokens": len(event.token_ids)})

    def end(self, error: str = "") -> None:
        """It has ended, or nobody waits for it any more: the parts are those that it came to."""
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
            # Before the first token nothing is heard of its prefill, with which the stall ended.
            until = self._run.timings.prefill_started
            end = until if until > since else time.monotonic()
            self._span.part("stall", since, end, {"shaperouter.graph": str(signature)})
