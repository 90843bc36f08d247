"""A run's attempts on workers: what it has produced, and what is left for the next worker."""

import dataclasses
from collections.abc import Sequence

from shaperouter_service.errors import RelayedError
from shaperouter_service.fleet.link import Loss
from shaperouter_service.generation.run_events import (
    FinishReason,
    Isolated,
    NewTokens,
    PromptLogprobs,
    RunCompletion,
    RunEvent,
    Stalled,
)
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.routing.decision import Option, RequestShape
from shaperouter_service.routing.prefixes import BLOCK, block_keys
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import WorkerId

# After so many workers are lost with a run at the same token, the run is a suspect. A run's tokens
# are deterministic, so one that kills workers always does so at the same token; an innocent one
# gets further.
LOSSES_OF_SUSPECTS = 2

# After so many workers are lost with a suspect that was alone on the device at that token, it is
# the cause. A single loss may be a coincidence, such as an operator who kills the worker at that
# moment.
LOSSES_OF_CAUSES = 2


class RunAttempts:
    """One run, from its first worker to its last.

    It can continue on any worker, because a token depends only on the request, the tokens before it
    and their number.

    Attributes:
        request: The run as sent to the first worker.
        token_ids: Tokens that the caller has received; none with beam search, which starts again.
        scored_tokens: Number of log-probabilities of the prompt that the caller has received.
        lost_here: Workers that were lost with it after exactly these tokens and log-probabilities.
        lost_isolated: Number of these workers on which it was alone on the device.
        worker: The worker on which it was last interrupted.
        loss: Why it was interrupted; None if it was not.
        is_logged: Whether its next worker has been logged.
        refusals: Refusals of workers without room for it.
        revision: Digest of the model's files on the worker that it was last given to; empty if that
            worker does not report it.
        stalled_on: The graph whose compilation it waits for; None if it waits for none.
    """

    def __init__(self, request: RunRequest) -> None:
        """Starts without attempts."""
        self.request = request
        self.token_ids: list[int] = []
        self.scored_tokens = 0
        self.lost_here = 0
        self.lost_isolated = 0
        self.worker = ""
        self.loss: Loss | None = None
        self.is_logged = False
        self.refusals: dict[WorkerId, RelayedError] = {}
        self.revision = ""
        self.stalled_on: Signature | None = None
        self._keys: Sequence[bytes] = ()
        self._progress_before = 0
        self._is_isolated = False

    def remaining(self) -> RequestShape:
        """The remaining work, for routing."""
        request, made = self.request, len(self.token_ids)
        sound = request.sound
        return RequestShape(
            model=request.model,
            # A token from another worker must be read like one of the prompt.
            prompt_tokens=len(request.token_ids) + made,
            new_tokens=request.options["max_new_tokens"] - made,
            num_beams=request.options["num_beams"],
            source_tokens=sound.positions if sound else len(request.source_token_ids),
            aligns=request.align_after is not None,
            scores=self._scores,
            prefix_keys=self._prefix_keys(),
            expected_tokens=self._expected(request.options["max_new_tokens"] - made, made),
        )

    def _expected(self, left: int, made: int) -> int:
        """Tokens that are expected beyond those that were made; see `RequestShape`."""
        expected = self.request.expected_tokens
        # One that takes longer than was expected may take as long again.
        return expected - made if made < expected else min(left, expected)

    def _prefix_keys(self) -> Sequence[bytes]:
        """Keys of the blocks of its tokens that a worker may have cached."""
        request = self.request
        if request.source_token_ids or request.sound is not None or self._scores:
            return ()
        tokens = len(request.token_ids) + len(self.token_ids)
        if len(self._keys) < tokens // BLOCK:
            sequence = [*request.token_ids, *self.token_ids]
            self._keys = block_keys(request.model, request.prefix_scope, sequence)
        return self._keys

    @property
    def _scores(self) -> bool:
        """Whether the caller still waits for log-probabilities of the prompt."""
        request = self.request
        is_asked = request.options["prompt_logprobs"] is not None
        return is_asked and self.scored_tokens < len(request.token_ids) - 1

    @property
    def _progress(self) -> int:
        """Grows with what the caller receives."""
        return self.scored_tokens + len(self.token_ids)

    @property
    def needed_revision(self) -> str:
        """Digest of the files that must generate the rest; empty for any.

        Another revision would continue the text of this one. A run without tokens begins anew.
        """
        return self.revision if self._progress else ""

    @property
    def had_slot(self) -> bool:
        """Whether it had a slot on a worker that it had to leave.

        A run without tokens was only waiting there, or almost. Beam search has no tokens before its
        end, so it counts as having run, unless its worker returned it.
        """
        if self.request.options["num_beams"] > 1:
            return self.loss not in (None, Loss.DRAINING)
        return self._progress > 0

    @property
    def is_suspect(self) -> bool:
        """Whether it may be killing workers, so that it must run alone."""
        return self.lost_here >= LOSSES_OF_SUSPECTS

    @property
    def is_cause(self) -> bool:
        """Whether it kills workers."""
        return self.lost_isolated >= LOSSES_OF_CAUSES

    def next_request(self, option: Option) -> RunRequest:
        """The remaining work as a request to a worker, in the chosen lane."""
        options = self.request.options
        if options["prompt_logprobs"] is not None and not self._scores:
            options = {**options, "prompt_logprobs": None}
        return dataclasses.replace(
            self.request,
            options=options,
            scored_tokens=self.scored_tokens,
            generated_token_ids=(*self.request.generated_token_ids, *self.token_ids),
            lane_beams=option.beams,
            resumed=self.had_slot,
            suspect=self.is_suspect,
            revision=self.revision,
        )

    def record(self, event: RunEvent) -> None:
        """Records a worker's event."""
        # A suspect is isolated until its next event.
        self._is_isolated = isinstance(event, Isolated)
        self.stalled_on = event.signature if isinstance(event, Stalled) else None
        if isinstance(event, NewTokens):
            self.token_ids += event.token_ids
        elif isinstance(event, PromptLogprobs):
            self.scored_tokens += len(event.logprobs)

    def record_refusal(self, worker: WorkerId, error: RelayedError) -> None:
        """Records that a worker has no room for it."""
        self.refusals[worker] = error

    def forget_refusals(self) -> RelayedError:
        """Clears the refusals, so that all workers may be tried again; returns the last one."""
        *_, last = self.refusals.values()
        self.refusals.clear()
        return last

    def record_loss(self, worker: str, loss: Loss) -> None:
        """Records that it cannot stay on a worker."""
        self.worker, self.loss, self.is_logged = worker, loss, False
        self.stalled_on = None
        if self._progress > self._progress_before:
            self.lost_here = self.lost_isolated = 0
        # A worker that returns a run is healthy.
        if loss is not Loss.DRAINING:
            self.lost_here += 1
            self.lost_isolated += self._is_isolated
        self._is_isolated = False
        self._progress_before = self._progress

    def completion(self) -> RunCompletion | None:
        """The end of a run whose worker was lost after its last token.

        It lacks the facts that only the worker knew. None if there is more to generate.
        """
        options = self.request.options
        if self.request.align_after is not None or self._scores:
            return None
        if self.token_ids and self.token_ids[-1] in options["eos_token_ids"]:
            return RunCompletion(finish_reason=FinishReason.EOS)
        if len(self.token_ids) == options["max_new_tokens"]:
            return RunCompletion(finish_reason=FinishReason.LENGTH)
        return None
