"""What a lane reads before it decodes: sources and prompts; and transcripts, which it aligns.

A run of a model with an encoder has its source encoded first, in one call. What a prompt has then
to be read is read in pieces, of several runs together where a graph of more rows is ready. A
transcript that is to be aligned with its source is read whole, and its run ends with that.
"""

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from shaperouter_service.decoding import (
    AlignProgram,
    Batch,
    Caches,
    EncodeProgram,
    PrefillProgram,
)
from shaperouter_service.decoding.program import Program
from shaperouter_service.generation.run_events import FinishReason
from shaperouter_service.graphs import Graph, GraphTable, NoCover
from shaperouter_service.models import Model
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.traffic_record import TrafficRecorder
from shaperouter_service.worker.covers import Covers
from shaperouter_service.worker.encoded_sources import EncodedSources
from shaperouter_service.worker.placement import place
from shaperouter_service.worker.results import aligned
from shaperouter_service.worker.run import Ended, Phase, Run, in_batches, in_phase
from shaperouter_service.worker.watchdog import Watchdog

P = TypeVar("P", bound=Program)


@dataclass(kw_only=True)
class _Prompts:
    """Prompts that are being read: `start` tokens of each have been.

    `together` is the tight cover of all that could have been read in one call, of which these are a
    `share`.
    """

    graph: Graph
    program: PrefillProgram
    asked: Signature
    together: Signature
    share: float
    runs: list[Run]
    batch: Batch
    start: int = 0


class Reader:
    """Reads for the runs of one lane, one call of a graph at a time.

    Only the device thread may use it; the attributes are for reading.

    Attributes:
        encode_padding_tokens: Places of padding that encodes computed since the start.
        prefill_padding_tokens: Tokens of padding that prefills computed since the start.
        align_padding_tokens: Tokens of padding that aligning computed since the start.
    """

    def __init__(
        self,
        model: Model,
        graphs: GraphTable,
        covers: Covers,
        *,
        beams: int,
        encoded: EncodedSources,
        watchdog: Watchdog,
        recorder: TrafficRecorder,
        end: Callable[[Run, Ended, float], None],
    ) -> None:
        """Begins with nothing to read.

        Args:
            model: The model.
            graphs: The worker's graphs.
            covers: Those of the lane.
            beams: Beam width of the lane.
            encoded: Sources of the model, which its lanes share.
            watchdog: Watches the calls of graphs.
            recorder: Told what is asked for.
            end: Ends a run that has been aligned, at a time of the monotonic clock.
        """
        self.encode_padding_tokens = 0
        self.prefill_padding_tokens = 0
        self.align_padding_tokens = 0
        self._model = model
        self._graphs = graphs
        self._covers = covers
        self._beams = beams
        self._encoded = encoded
        self._watchdog = watchdog
        self._recorder = recorder
        self._end = end
        self._prompts: _Prompts | None = None

    def read(self, runs: Sequence[Run]) -> float | None:
        """Makes one call, if something waits for one that can be made.

        Args:
            runs: Those that have a slot, in order of admission.

        Returns:
            How long it took in seconds; None without one.
        """
        # What has been encoded takes memory until its run ends: so sources come last.
        seconds = self._align(runs)
        if seconds is not None:
            return seconds
        if self._prompts is None:
            self._prompts = self._begin_prompts(runs)
        return self._encode(runs) if self._prompts is None else self._prefill(self._prompts)

    @property
    def half_read(self) -> Sequence[Run]:
        """Runs whose prompts are being read, in one batch."""
        return () if self._prompts is None else self._prompts.runs

    def drop_cancelled(self) -> None:
        """Reads no further for runs that were cancelled."""
        if self._prompts is not None:
            self._prompts.runs = [run for run in self._prompts.runs if not run.cancelled]
            if not self._prompts.runs:
                self._prompts = None

    def _cover(self, asked: Signature, kind: type[P]) -> tuple[Graph, P]:
        """The ready graph that reads this in the least time, and its program.

        There is always one: runs have a cover when they get their slot, and ready graphs stay so.
        """
        graph = self._graphs.cover(asked)
        if isinstance(graph, NoCover) or not isinstance(graph.program, kind):
            raise TypeError(f"{asked} has no ready {kind.__name__}")
        return graph, graph.program

    # --- Sources -----------------------------------------------------------------------------

    def reuse_sources(self, runs: Sequence[Run]) -> None:
        """Gives runs what was encoded for others about the same sources."""
        for run in in_phase(runs, Phase.ENCODE):
            caches = self._encoded_before(run.source_key, runs) if run.source_key else None
            if caches is None:
                continue
            length = max(1, run.read_tokens)
            batch = Batch.of_source(self._model, caches, beams=self._beams, length=length)
            _begin(run, batch, 0)
            run.timings.prefill_started = time.monotonic()
            run.phase = _after_encode(run)

    def keep_source(self, run: Run) -> None:
        """Keeps what was encoded for a run that ends, for others about the same source."""
        # Aligning is the last that is done with a source.
        if run.batch is not None and run.source_key and not run.aligns:
            self._encoded.keep(run.source_key, run.batch.caches.give_source(run.row))

    def _encoded_before(self, key: bytes, runs: Sequence[Run]) -> Caches | None:
        """What was encoded of a source, of which nobody else may use it; None if nothing was."""
        for run in in_batches(runs):
            if run.source_key == key and run.batch is not None:
                return run.batch.caches.copy_source(run.row)
        return self._encoded.take(key)

    def _encode(self, runs: Sequence[Run]) -> float | None:
        # Those of the same source follow the first of them.
        distinct: dict[Hashable, Run] = {}
        for run in in_phase(runs, Phase.ENCODE):
            distinct.setdefault(run.source_key or run, run)
        waiting = list(distinct.values())
        if not waiting:
            return None
        alike = self._covers.sources_alike(waiting)
        together = self._covers.tight_encode(alike)
        self._recorder.asked(together)
        read = alike[: self._covers.rows_to_read(together)]
        asked = self._covers.tight_encode(read)
        graph, program = self._cover(asked, EncodeProgram)
        signature = graph.signature
        batch = Batch(
            self._model,
            rows=signature.rows,
            beams=self._beams,
            # No graph looks at the tape: it keeps the tokens until one does.
            length=max(1, *(run.read_tokens for run in read)),
            source_length=signature.length,
        )
        started = time.monotonic()
        for row, run in enumerate(read):
            _begin(run, batch, row)
            run.timings.prefill_started = started
        with self._watchdog.watching(signature, read):
            program(batch, {run.row: run.source for run in read})
        seconds = time.monotonic() - started
        self._graphs.record(graph, seconds, steps=1)
        self._covers.miss(together, graph, seconds, share=len(read) / len(alike))
        self.encode_padding_tokens += signature.rows * signature.length - sum(
            run.valid_length or run.source_length for run in read
        )
        for run in read:
            run.padded_source_tokens = signature.length
            run.use(asked, signature, seconds)
            run.phase = _after_encode(run)
        return seconds

    # --- Prompts -----------------------------------------------------------------------------

    def _begin_prompts(self, runs: Sequence[Run]) -> _Prompts | None:
        waiting = in_phase(runs, Phase.PREFILL)
        if not waiting:
            return None
        alike = self._covers.alike(waiting)
        together = self._covers.tight_prefill(alike)
        self._recorder.asked(together)
        read = alike[: self._covers.rows_to_read(together)]
        asked = self._covers.tight_prefill(read)
        graph, program = self._cover(asked, PrefillProgram)
        if read[0].has_source:
            # They have been encoded.
            batch = place(read, in_batches(runs), program.shape, alone=True)
        else:
            batch = Batch.of_shape(self._model, program.shape, beams=self._beams)
            now = time.monotonic()
            for row, run in enumerate(read):
                _begin(run, batch, row)
                run.timings.prefill_started = now
        return _Prompts(
            graph=graph,
            program=program,
            asked=asked,
            together=together,
            share=len(read) / len(alike),
            runs=read,
            batch=batch,
        )

    def _prefill(self, prompts: _Prompts) -> float:
        """Reads the next piece of some prompts."""
        program, batch, runs = prompts.program, prompts.batch, prompts.runs
        started = time.monotonic()
        with self._watchdog.watching(prompts.graph.signature, runs):
            is_read = program(batch, [run.row for run in runs], prompts.start)
        seconds = time.monotonic() - started
        self._graphs.record(prompts.graph, seconds, steps=1)
        self._covers.miss(prompts.together, prompts.graph, seconds, share=prompts.share)
        prompts.start += program.piece
        for run in runs:
            run.padded_prompt_tokens += program.piece
            run.use(prompts.asked, prompts.graph.signature, seconds)
        if is_read:
            self._prompts = None
            self.prefill_padding_tokens += batch.rows * prompts.start - sum(
                run.read_tokens for run in runs
            )
            for run in runs:
                run.phase = Phase.DECODE
        return seconds

    # --- Transcripts -------------------------------------------------------------------------

    def _align(self, runs: Sequence[Run]) -> float | None:
        waiting = in_phase(runs, Phase.ALIGN)
        if not waiting:
            return None
        run = waiting[0]
        asked = self._covers.tight_align(run)
        self._recorder.asked(asked)
        graph, program = self._cover(asked, AlignProgram)
        signature = graph.signature
        batch = place([run], in_batches(runs), program.shape)
        started = time.monotonic()
        with self._watchdog.watching(signature, [run]):
            found = program(batch, {run.row: run.token_ids})
        now = time.monotonic()
        seconds = now - started
        self._graphs.record(graph, seconds, steps=1)
        self._covers.miss(asked, graph, seconds, share=1.0)
        self.align_padding_tokens += signature.length - len(run.token_ids)
        run.use(asked, signature, seconds)
        run.timings.first_token = now
        self._end(run, Ended(FinishReason.EOS, aligned=aligned(run, found)), now)
        return seconds


def _begin(run: Run, batch: Batch, row: int) -> None:
    """Puts a run into the first batch it is in."""
    batch.begin(row, run.token_ids, run.options, run.generated_token_ids, run.source_length)
    run.batch, run.row = batch, row


def _after_encode(run: Run) -> Phase:
    if run.aligns:
        return Phase.ALIGN
    return Phase.PREFILL if run.read_tokens else Phase.DECODE
