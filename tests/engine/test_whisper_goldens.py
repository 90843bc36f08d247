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
    AlignProgram,
    Batch,
    DecodeProgram,
    EncodeProgram,
    Options,
    PrefillProgram,
    Program,
    TranscriptRules,
)
from shaperouter_service.decoding.state import State
from shaperouter_service.models import Model, load_model
from shaperouter_service.models.whisper import Whisper

GOLDENS = Path(__file__).parents[1] / "goldens"
# Enough for any of the cases, with 4 beams.
LENGTH = 96
STEPS = 8

Case = dict[str, Any]
RULED: Case = {"options": {"timestamps": True, "max_new_tokens": 1}}


@pytest.fixture(scope="module", params=["whisper-uneven", "whisper-english"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(name: str) -> Model:
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


def heard(name: str, family: Whisper, *sounds: int) -> list[np.ndarray]:
    """Sources of some sounds, by number."""
    drawn = load_file(GOLDENS / f"{name}.arrays.safetensors")["sounds"].astype(np.float32) / 2**15
    window = family.window_samples
    frames = window // HOP_SAMPLES
    return [source(drawn[each], 0, window, loudest=-np.inf, frames=frames) for each in sounds]


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
    rows, places = len(cases), family.max_source_length
    sources = dict(enumerate(heard(name, family, *(case["sound"] for case in cases))))
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


def test_a_transcript_is_aligned_by_the_references_attention(name: str, model: Model) -> None:
    family, rules = (
        model.family,
        json.loads((GOLDENS / name / "generation_config.json").read_text()),
    )
    assert isinstance(family, Whisper)
    arrays = load_file(GOLDENS / f"{name}.arrays.safetensors")
    places, tokens = family.max_source_length, arrays["token_ids"].tolist()
    batch = Batch(model, rows=2, beams=1, length=LENGTH, source_length=places)
    # Row 1 has the transcript, row 0 nothing.
    batch.begin(1, tokens[:1], options(name, RULED), source_length=places)
    (first,) = heard(name, family, 0)
    ready(EncodeProgram("encode", model, rows=2, length=places))(batch, {1: first})
    align = ready(
        AlignProgram(
            "align",
            model,
            rows=2,
            length=16,
            heads=[tuple(head) for head in rules["alignment_heads"]],
            text_tokens=family.vocab_size,
        )
    )
    aligned = align(batch, {1: tokens})
    shares = np.exp(aligned.scores[1, :, : len(tokens)])
    shares /= shares.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(shares, arrays["attentions"], atol=1e-5)
    logits = arrays["logits"][:-1] - arrays["logits"].max()
    expected = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    expected = np.take_along_axis(expected, np.array(tokens)[1:, np.newaxis], 1)[:, 0]
    np.testing.assert_allclose(aligned.logprobs[1, : len(tokens) - 1], expected, atol=1e-4)
