"""Graphs transcribe sounds as the reference does, token for token, whatever else is in a batch."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from shaperouter_service.audio.spectrum import HOP_SAMPLES, source
from shaperouter_service.decoding import (
    Batch,
    DecodeProgram,
    EncodeProgram,
    Options,
    PrefillProgram,
    Program,
    TranscriptRules,
)
from shaperouter_service.decoding.state import State
from shaperouter_service.models import Model, load_model, loading
from shaperouter_service.models.whisper import Whisper

GOLDENS = Path(__file__).parents[1] / "goldens"
# Enough for any of the cases, with 4 beams.
LENGTH = 96
STEPS = 8

Case = dict[str, Any]


@pytest.fixture(scope="module", params=["whisper-uneven", "whisper-english"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(name: str) -> Model:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(loading.FAMILIES, "whisper", Whisper)  # type: ignore[arg-type]
        return load_model(name, GOLDENS / name, "float32")


@pytest.fixture(scope="module")
def cases(name: str) -> list[Case]:
    return list(json.loads((GOLDENS / f"{name}.json").read_text())["cases"])


def options(name: str, case: Case) -> Options:
    rules = json.loads((GOLDENS / name / "generation_config.json").read_text())
    given = dict(case["options"])
    first = rules["no_timestamps_token_id"] + 1
    timestamps = {
        "first_timestamp": first,
        "last_initial_timestamp": first + rules["max_initial_timestamp_index"],
    }
    transcript = TranscriptRules.of(
        **(timestamps if given.pop("timestamps") else {}),
        begin_suppressed=rules["begin_suppress_tokens"],
    )
    given.pop("num_return_sequences", None)
    return Options.of(
        eos_token_ids=[rules["eos_token_id"]],
        biases=[((token,), -math.inf) for token in rules["suppress_tokens"]],
        transcript=transcript,
        logprobs=0,
        **given,
    )


def ready(program: Program) -> Any:
    program.trace()
    program.compile()
    return program


@dataclass(frozen=True, kw_only=True)
class Transcribed:
    """What came of cases.

    Attributes:
        state: At the end.
        logprobs: Of each row, of each new token.
    """

    state: State
    logprobs: list[list[float]]


def transcribe(name: str, model: Model, cases: list[Case], *, beams: int) -> Transcribed:
    """Runs cases side by side, in one batch."""
    family = model.family
    assert isinstance(family, Whisper)
    rows, places, window = len(cases), family.max_source_length, family.window_samples
    sounds = load_file(GOLDENS / f"{name}.arrays.safetensors")["sounds"].astype(np.float32) / 2**15
    sources = {
        row: source(sounds[case["sound"]], 0, window, loudest=-np.inf, frames=window // HOP_SAMPLES)
        for row, case in enumerate(cases)
    }
    batch = Batch(model, rows=rows, beams=beams, length=LENGTH, source_length=places)
    for row, case in enumerate(cases):
        batch.begin(row, case["prompt_token_ids"], options(name, case), source_length=places)
    ready(EncodeProgram("encode", model, rows=rows, length=places))(batch, sources)
    if batch.state.read_lengths.any():
        prefill = ready(
            PrefillProgram("prefill", model, rows=rows, length=LENGTH, piece=family.prompt_piece)
        )
        assert prefill(batch, range(rows), 0)
    decode = ready(DecodeProgram("decode", model, rows=rows, beams=beams, length=LENGTH))
    logprobs: list[list[float]] = [[] for _ in cases]
    while batch.state.remaining.any():
        before = batch.state.lengths.copy()
        made = decode(batch, range(rows), STEPS)
        for row, count in enumerate(batch.state.lengths - before):
            logprobs[row] += made.chosen[row, :count].tolist()
    return Transcribed(state=batch.state, logprobs=logprobs)


def test_rows_that_differ_in_all_options(name: str, model: Model, cases: list[Case]) -> None:
    chosen = [case for case in cases if "num_beams" not in case["options"]]
    transcribed = transcribe(name, model, chosen, beams=1)
    state = transcribed.state
    found = {
        case["name"]: state.tokens[row, 0, state.prompt_lengths[row] : state.lengths[row]].tolist()
        for row, case in enumerate(chosen)
    }
    assert found == {case["name"]: case["sequences"][0]["token_ids"] for case in chosen}
    for logprobs, case in zip(transcribed.logprobs, chosen, strict=True):
        (expected,) = case["sequences"]
        assert logprobs == pytest.approx(expected["logprobs"], abs=1e-4), case["name"]


def test_beams(name: str, model: Model, cases: list[Case]) -> None:
    chosen = [case for case in cases if "num_beams" in case["options"]]
    state = transcribe(name, model, chosen, beams=4).state
    for row, case in enumerate(chosen):
        prompt = len(case["prompt_token_ids"])
        for place, expected in enumerate(case["sequences"]):
            end = state.beams.ended_lengths[row, place]
            found = state.beams.ended_tokens[row, place, prompt:end].tolist()
            assert (case["name"], found) == (case["name"], expected["token_ids"])
            assert state.beams.ended_scores[row, place] == pytest.approx(
                expected["score"], rel=1e-4
            )
