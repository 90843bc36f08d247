"""faster-whisper, in an environment of its own; see `peers`."""

import json
import sys
import time
from typing import Any

from faster_whisper import WhisperModel


def transcribed(model: WhisperModel, asked: dict[str, Any]) -> dict[str, Any]:
    """Transcribes a recording."""
    started = time.monotonic()
    options: dict[str, Any] = {} if asked["fallback"] else {"temperature": 0.0}
    segments, _ = model.transcribe(
        asked["file"],
        language="en",
        beam_size=asked["num_beams"],
        word_timestamps=asked["words"],
        **options,
    )
    # They are made as they are read.
    found = list(segments)
    seconds = time.monotonic() - started
    words = [
        (word.word, float(word.start), float(word.end))
        for segment in found
        for word in segment.words or ()
    ]
    return {
        "segments": [(each.text, float(each.start), float(each.end)) for each in found],
        "words": words,
        "seconds": seconds,
    }


def main() -> None:
    """Answers each line."""
    model = WhisperModel(sys.argv[1], device="cpu", compute_type="float32")
    for line in sys.stdin:
        print(json.dumps(transcribed(model, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
