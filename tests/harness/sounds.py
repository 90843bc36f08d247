"""The golden Whispers' sounds and transcripts, as runs of an engine."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from harness.engine import GOLDENS, Bench, Collected
from shaperouter_service.decoding import TranscriptRules
from shaperouter_service.generation.option import EarlyStopping
from shaperouter_service.speech.audio.spectrum import HOP_SAMPLES, window_source

Case = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class GoldenSounds:
    """The reference implementation's transcripts with one checkpoint.

    Attributes:
        name: Name of the checkpoint.
        positions: Number of positions of a window.
        rules: The content of its generation_config.json.
        cases: Transcripts.
        arrays: Sounds, and the model's outputs for the first one.
    """

    name: str
    positions: int
    rules: dict[str, Any]
    cases: list[Case]
    arrays: dict[str, np.ndarray]

    @classmethod
    def read(cls, name: str) -> GoldenSounds:
        directory = GOLDENS / name
        return cls(
            name=name,
            positions=json.loads((directory / "config.json").read_text())["max_source_positions"],
            rules=json.loads((directory / "generation_config.json").read_text()),
            cases=json.loads((GOLDENS / f"{name}.json").read_text())["cases"],
            arrays=load_file(GOLDENS / f"{name}.arrays.safetensors"),
        )

    def sound(self, number: int) -> np.ndarray:
        """A source."""
        drawn = self.arrays["sounds"][number].astype(np.float32) / 2**15
        frames = 2 * self.positions
        return window_source(drawn, 0, frames * HOP_SAMPLES, peak=-np.inf, frames=frames)

    def submit(self, bench: Bench, sound: int, prompt: list[int], **options: Any) -> Collected:
        """Submits a run on a sound."""
        options.setdefault("transcript", TranscriptRules.of())
        return bench.submit(
            self.name,
            prompt,
            source=self.sound(sound),  # type: ignore[arg-type]  # an array serves as a sequence
            source_length=self.positions,
            **options,
        )

    def submit_case(
        self, bench: Bench, case: Case, *, source_key: bytes = b"", **rules: Any
    ) -> Collected:
        """Runs a golden case, with further rules."""
        given = dict(case["options"])
        if "early_stopping" in given:
            given["early_stopping"] = EarlyStopping[given["early_stopping"].upper()]
        if given.pop("timestamps"):
            first = self.rules["no_timestamps_token_id"] + 1
            last = first + self.rules["max_initial_timestamp_index"]
            rules |= {"first_timestamp": first, "last_initial_timestamp": last}
        return self.submit(
            bench,
            case["sound"],
            case["prompt_token_ids"],
            eos_token_ids=[self.rules["eos_token_id"]],
            biases=[((token,), -math.inf) for token in self.rules["suppress_tokens"]],
            logprobs=0,
            source_key=source_key,
            transcript=TranscriptRules.of(
                begin_suppressed=self.rules["begin_suppress_tokens"], **rules
            ),
            **given,
        )
