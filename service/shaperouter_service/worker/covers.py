"""Which graphs serve the runs of a lane, and what tighter ones would have saved."""

import math
from collections import Counter
from collections.abc import Callable, Sequence

from shaperouter_service.decoding import DecodeProgram
from shaperouter_service.errors import GraphRefusedError, ServiceError
from shaperouter_service.graphs import Graph, GraphState, GraphTable, NoCover
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.worker.run import Phase, Run

# Runs move to another graph only if a step there takes less than this share of a step of their
# present one, because others may come and go that move them back.
MOVE_THRESHOLD = 0.9


class Covers:
    """Chooses the graphs of a lane's runs. Only the device thread may use it."""

    def __init__(self, model: str, ladders: Ladders, graphs: GraphTable, *, beams: int) -> None:
        """Prepares the choice for one lane.

        Args:
            model: Name of the model.
            ladders: The ladders of the model.
            graphs: The worker's graphs.
            beams: Beam width of the lane.
        """
        self._model = model
        self._ladders = ladders
        self._graphs = graphs
        self._beams = beams
        self._covers: dict[Signature, Sequence[Signature]] = {}

    def positions(self, run: Run) -> int:
        """Cache positions that a run takes if it generates all its tokens."""
        return self._ladders.positions(
            prompt_tokens=len(run.token_ids),
            new_tokens=run.max_new_tokens,
            beams=self._beams,
            source_tokens=run.source_length,
        )

    def tight_encode(self, runs: Sequence[Run]) -> Signature:
        """The tight cover for encoding the sources of these runs together."""
        longest = max(run.source_length for run in runs)
        return self._ladders.encode(self._model, rows=len(runs), source_tokens=longest)

    def tight_prefill(self, runs: Sequence[Run]) -> Signature:
        """The tight cover for reading the prompts of these runs together; all score, or none."""
        longest = max(run.read_tokens for run in runs)
        if runs[0].scores:
            return self._ladders.score(self._model, rows=len(runs), prompt_tokens=longest)
        return self._ladders.prefill(self._model, rows=len(runs), prompt_tokens=longest)

    def tight_decode(self, runs: Sequence[Run]) -> Signature:
        """The tight cover for decoding these runs together until they end."""
        length = max(map(self.positions, runs))
        return self._ladders.decode(self._model, rows=len(runs), length=length, beams=self._beams)

    def tight_align(self, run: Run) -> Signature:
        """The tight cover for aligning a run's transcript."""
        return self._ladders.align(self._model, tokens=len(run.token_ids))

    def missing(self, run: Run) -> Graph | ServiceError | None:
        """The reason why a run cannot continue: a graph that is not ready, or a permanent error.

        Requests graphs for the whole run where none covers it.
        """
        try:
            last = self._missing_align(run) if run.aligns else self._missing_decode(run)
            missing = self._missing_encode(run) or self._missing_prefill(run) or last
        except GraphRefusedError as error:
            return error
        if missing is not None and missing.has_failed:
            return missing.failure
        return missing

    def of_same_length(
        self, waiting: Sequence[Run], tight: Callable[[Sequence[Run]], Signature]
    ) -> list[Run]:
        """The first run and those that could be read in the same call, by graphs of its kind.

        Args:
            waiting: Runs with an unread source or prompt.
            tight: The tight cover of some of them: `tight_encode` or `tight_prefill`.
        """
        first = tight(waiting[:1])
        max_rows = self._ladders.rows(first.kind, first.length).maximum
        return [run for run in waiting if tight([run]) == first][:max_rows]

    def max_rows(self, together: Signature) -> int:
        """How many rows of a tight cover a ready graph of its length can read in a call."""
        rows = [
            graph.signature.rows
            for graph in self._graphs.ready(self._model, together.kind, beams=1)
            if graph.signature.length == together.length and graph.signature.rows <= together.rows
        ]
        return max(rows, default=1)

    def reading_seconds(self, runs: Sequence[Run]) -> float:
        """Estimates the device time until all sources and prompts of runs are read.

        Assumes that each run is read alone; runs that share a call take less time. Infinite if a
        run waits for a graph.
        """
        calls: Counter[Signature] = Counter()
        for run in runs:
            calls.update(self._calls_to_read(run))
        return sum(count * self._call_seconds(asked) for asked, count in calls.items())

    def _calls_to_read(self, run: Run) -> dict[Signature, int]:
        """Counts the calls that reading a run still takes, by their tight covers."""
        if not run.is_to_be_read:
            return {}
        calls = {self.tight_encode([run]): 1} if run.phase is Phase.ENCODE else {}
        if run.aligns:
            return calls | {self.tight_align(run): 1}
        unread = run.read_tokens - run.cached_prompt_tokens - run.padded_prompt_tokens
        if unread > 0:
            calls[self.tight_prefill([run])] = math.ceil(unread / self._ladders.prefill_piece)
        return calls

    def _call_seconds(self, asked: Signature) -> float:
        """Device time of a call of the graph that covers a signature now; infinite if none does."""
        cover = self._graphs.cover(asked)
        if isinstance(cover, NoCover):
            return math.inf
        return self._graphs.step_seconds(cover.signature)

    def best_decode(self, runs: Sequence[Run]) -> tuple[Graph | None, list[Run]]:
        """The ready graph with the least time per run that it covers now, and those runs."""
        best: Graph | None = None
        best_covered: list[Run] = []
        best_seconds = math.inf
        ready = self._graphs.ready(self._model, GraphKind.DECODE, self._beams)
        for graph, seconds in zip(ready, self._graphs.sound_seconds(ready), strict=True):
            rows, length = graph.signature.rows, graph.signature.length
            covered = [run for run in runs if self._fits(run, length)][:rows]
            if not covered:
                continue
            each = seconds / len(covered)
            shape = graph.program.shape if isinstance(graph.program, DecodeProgram) else None
            if all(run.batch and run.batch.shape == shape for run in covered):
                # Moving takes about as long as a step, and at most so many are left.
                steps = max(run.max_new_tokens - run.generated for run in covered)
                each *= min(MOVE_THRESHOLD, steps / (steps + 1))
            if each < best_seconds:
                best, best_covered, best_seconds = graph, covered, each
        return best, best_covered

    def record_missed_savings(
        self, asked: Signature, served: Graph, seconds: float, *, share: float, steps: int = 1
    ) -> None:
        """Records the time that the tight cover, or another cover, would have saved in a call.

        Tight covers change from call to call; a larger graph may cover most of them.

        Args:
            asked: The tight cover of all runs.
            served: The graph that was called for some of them.
            seconds: The duration of the call.
            share: The share of the runs that it was called for.
            steps: The number of its steps.
        """
        if self._graphs.graph(asked).state is GraphState.READY or self._graphs.tracer.was_tracing(
            seconds
        ):
            return
        # What a call took beyond the best time of its graph had another cause, which another graph
        # would not have removed.
        seconds = min(seconds, steps * self._graphs.step_seconds(served.signature))
        missed = seconds - steps * share * self._graphs.step_seconds(asked)
        if missed > 0:
            self._graphs.record_missed_savings(asked, served, missed)
        for signature in self._all_covers(asked):
            saved = seconds - steps * share * self._graphs.step_seconds(signature)
            if saved > 0 and self._graphs.graph(signature).state is not GraphState.READY:
                self._graphs.record_possible_savings(signature, saved)

    def _all_covers(self, asked: Signature) -> Sequence[Signature]:
        if asked not in self._covers:
            signatures = self._ladders.signatures(self._model)
            self._covers[asked] = [each for each in signatures if each.covers(asked)]
        return self._covers[asked]

    def _fits(self, run: Run, length: int) -> bool:
        """Whether a cache of this length has room for a run's next step."""
        encoder = self._ladders.encoder
        source_fits = encoder is None or encoder.has_whole_source or run.source_length <= length
        return source_fits and run.attended(self._beams) <= length

    def _missing_encode(self, run: Run) -> Graph | None:
        if run.phase is not Phase.QUEUED or not run.has_source:
            return None
        return self._request_cover(self.tight_encode([run]))

    def _missing_prefill(self, run: Run) -> Graph | None:
        if run.phase is not Phase.QUEUED or run.aligns or not run.read_tokens:
            return None
        return self._request_cover(self.tight_prefill([run]))

    def _missing_decode(self, run: Run) -> Graph | None:
        if run.max_new_tokens == 0:
            return None
        graph = self._request_cover(self.tight_decode([run]))
        return graph if self.best_decode([run])[0] is None else None

    def _missing_align(self, run: Run) -> Graph | None:
        return self._request_cover(self.tight_align(run))

    def _request_cover(self, tight: Signature) -> Graph | None:
        """Requests a graph that covers a signature, unless one is ready.

        That is the first graph of its kind, which covers all later runs too, or the tight cover if
        the first graph cannot be compiled.
        """
        if not isinstance(self._graphs.cover(tight), NoCover):
            return None
        first = self._ladders.first_of(self._model, tight.kind, tight.beams)
        graph = self._graphs.request_compile(first, urgent=True)
        return self._graphs.request_compile(tight, urgent=True) if graph.has_failed else graph
