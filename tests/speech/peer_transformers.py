"""Transformers on PyTorch, in an environment of its own; see `peers`. It tells no times."""

import json
import sys
import time
import wave
from typing import Any

import numpy as np
import torch
from transformers import WhisperForConditionalGeneration, WhisperProcessor


def samples(path: str) -> np.ndarray:
    """Of a WAV file of one channel at 16 kHz."""
    with wave.open(path) as file:
        content = file.readframes(file.getnframes())
    return np.frombuffer(content, "<i2").astype(np.float32) / 2**15


def main() -> None:
    """Answers each line."""
    model = WhisperForConditionalGeneration.from_pretrained(sys.argv[1], dtype=torch.float32)
    processor = WhisperProcessor.from_pretrained(sys.argv[1])
    model.eval()
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        started = time.monotonic()
        inputs = processor(samples(asked["file"]), sampling_rate=16_000, return_tensors="pt")
        with torch.no_grad():
            found = model.generate(
                inputs.input_features, return_timestamps=True, num_beams=asked["num_beams"]
            )
        (text,) = processor.batch_decode(found, skip_special_tokens=True)
        seconds = time.monotonic() - started
        answer = {"segments": [(text, 0.0, 0.0)], "words": [], "seconds": seconds}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
