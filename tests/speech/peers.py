"""Other implementations: processes of environments of their own, which answer lines of JSON."""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from speech.scores import Timed


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """What was heard, when, and how long that took in seconds."""

    segments: Sequence[Timed]
    words: Sequence[Timed]
    seconds: float

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(text for text, *_ in self.segments)


class Peer:
    """A running implementation."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def transcribe(
        self, path: Path, *, num_beams: int, words: bool, fallback: bool = True
    ) -> Transcript:
        """Transcribes a recording.

        Args:
            path: Path of a WAV file.
            num_beams: Beam width; 1 means no beam search.
            words: Whether to tell when they were said.
            fallback: Whether to try higher temperatures.
        """
        asked = {
            "file": str(path.resolve()),
            "num_beams": num_beams,
            "words": words,
            "fallback": fallback,
        }
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        found = json.loads(self._process.stdout.readline())
        return Transcript(
            segments=[tuple(segment) for segment in found["segments"]],
            words=[tuple(word) for word in found["words"]],
            seconds=found["seconds"],
        )


@contextlib.contextmanager
def peer(name: str, python: Path, model: Path) -> Iterator[Peer]:
    """Runs an implementation inside of the context.

    Args:
        name: Name of a module beside this one.
        python: Interpreter of its environment.
        model: Directory of the weights.
    """
    script = Path(__file__).with_name(f"{name}.py")
    process = subprocess.Popen(
        [str(python), str(script), str(model.resolve())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Peer(process)
    finally:
        process.terminate()
        process.wait()
