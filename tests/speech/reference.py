"""What faster-whisper makes of recordings; runs in an environment of its own.

Reads a JSON object from standard input (model, num_beams, files) and writes one: for each file its
words, each with its beginning and end in seconds; and the seconds that all of them took.
"""

import json
import sys
import time

from faster_whisper import WhisperModel


def main() -> None:
    """Transcribes all files, one after the other."""
    asked = json.load(sys.stdin)
    model = WhisperModel(asked["model"], device="cpu", compute_type="float32")
    files = {}
    seconds = 0.0
    for path in asked["files"]:
        started = time.monotonic()
        segments, _ = model.transcribe(
            path, language="en", beam_size=asked["num_beams"], word_timestamps=True
        )
        words = [
            (word.word, float(word.start), float(word.end))
            for segment in segments
            for word in segment.words or ()
        ]
        seconds += time.monotonic() - started
        files[path] = words
    json.dump({"files": files, "seconds": seconds}, sys.stdout)


if __name__ == "__main__":
    main()
