"""A run's way over workers: what it has got so far, and what is left of it for the next one."""

from shaperouter.v1 import generation_pb2, worker_pb2
from shaperouter_service.fleet.link import Loss
from shaperouter_service.routing.catalog import WorkerId
from shaperouter_service.routing.decision import Ask, Option
from shaperouter_service.rpc.status import RelayedError


class Journey:
    """One run, from its first worker to its last.

    It can go on anywhere, because what a token is depends on nothing but the request, the tokens
    before it and their number.

    Attributes:
        request: As the first worker got it.
        token_ids: What the caller has got; none with beam search, which starts over.
        ended: Whether the caller has got its end.
        lost_here: Workers that were lost with it after these very tokens.
        worker: The one it was interrupted on last.
        loss: Why; None if it was not interrupted.
        told: Whether it was said where it went from there.
        refusals: Of workers that had no room for it.
    """

    def __init__(self, request: worker_pb2.RunRequest) -> None:
        """Begins a journey."""
        self.request = request
        self.token_ids: list[int] = []
        self.ended = False
        self.lost_here = 0
        self.worker = ""
        self.loss: Loss | None = None
        self.told = False
        self.refusals: dict[WorkerId, RelayedError] = {}
        self._tokens_before = 0

    def ask(self) -> Ask:
        """What is left of it, as routing sees it."""
        made, options = len(self.token_ids), self.request.options
        return Ask(
            model=self.request.model,
            # A token that another worker has made must be read like one of the prompt.
            prompt_tokens=len(self.request.token_ids) + made,
            new_tokens=options.max_new_tokens - made,
            num_beams=options.num_beams,
            source_tokens=len(self.request.source_token_ids) or self.request.sound.places,
            aligns=self.request.HasField("alignment"),
        )

    @property
    def had_slot(self) -> bool:
        """Whether it ran on a worker that it cannot stay on.

        A run that had no token only waited there, or nearly so. Beam search has none before its
        end: it ran, as far as can be known, unless its worker gave it back.
        """
        if self.request.options.num_beams > 1:
            return self.loss not in (None, Loss.DRAINING)
        return bool(self.token_ids)

    def rest(self, option: Option) -> worker_pb2.RunRequest:
        """What is left of it for a worker to do, in the lane that was decided on."""
        rest = worker_pb2.RunRequest()
        rest.CopyFrom(self.request)
        rest.generated_token_ids.extend(self.token_ids)
        rest.lane_beams = option.decode.beams
        rest.resumed = self.had_slot
        return rest

    def got(self, response: worker_pb2.RunResponse) -> None:
        """Notes what a worker says."""
        self.token_ids += response.tokens.token_ids
        self.ended = response.HasField("completion")

    def refused(self, worker: WorkerId, error: RelayedError) -> None:
        """Notes that a worker has no room for it."""
        self.refusals[worker] = error

    def forget_refusals(self) -> RelayedError:
        """Lets it be offered to all again; returns the last refusal."""
        *_, last = self.refusals.values()
        self.refusals.clear()
        return last

    def interrupted(self, worker: str, loss: Loss) -> None:
        """Notes that it cannot stay on a worker."""
        self.worker, self.loss, self.told = worker, loss, False
        if len(self.token_ids) > self._tokens_before:
            self.lost_here = 0
        # A worker that gives a run back is well.
        if loss is not Loss.DRAINING:
            self.lost_here += 1
        self._tokens_before = len(self.token_ids)

    def end(self) -> worker_pb2.RunResponse | None:
        """The end, if nothing was lost but the word of it; what only the worker knew is left out.

        None if there is more to do.
        """
        options = self.request.options
        if not self.token_ids:
            return None
        if self.token_ids[-1] in options.eos_token_ids:
            reason = generation_pb2.FINISH_REASON_EOS
        elif len(self.token_ids) == options.max_new_tokens:
            reason = generation_pb2.FINISH_REASON_LENGTH
        else:
            return None
        return worker_pb2.RunResponse(completion=worker_pb2.RunCompletion(finish_reason=reason))
