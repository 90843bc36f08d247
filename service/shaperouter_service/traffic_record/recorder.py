"""The recorder: counts a worker's traffic, and writes it down when it is told to."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import structlog

from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.traffic import Traffic
from shaperouter_service.traffic_record.files import RecordFile

log = structlog.get_logger(__name__)


class TrafficRecorder:
    """Counts the traffic of a worker's models.

    All methods may be called from any thread. Those that count take a microsecond, and wait for no
    file; `save` is for another thread than the device's. Models and signatures are those of the
    ladders that the recorder was made with.
    """

    def __init__(self, directory: Path | None, ladders: Mapping[str, Ladders]) -> None:
        """Starts at zero.

        Args:
            directory: Of the record; made when there is something to write. None writes nothing.
            ladders: Of the worker's models, by name.
        """
        self._ladders = ladders
        self._files = {name: RecordFile(directory, name) for name in ladders} if directory else {}
        # Held for moments only: by what counts, and to swap what was counted.
        self._counting = threading.Lock()
        self._saving = threading.Lock()
        # Up to when the time of each model was recorded; time without traffic counts with what
        # follows it.
        self._dated = dict.fromkeys(ladders, time.monotonic())
        self._recent = self._nothing()
        self._failed = False

    def prompt(self, model: str, tokens: int) -> None:
        """Counts a prompt of which prefill reads so many tokens."""
        with self._counting:
            self._recent[model].add_prompt(tokens)

    def source(self, model: str, length: int) -> None:
        """Counts a source of so many places."""
        with self._counting:
            self._recent[model].add_source(length)

    def run(self, model: str, beams: int, final_length: int) -> None:
        """Counts a run.

        Args:
            model: Its model.
            beams: Width of its lane.
            final_length: Places that its last step attends to if nothing ends it early.
        """
        with self._counting:
            self._recent[model].add_run(beams, final_length)

    def asked(self, signature: Signature) -> None:
        """Counts that a signature was the tight cover of what is to be computed."""
        with self._counting:
            self._recent[signature.model].of(signature).asked += 1

    def served(self, signature: Signature, seconds: float, *, steps: int = 1) -> None:
        """Counts a call of a graph.

        Args:
            signature: Of the graph.
            seconds: Device time it took.
            steps: Steps it made; 1 for a piece of prompts, and 0 for a call that says nothing of
                the time of a step.
        """
        with self._counting:
            counts = self._recent[signature.model].of(signature)
            counts.calls += 1
            counts.steps += steps
            counts.device_seconds += seconds
            counts.last_used = time.time()

    def missed(self, signature: Signature, seconds: float) -> None:
        """Counts device time that the absence of a graph cost, in seconds."""
        with self._counting:
            self._recent[signature.model].of(signature).missed_seconds += seconds

    def compiled(self, signature: Signature, seconds: float) -> None:
        """Counts a compilation, tracing included, that no cache has shortened."""
        with self._counting:
            counts = self._recent[signature.model].of(signature)
            counts.compiles += 1
            counts.compile_seconds += seconds

    def save(self) -> None:
        """Writes down what was counted since the last time, if anything was.

        Where that is not possible it is tried again with the next call; the first failure of a row
        is logged.
        """
        with self._saving:
            with self._counting:
                recent, self._recent = self._recent, self._nothing()
            failure: OSError | None = None
            for model, file in self._files.items():
                if not recent[model].is_empty:
                    self._date(recent[model])
                    file.add(recent[model])
                try:
                    file.save()
                except OSError as error:
                    failure = error
            if failure and not self._failed:
                log.warning("traffic record not saved", error=str(failure))
            self._failed = failure is not None

    def _date(self, traffic: Traffic) -> None:
        now = time.monotonic()
        traffic.as_of = time.time()
        traffic.seconds = now - self._dated[traffic.model]
        self._dated[traffic.model] = now

    def _nothing(self) -> dict[str, Traffic]:
        return {
            name: Traffic(model=name, ladders=ladders, as_of=0.0)
            for name, ladders in self._ladders.items()
        }
