"""Which graphs serve the runs of a lane, and what it costs that they are not tighter."""

import math
from collections.abc import Sequence

from shaperouter_service.errors import GraphFailedError, GraphRefusedError, ServiceError
from shaperouter_service.graphs import Graph, GraphState, GraphTable, NoCover
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.worker.run import Phase, Run

# What a run's present graph may take longer than another, as a share, before the run moves: moving
# costs about a step of each chunk.
STAY = 0.9


class Covers:
    """The graphs of a lane's runs. Only the device thread may use it."""

    def __init__(self, model: str, ladders: Ladders, graphs: GraphTable, *, beams: int) -> None:
        """Looks at the worker's graphs as one lane does.

        Args:
            model: Name of the model.
            ladders: The shapes its graphs can have.
            graphs: The worker's graphs.
            beams: Beam width of the lane.
        """
        self._model = model
        self._ladders = ladders
        self._graphs = graphs
        self._beams = beams
        self._covers: dict[Signature, Sequence[Signature]] = {}

    def places(self, run: Run) -> int:
        """Places that decoding a run takes at last, if nothing ends it early."""
        return self._ladders.places(
            prompt_tokens=len(run.token_ids),
            new_tokens=run.max_new_tokens,
            beams=self._beams,
            source_tokens=run.source_length,
        )

    def tight_encode(self, runs: Sequence[Run]) -> Signature:
        """The tight cover of encoding the sources of some runs together."""
        longest = max(run.source_length for run in runs)
        return self._ladders.encode(self._model, rows=len(runs), source_tokens=longest)

    def tight_prefill(self, runs: Sequence[Run]) -> Signature:
        """The tight cover of reading the prompts of some runs together."""
        longest = max(run.read_tokens for run in runs)
        return self._ladders.prefill(self._model, rows=len(runs), prompt_tokens=longest)

    def tight_decode(self, runs: Sequence[Run]) -> Signature:
        """The tight cover of decoding some runs together until their ends."""
        length = max(map(self.places, runs))
        return self._ladders.decode(self._model, rows=len(runs), length=length, beams=self._beams)

    def tight_align(self, run: Run) -> Signature:
        """The tight cover of aligning a run's transcript."""
        return self._ladders.align(self._model, tokens=len(run.token_ids))

    def missing(self, run: Run) -> Graph | ServiceError | None:
        """What keeps a run from going on: a graph on the way, or an error for good.

        Asks for graphs that cover all of the run where there are none.
        """
        try:
            last = self._missing_align(run) if run.aligns else self._missing_decode(run)
            missing = self._missing_encode(run) or self._missing_prefill(run) or last
        except GraphRefusedError as error:
            return error
        if missing is not None and missing.has_failed:
            return GraphFailedError(missing.signature, missing.error)
        return missing

    def sources_alike(self, waiting: Sequence[Run]) -> list[Run]:
        """The runs whose sources could be read with that of the first, as many as may be."""
        rung = self.tight_encode(waiting[:1]).length
        most = self._ladders.sources_together(rung).maximum
        return [run for run in waiting if self.tight_encode([run]).length == rung][:most]

    def alike(self, waiting: Sequence[Run]) -> list[Run]:
        """The runs whose prompts could be read with that of the first, as many as may be."""
        rung = self.tight_prefill(waiting[:1]).length
        most = self._ladders.prompts_together(rung).maximum
        return [run for run in waiting if self.tight_prefill([run]).length == rung][:most]

    def rows_to_read(self, together: Signature) -> int:
        """How many sources or prompts, of one tight cover, a ready graph can read in a call."""
        rows = [
            graph.signature.rows
            for graph in self._graphs.ready(self._model, together.kind, beams=1)
            if graph.signature.length == together.length and graph.signature.rows <= together.rows
        ]
        return max(rows, default=1)

    def best_decode(self, runs: Sequence[Run]) -> tuple[Graph | None, list[Run]]:
        """The ready graph that takes least time for each run that it covers as it is now."""
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
            shape = None if graph.program is None else graph.program.shape
            if all(run.batch and run.batch.shape == shape for run in covered):
                each *= STAY
            if each < best_seconds:
                best, best_covered, best_seconds = graph, covered, each
        return best, best_covered

    def miss(
        self, asked: Signature, served: Graph, seconds: float, *, share: float, steps: int = 1
    ) -> None:
        """Counts what a call took longer than the tight cover would have, and others that cover.

        What is asked for changes from call to call; a larger graph may cover most of it.

        Args:
            asked: The tight cover of all runs.
            served: The graph that was called, for some of them.
            seconds: How long that took.
            share: Of the runs, that it was called for.
            steps: That it made.
        """
        if self._graphs.graph(asked).state is GraphState.READY:
            return
        missed = seconds - steps * share * self._graphs.step_seconds(asked)
        if missed > 0:
            self._graphs.miss(asked, served, missed)
        for signature in self._all_covers(asked):
            saved = seconds - steps * share * self._graphs.step_seconds(signature)
            if saved > 0 and self._graphs.graph(signature).state is not GraphState.READY:
                self._graphs.would_save(signature, saved)

    def _all_covers(self, asked: Signature) -> Sequence[Signature]:
        if asked not in self._covers:
            signatures = self._ladders.signatures(self._model)
            self._covers[asked] = [each for each in signatures if each.covers(asked)]
        return self._covers[asked]

    def _fits(self, run: Run, length: int) -> bool:
        """Whether a run as it is now can go on in a cache of so many places."""
        encoder = self._ladders.encoder
        has_place = encoder is None or encoder.has_whole_source or run.source_length <= length
        return has_place and run.attended(self._beams) <= length

    def _missing_encode(self, run: Run) -> Graph | None:
        if run.phase is not Phase.QUEUED or not run.has_source:
            return None
        return self._want_cover(self.tight_encode([run]), self._ladders.first_encode(self._model))

    def _missing_prefill(self, run: Run) -> Graph | None:
        if run.phase is not Phase.QUEUED or run.aligns or not run.read_tokens:
            return None
        return self._want_cover(self.tight_prefill([run]), self._ladders.first_prefill(self._model))

    def _missing_decode(self, run: Run) -> Graph | None:
        first = self._ladders.first_decode(self._model, self._beams)
        graph = self._want_cover(self.tight_decode([run]), first)
        return graph if self.best_decode([run])[0] is None else None

    def _missing_align(self, run: Run) -> Graph | None:
        return self._want_cover(self.tight_align(run), self._ladders.first_align(self._model))

    def _want_cover(self, tight: Signature, first: Signature) -> Graph | None:
        """Asks for a graph that covers a signature unless one is ready.

        The first graph of its kind covers all others to come, too; the tight one stands in for it
        where it cannot be made.
        """
        if not isinstance(self._graphs.cover(tight), NoCover):
            return None
        graph = self._graphs.want(first, urgent=True)
        return self._graphs.want(tight, urgent=True) if graph.has_failed else graph
