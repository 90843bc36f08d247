"""A run that loses workers, explored by a state machine: any order of losses, refusals, tokens.

The fleet and all that it decides with are the service's own; only the workers are played. Each
played worker honours the contract of workers: it continues after the tokens in its request.
"""

from __future__ import annotations

from collections.abc import Sequence
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from prometheus_client import CollectorRegistry

from harness.fake_link import FakeLink, FakeRun
from harness.routing import LADDERS, MODEL, decode
from harness.virtual_time import VirtualLoop
from shaperouter_service.errors import DeadlyRequestError, QueueFullError, RelayedError
from shaperouter_service.fleet import Fleet, OverloadGuard, connections
from shaperouter_service.fleet.deadlines import QUEUE_PAUSE
from shaperouter_service.fleet.link import Loss, RunInterruptedError
from shaperouter_service.generation.resolution import neutral_options
from shaperouter_service.generation.run_events import (
    FinishReason,
    Hypothesis,
    Isolated,
    NewTokens,
    PromptLogprobs,
    RunCompletion,
    RunEvent,
    Stalled,
    TokenLogprobs,
)
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.snapshots import LaneReport, Snapshot
from shaperouter_service.telemetry.fleet import FleetMetrics

EOS, FIRST_TOKEN, PROMPT = 0, 100, (1, 2, 3, 4)
WORKERS = ("worker-0", "worker-1", "worker-2")
LOSSES = st.sampled_from([Loss.LOST, Loss.HUNG])
HYPOTHESIS = Hypothesis(token_ids=(7, EOS), finish_reason=FinishReason.EOS, score=-1.0)


class RunHandOver(RuleBasedStateMachine):
    """One run, its caller, and up to three workers."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.patch = mock.patch.object(connections, "WorkerLink", FakeLink)
        self.patch.start()
        self.catalog = Catalog([MODEL])
        self.overload = OverloadGuard(float("inf"))
        self.lives = 0
        self.told: list[RunEvent] = []
        self.error: Exception | None = None
        # Losses since the caller last got something, and those with the device to itself.
        self.losses = self.isolated_losses = 0
        self.is_isolated = self.was_lost = self.has_ended = False

    @initialize(
        tokens=st.integers(1, 6),
        ends_early=st.booleans(),
        scores=st.booleans(),
        beams=st.sampled_from([1, 1, 4]),
    )
    def ask(self, tokens: int, ends_early: bool, scores: bool, beams: int) -> None:
        """The caller sends its request."""
        self.beams, self.scores = beams, scores and beams == 1
        # The model's tokens, which are the same on all workers.
        self.answer = [*range(FIRST_TOKEN, FIRST_TOKEN + tokens - ends_early), EOS][:tokens]
        if not ends_early:
            self.answer = list(range(FIRST_TOKEN, FIRST_TOKEN + tokens))
        self.request = RunRequest(
            model=MODEL,
            token_ids=PROMPT,
            options=neutral_options(
                max_new_tokens=tokens,
                num_beams=beams,
                eos_token_ids=(EOS,),
                prompt_logprobs=0 if self.scores else None,
            ),
        )
        self.loop.call(self._connect())

    async def _connect(self) -> None:
        self.fleet = Fleet(
            self.catalog, metrics=FleetMetrics(CollectorRegistry()), overload=self.overload
        )
        self.fleet.set_addresses(WORKERS)
        self.links: dict[str, FakeLink] = {
            link.address: link  # type: ignore[misc]
            for link in self.fleet._watching
        }
        self.caller = self.loop.create_task(self._call())

    async def _call(self) -> None:
        try:
            async for _, event in self.fleet.run(self.request, None):
                self.told.append(event)
        except (DeadlyRequestError, RelayedError) as error:
            self.error = error

    # --- What workers do ---------------------------------------------------------------------

    @rule(name=st.sampled_from(WORKERS))
    def appear(self, name: str) -> None:
        """A process starts and reports, or reports again."""
        if not self.is_alive(name):
            self.lives += 1
        lanes = [
            LaneReport(model=MODEL, beams=lane.beams, total_slots=lane.decode_rows.maximum)
            for lane in LADDERS.lanes
        ]
        self.links[name].report(
            Snapshot(
                worker=name,
                incarnation=str(self.lives),
                models=[ServedModel(name=MODEL, ladders=LADDERS, weight_bytes=1)],
                lanes=lanes,
                warm=True,
            )
        )
        self.loop.settle()

    @precondition(lambda self: self.run is not None)
    @rule(count=st.integers(1, 3))
    def advance(self, count: int) -> None:
        """The worker scores the prompt, or generates some tokens; after the last, it ends."""
        run = self.run
        assert run
        request = run.request
        self.is_isolated = False
        if self.beams > 1:
            run.send(self._completion(hypotheses=[HYPOTHESIS]))
        elif request.options["prompt_logprobs"] is not None and self.unscored(request):
            new = self.unscored(request)[:count]
            run.send(PromptLogprobs(tuple(TokenLogprobs(token, -1.0) for token in new)))
            self._progressed()
        else:
            made = len(request.generated_token_ids) + len(self.since(request))
            new = self.answer[made : made + count]
            run.send(NewTokens(new))
            self._progressed()
            if made + len(new) == len(self.answer):
                run.send(self._completion())
        self.loop.settle()

    def _completion(self, hypotheses: Sequence[Hypothesis] = ()) -> RunCompletion:
        self.has_ended = True
        return RunCompletion(finish_reason=FinishReason.EOS, hypotheses=hypotheses)

    def _progressed(self) -> None:
        self.losses = self.isolated_losses = 0

    @precondition(lambda self: self.run is not None and self.beams == 1)
    @rule(loss=LOSSES)
    def die_after_the_last_token(self, loss: Loss) -> None:
        """The worker generates all tokens, and is lost before it says that they were the last."""
        run = self.run
        assert run
        if self.unscored(run.request) and run.request.options["prompt_logprobs"] is not None:
            return
        made = len(run.request.generated_token_ids) + len(self.since(run.request))
        if made == len(self.answer):
            return
        self.is_isolated = False
        run.send(NewTokens(self.answer[made:]))
        self.loop.settle()
        self._progressed()
        self._end_process(self.holder, loss)
        assert self.caller.done()

    @precondition(lambda self: self.run is not None)
    @rule()
    def stall(self) -> None:
        """The worker reports that the run waits for a graph."""
        assert self.run
        self.is_isolated = False
        self.run.send(Stalled(decode(1, 64)))
        self.loop.settle()

    @precondition(lambda self: self.run is not None and self.run.request.suspect)
    @rule()
    def isolate(self) -> None:
        """The worker gives a suspect the device to itself."""
        assert self.run
        self.is_isolated = True
        self.run.send(Isolated())
        self.loop.settle()

    @precondition(lambda self: self.run is not None)
    @rule(loss=LOSSES, learns_first=st.booleans())
    def die_with_the_run(self, loss: Loss, learns_first: bool) -> None:
        """The process ends; the run or the stream of snapshots learns of it first."""
        self._end_process(self.holder, loss, learns_first=learns_first)

    @precondition(lambda self: self.run is not None)
    @rule()
    def give_back(self) -> None:
        """The worker drains and returns the run."""
        self._end_process(self.holder, Loss.DRAINING)

    @rule(name=st.sampled_from(WORKERS), loss=st.sampled_from(list(Loss)))
    def die_idle(self, name: str, loss: Loss) -> None:
        """A worker without the run ends."""
        if self.is_alive(name) and not self.links[name].runs:
            self._end_process(name, loss)

    @precondition(lambda self: self.run is not None and not self.received_here)
    @rule()
    def refuse(self) -> None:
        """The worker's queue is full."""
        assert self.run
        refusal = QueueFullError(MODEL, 1)
        self.is_isolated = False
        self.run.send(RelayedError(refusal.code, str(refusal), reason=refusal.reason))
        self.loop.settle()

    @rule()
    def wait(self) -> None:
        """Time passes."""
        self.loop.pass_time(2 * QUEUE_PAUSE)

    def _end_process(self, name: str, loss: Loss, *, learns_first: bool = False) -> None:
        link, (*runs,) = self.links[name], self.links[name].runs
        if runs:
            self.was_lost = True
            if loss is not Loss.DRAINING:
                self.losses += 1
                self.isolated_losses += self.is_isolated
        self.is_isolated = False
        for run in runs if learns_first else []:
            run.send(RunInterruptedError(name, loss))
            self.loop.settle()
        link.lose(loss)
        for run in [] if learns_first else runs:
            run.send(RunInterruptedError(name, loss))
        self.loop.settle()

    # --- What must hold ----------------------------------------------------------------------

    @property
    def run(self) -> FakeRun | None:
        """The run on the worker that has it."""
        found = [run for link in self.links.values() for run in link.runs]
        assert len(found) <= 1, "two workers have the run"
        return found[0] if found else None

    @property
    def holder(self) -> str:
        return next(name for name, link in self.links.items() if link.runs)

    def is_alive(self, name: str) -> bool:
        return self.links[name] in self.fleet._workers  # type: ignore[comparison-overlap]

    @property
    def tokens(self) -> list[int]:
        """The tokens that the caller has."""
        new = (event.token_ids for event in self.told if isinstance(event, NewTokens))
        return [token for token_ids in new for token in token_ids]

    @property
    def scored(self) -> list[int]:
        """The tokens of the prompt whose log-probabilities the caller has."""
        new = (event.logprobs for event in self.told if isinstance(event, PromptLogprobs))
        return [logprob.token_id for logprobs in new for logprob in logprobs]

    def since(self, request: RunRequest) -> list[int]:
        """The tokens that the caller got from the worker of a request."""
        return self.tokens[len(request.generated_token_ids) :]

    def unscored(self, request: RunRequest) -> Sequence[int]:
        """The tokens of the prompt that a worker still has to score."""
        return PROMPT[1 + len(self.scored) :]

    @property
    def received_here(self) -> bool:
        """Whether the caller has got something from the present worker."""
        assert self.run
        request = self.run.request
        return bool(self.since(request)) or len(self.scored) > request.scored_tokens

    @invariant()
    def the_caller_has_each_token_once(self) -> None:
        if not hasattr(self, "answer"):
            return
        assert self.tokens == self.answer[: len(self.tokens)]
        assert tuple(self.scored) == PROMPT[1 : 1 + len(self.scored)]
        assert not any(isinstance(event, Isolated) for event in self.told)

    @invariant()
    def a_worker_is_asked_for_what_is_left(self) -> None:
        if not hasattr(self, "answer") or self.run is None or self.received_here:
            return
        request = self.run.request
        assert list(request.generated_token_ids) == ([] if self.beams > 1 else self.tokens)
        # Workers refuse both.
        assert len(request.generated_token_ids) < self.request.options["max_new_tokens"]
        assert EOS not in request.generated_token_ids
        assert request.scored_tokens == len(self.scored)
        is_scoring = request.options["prompt_logprobs"] is not None
        assert is_scoring == (self.scores and bool(self.unscored(request)))
        assert request.suspect == (self.losses >= 2)
        if self.tokens or self.scored:
            assert request.resumed

    @invariant()
    def the_run_ends_as_it_may(self) -> None:
        if not hasattr(self, "answer") or not self.caller.done():
            return
        if isinstance(self.error, DeadlyRequestError):
            assert self.isolated_losses >= 2
        elif isinstance(self.error, RelayedError):
            assert not self.was_lost, "a run that had a worker must not be refused"
        else:
            (end,) = (event for event in self.told if isinstance(event, RunCompletion))
            assert self.told[-1] is end
            assert self.beams > 1 or self.tokens == self.answer

    @invariant()
    def a_run_is_somewhere_while_a_worker_can_have_it(self) -> None:
        if not hasattr(self, "answer") or self.caller.done() or self.run is not None:
            return
        # Those that refused it are asked again after a pause.
        self.loop.pass_time(2 * QUEUE_PAUSE)
        alive = [name for name in WORKERS if self.is_alive(name)]
        assert self.run is not None or not alive

    def teardown(self) -> None:
        try:
            if hasattr(self, "answer"):
                self._finish()
        finally:
            self.loop.stop_all()
            self.patch.stop()

    def _finish(self) -> None:
        """Whatever has happened, a healthy worker finishes the run and leaves nothing behind."""
        if not self.caller.done():
            self.appear(WORKERS[0])
            self.loop.pass_time(2 * QUEUE_PAUSE)
            while self.run is not None:
                self.advance(1)
        assert self.caller.done()
        self.caller.result()
        self.the_run_ends_as_it_may()
        assert not self.overload._waiting
        assert not any(self.catalog._assigned.values())


RunHandOver.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestRunHandOver = RunHandOver.TestCase
