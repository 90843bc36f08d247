"""TrafficRecorder: counts a worker's traffic and saves the counts to the record."""

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import structlog

from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.deployments import public_name
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.traffic import SignatureTraffic, Traffic
from shaperouter_service.traffic_record.files import RecordFile

log = structlog.get_logger(__name__)


class TrafficRecorder:
    """Counts the traffic of a worker's models.

    Thread-safe. Methods that count take a microsecond and never wait for a file; `save` does, so
    the device thread must not call it. Models and signatures must be of the recorder's ladders.
    """

    def __init__(
        self, directory: Path | None, ladders: Mapping[str, Ladders | CallLadders]
    ) -> None:
        """Starts at zero.

        Args:
            directory: Directory of the record, created by the first save; None saves nothing.
            ladders: Ladders of the worker's models, by name.
        """
        self._directory = directory
        self._ladders: dict[str, Ladders | CallLadders] = {}
        self._files: dict[str, RecordFile] = {}
        # Held only to count, and to swap the counts.
        self._counting = threading.Lock()
        self._saving = threading.Lock()
        # End of each model's recorded time. Time without traffic is added to the next traffic.
        self._recorded_until: dict[str, float] = {}
        self._recent: dict[str, Traffic] = {}
        self._failed = False
        self.add(ladders)

    def add(self, ladders: Mapping[str, Ladders | CallLadders]) -> None:
        """Takes further models, given their ladders by name.

        All revisions of a model are recorded as one: the next one will have their traffic.
        """
        with self._saving, self._counting:
            for model, its in ladders.items():
                self._ladders[model] = its
                self._recent[model] = self._empty(model)
                self._recorded_until[model] = time.monotonic()
                if self._directory is not None:
                    self._files[model] = RecordFile(self._directory, public_name(model))

    def remove(self, model: str) -> None:
        """Saves and then forgets the counts of a model."""
        self.save()
        with self._saving, self._counting:
            for known in (self._ladders, self._recent, self._recorded_until, self._files):
                known.pop(model, None)

    def prompt(self, model: str, tokens: int) -> None:
        """Counts a prompt of `tokens` tokens to prefill."""
        with self._counting:
            self._recent[model].add_prompt(tokens)

    def source(self, model: str, length: int) -> None:
        """Counts a source of `length` positions."""
        with self._counting:
            self._recent[model].add_source(length)

    def run(self, model: str, beams: int, final_length: int) -> None:
        """Counts a run.

        Args:
            model: Name of the model.
            beams: Beam width of the lane.
            final_length: Positions that the last step attends to if the run does not end early.
        """
        with self._counting:
            self._recent[model].add_run(beams, final_length)

    def call(self, model: str, sizes: Mapping[str, int]) -> None:
        """Counts joined calls by their sizes along the axes that may be padded."""
        with self._counting:
            for axis, size in sizes.items():
                self._recent[model].add_size(axis, size)

    def record_request(self, signature: Signature) -> None:
        """Counts that a signature was the tight cover of a computation."""
        with self._counting:
            self._counts(signature).asked += 1

    def served(self, signature: Signature, seconds: float, *, steps: int = 1) -> None:
        """Counts a call of a graph.

        Args:
            signature: Signature of the graph.
            seconds: Device time of the call.
            steps: Number of steps: 1 for a piece of prompts, 0 if the call shows nothing about the
                time of a step.
        """
        with self._counting:
            counts = self._counts(signature)
            counts.calls += 1
            counts.steps += steps
            counts.device_seconds += seconds
            counts.last_used = time.time()

    def record_missed_savings(self, signature: Signature, seconds: float) -> None:
        """Counts device time that a missing graph would have saved, in seconds."""
        with self._counting:
            self._counts(signature).missed_seconds += seconds

    def compiled(self, signature: Signature, seconds: float) -> None:
        """Counts a compilation that the cache did not shorten; its time includes tracing."""
        with self._counting:
            counts = self._counts(signature)
            counts.compiles += 1
            counts.compile_seconds += seconds

    def save(self) -> None:
        """Saves the counts since the last save, if there are any.

        Counts that cannot be saved are kept for the next call; only the first of consecutive
        failures is logged.
        """
        with self._saving:
            with self._counting:
                recent, self._recent = (
                    self._recent,
                    {model: self._empty(model) for model in self._ladders},
                )
            failure: OSError | None = None
            for model, file in self._files.items():
                if not recent[model].is_empty:
                    self._date(model, recent[model])
                    file.add(recent[model])
                try:
                    file.save()
                except OSError as error:
                    failure = error
            if failure and not self._failed:
                log.warning("traffic record not saved", error=str(failure))
            self._failed = failure is not None

    def _counts(self, signature: Signature) -> SignatureTraffic:
        name = public_name(signature.model)
        recorded = signature if name == signature.model else replace(signature, model=name)
        return self._recent[signature.model].of(recorded)

    def _date(self, model: str, traffic: Traffic) -> None:
        now = time.monotonic()
        traffic.as_of = time.time()
        traffic.seconds = now - self._recorded_until[model]
        self._recorded_until[model] = now

    def _empty(self, model: str) -> Traffic:
        return Traffic(model=public_name(model), ladders=self._ladders[model], as_of=0.0)
