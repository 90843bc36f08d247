"""Reading for the runs of a lane: encoding sources, prefilling prompts, aligning transcripts.

Prompts whose log-probabilities are returned are read by score graphs.

If the model has an encoder, one call encodes the source of a run. Its prompt is then read in
pieces, together with other prompts if a graph of more rows is ready. A transcript to be aligned
with its source is read whole, which ends its run.
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
from shaperouter_service.worker.placement import place
from shaperouter_service.worker.prefixes import Prefixes
from shaperouter_service.worker.results import aligned, prompt_logprobs
from shaperouter_service.worker.run import Ended, Phase, Run, in_batches, in_phase
from shaperouter_service.worker.watchdog import Watchdog

# Memory for encoded sources of a model: some windows of a small Whisper, one of a large one.
KEPT_BYTES = 256 * 2**20

P = TypeVar("P", bound=Program)


class EncodedSources:
    """Encoder outputs of runs that have ended, for other runs of the same sources.

    A window of a recording is decoded, perhaps again at higher temperatures, and aligned. Each of
    these is a run of its own, and most come to the same worker within milliseconds.

    Only the device thread may use it.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        """Starts empty.

        Args:
            kept_bytes: Memory above which the oldest are dropped, but never the newest.
        """
        self._kept_bytes = kept_bytes
        # Caches of one row, by the key of their source, oldest first.
        self._caches: dict[bytes, Caches] = {}

    @property
    def size(self) -> int:
        """Memory of the caches, in bytes."""
        return sum(caches.bytes for caches in self._caches.values())

    def keep(self, key: bytes, caches: Caches) -> None:
        """Takes over the caches of a source, which the caller must not use any more."""
        self._caches.pop(key, None)
        self._caches[key] = caches
        while len(self._caches) > 1 and self.size > self._kept_bytes:
            del self._caches[next(iter(self._caches))]

    def take(self, key: bytes) -> Caches | None:
        """Gives up the caches of a source; None if there are none."""
        return self._caches.pop(key, None)


@dataclass(kw_only=True)
class _Prompts:
    """Prompts that are read in one batch.

    Attributes:
        graph: The graph that reads them.
        program: Its program.
        asked: The tight cover of these prompts.
        together: The tight cover of all prompts that could have been read in one call.
        share: The share of these prompts among those.
        runs: The runs that they belong to.
        batch: The batch of the runs.
        start: Number of tokens of each prompt that have been read or copied.
        copied: Number of these that have been copied.
    """

    graph: Graph
    program: PrefillProgram
    asked: Signature
    together: Signature
    share: float
    runs: list[Run]
    batch: Batch
    start: int
    copied: int


class InputReader:
    """Reads for the runs of a lane, one call of a graph at a time.

    Only the device thread may use it; the attributes are for reading.

    Attributes:
        encode_padding_tokens: Positions of padding that encodes computed since the start.
        prefill_padding_tokens: Tokens of padding that prefills computed since the start.
        score_padding_tokens: Tokens of padding that scoring computed since the start.
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
        prefixes: Prefixes,
        watchdog: Watchdog,
        recorder: TrafficRecorder,
        end: Callable[[Run, Ended, float], None],
    ) -> None:
        """Starts with nothing to read.

        Args:
            model: The model.
            graphs: The worker's graphs.
            covers: Chooses the graphs of the lane.
            beams: Beam width of the lane.
            encoded: Encoded sources of the model, which its lanes share.
            prefixes: Finds what prompts share.
            watchdog: Watches the calls of graphs.
            recorder: Records the traffic.
            end: Ends a run that was aligned, at a time of the monotonic clock.
        """
        self.encode_padding_tokens = 0
        self.prefill_padding_tokens = 0
        self.score_padding_tokens = 0
        self.align_padding_tokens = 0
        self._model = model
        self._graphs = graphs
        self._covers = covers
        self._beams = beams
        self._encoded = encoded
        self._prefixes = prefixes
        self._watchdog = watchdog
        self._recorder = recorder
        self._end = end
        self._prompts: _Prompts | None = None

    def read(self, runs: Sequence[Run]) -> float | None:
        """Makes one call, if a run has something to read.

        Args:
            runs: The runs that have a slot, in order of admission.

        Returns:
            The duration of the call in seconds; None without one.
        """
        # Sources come last, because their caches take memory until their runs end.
        seconds = self._align(runs)
        if seconds is not None:
            return seconds
        if self._prompts is None:
            self._prompts = self._begin_prompts(runs)
        return self._encode(runs) if self._prompts is None else self._prefill(self._prompts)

    @property
    def half_read(self) -> Sequence[Run]:
        """Runs whose prompts are partly read, all in one batch."""
        return () if self._prompts is None else self._prompts.runs

    def drop_cancelled(self) -> None:
        """Stops reading the prompts of cancelled runs."""
        if self._prompts is not None:
            self._prompts.runs = [run for run in self._prompts.runs if not run.cancelled]
            if not self._prompts.runs:
                self._prompts = None

    def _cover(self, asked: Signature, kind: type[P]) -> tuple[Graph, P]:
        """The fastest ready graph that covers a signature, and its program.

        A run has a ready cover when it gets its slot, and ready graphs stay ready.
        """
        graph = self._graphs.cover(asked)
        if isinstance(graph, NoCover) or not isinstance(graph.program, kind):
            raise TypeError(f"{asked} has no ready {kind.__name__}")
        return graph, graph.program

    # --- Sources -----------------------------------------------------------------------------

    def reuse_sources(self, runs: Sequence[Run]) -> None:
        """Gives runs the encoded sources of other runs, if they are the same."""
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
        """Keeps the encoded source of a run that ends, for other runs of the same source."""
        # No run uses a source after its alignment.
        if run.batch is not None and run.source_key and not run.aligns:
            self._encoded.keep(run.source_key, run.batch.caches.give_source(run.row))

    def _encoded_before(self, key: bytes, runs: Sequence[Run]) -> Caches | None:
        """The caches of a source that was encoded before, for one run alone; or None."""
        for run in in_batches(runs):
            if run.source_key == key and run.batch is not None:
                return run.batch.caches.copy_source(run.row)
        return self._encoded.take(key)

    def _encode(self, runs: Sequence[Run]) -> float | None:
        # Runs of the same source reuse what is encoded for the first of them.
        distinct: dict[Hashable, Run] = {}
        for run in in_phase(runs, Phase.ENCODE):
            distinct.setdefault(run.source_key or run, run)
        waiting = list(distinct.values())
        if not waiting:
            return None
        same_length = self._covers.of_same_length(waiting, self._covers.tight_encode)
        together = self._covers.tight_encode(same_length)
        self._recorder.record_request(together)
        read = same_length[: self._covers.max_rows(together)]
        asked = self._covers.tight_encode(read)
        graph, program = self._cover(asked, EncodeProgram)
        signature = graph.signature
        batch = Batch(
            self._model,
            rows=signature.rows,
            beams=self._beams,
            # Encoding uses no cache of tokens; this one only holds them until decoding.
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
        device_seconds = self._graphs.record(graph, seconds, steps=1)
        self._covers.record_missed_savings(
            together, graph, seconds, share=len(read) / len(same_length)
        )
        self.encode_padding_tokens += signature.rows * signature.length - sum(
            run.valid_length or run.source_length for run in read
        )
        for run in read:
            run.padded_source_tokens = signature.length
            run.use(asked, signature, device_seconds)
            run.phase = _after_encode(run)
        return seconds

    # --- Prompts -----------------------------------------------------------------------------

    def _begin_prompts(self, runs: Sequence[Run]) -> _Prompts | None:
        waiting = in_phase(runs, Phase.PREFILL)
        if not waiting:
            return None
        shared = self._prefixes.read_next(waiting, runs)
        same_length = self._covers.of_same_length([*shared], self._covers.tight_prefill)
        together = self._covers.tight_prefill(same_length)
        self._recorder.record_request(together)
        read = same_length[: self._covers.max_rows(together)]
        asked = self._covers.tight_prefill(read)
        graph, program = self._cover(asked, PrefillProgram)
        if read[0].has_source:
            # They already have batches, with their encoded sources.
            batch = place(read, in_batches(runs), program.shape, alone=True)
        else:
            batch = Batch.of_shape(self._model, program.shape, beams=self._beams)
            now = time.monotonic()
            for row, run in enumerate(read):
                _begin(run, batch, row)
                run.timings.prefill_started = now
                self._prefixes.copy(shared[run], run)
        copied = shared[read[0]].tokens
        return _Prompts(
            graph=graph,
            program=program,
            asked=asked,
            together=together,
            share=len(read) / len(same_length),
            runs=read,
            batch=batch,
            start=copied,
            copied=copied,
        )

    def _prefill(self, prompts: _Prompts) -> float:
        """Reads the next piece of prompts."""
        program, batch, runs = prompts.program, prompts.batch, prompts.runs
        started = time.monotonic()
        with self._watchdog.watching(prompts.graph.signature, runs):
            piece = program(
                batch,
                [run.row for run in runs],
                prompts.start,
                likeliest=any(run.prompt_logprobs for run in runs),
            )
        seconds = time.monotonic() - started
        # A graph's cost is that of a whole piece. Short pieces count only until it has a cost;
        # otherwise a worker that reads nothing else would never measure one.
        counts = piece.tokens == program.piece or prompts.graph.best_step_seconds is None
        device_seconds = self._graphs.record(prompts.graph, seconds, steps=1 if counts else None)
        self._covers.record_missed_savings(
            prompts.together, prompts.graph, seconds, share=prompts.share
        )
        prompts.start += piece.tokens
        for run in runs:
            run.padded_prompt_tokens += piece.tokens
            run.use(prompts.asked, prompts.graph.signature, device_seconds)
            if new := prompt_logprobs(run, piece):
                run.scored += len(new.logprobs)
                run.emit(new)
        if piece.is_last:
            self._prompts = None
            copied = prompts.copied
            padding = batch.rows * (prompts.start - copied)
            padding -= sum(run.read_tokens - copied for run in runs)
            if program.scores:
                self.score_padding_tokens += padding
            else:
                self.prefill_padding_tokens += padding
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
        self._recorder.record_request(asked)
        graph, program = self._cover(asked, AlignProgram)
        signature = graph.signature
        batch = place([run], in_batches(runs), program.shape)
        started = time.monotonic()
        with self._watchdog.watching(signature, [run]):
            result = program(batch, {run.row: run.token_ids})
        now = time.monotonic()
        seconds = now - started
        device_seconds = self._graphs.record(graph, seconds, steps=1)
        self._covers.record_missed_savings(asked, graph, seconds, share=1.0)
        self.align_padding_tokens += signature.length - len(run.token_ids)
        run.use(asked, signature, device_seconds)
        run.timings.first_token = now
        self._end(run, Ended(FinishReason.EOS, aligned=aligned(run, result)), now)
        return seconds


def _begin(run: Run, batch: Batch, row: int) -> None:
    """Puts a run into its first batch."""
    batch.begin(
        row,
        run.token_ids,
        run.options,
        run.generated_token_ids,
        run.source_length,
        source=run.source,
    )
    run.batch, run.row = batch, row


def _after_encode(run: Run) -> Phase:
    if run.aligns:
        return Phase.ALIGN
    return Phase.PREFILL if run.read_tokens else Phase.DECODE
