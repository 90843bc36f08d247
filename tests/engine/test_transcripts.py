"""Transcripts equal the reference on all graphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from harness.device_calls import record_calls_left
from harness.engine import CHECKPOINTS, GOLDENS, Bench, Collected, assert_equals
from harness.sounds import GoldenSounds
from harness.waiting import wait_until
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.decoding import TranscriptRules
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.generation.resolution import neutral_options
from shaperouter_service.generation.run_request import RunRequest, Sound, TranscriptConstraints
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.worker.run import Ended
from shaperouter_service.worker.run_requests import check, make_run

NAMES = ("whisper-uneven", "whisper-english")
TEXT = "t5-gated"


@pytest.fixture(scope="module")
def bench(kept_compilations: CompileCache) -> Iterator[Bench]:
    models = {TEXT: CHECKPOINTS[TEXT]} | {name: GOLDENS / name for name in NAMES}
    bench = Bench(models, slots=2, compile_cache=kept_compilations)
    yield bench
    assert not bench.defects
    # Whatever was asked for.
    assert all(graph.traces <= 1 for graph in bench.parts.graphs.graphs())


@pytest.fixture(scope="module", params=NAMES)
def golden(request: pytest.FixtureRequest) -> GoldenSounds:
    return GoldenSounds.read(request.param)


@pytest.fixture(scope="module")
def uneven() -> GoldenSounds:
    return GoldenSounds.read("whisper-uneven")


def ended(collected: Collected) -> Ended:
    """Waits for the end of a run."""
    collected.wait()
    end = collected.seen[-1]
    assert isinstance(end, Ended)
    return end


def probabilities(golden: GoldenSounds, tokens: int) -> np.ndarray:
    """The reference's probabilities after this many golden tokens."""
    logits = golden.arrays["logits"][tokens - 1].astype(np.float64)
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def test_transcripts_with_different_options_run_side_by_side(
    bench: Bench, golden: GoldenSounds
) -> None:
    submitted = [(golden.submit_case(bench, case), case) for case in golden.cases]
    for collected, case in submitted:
        assert_equals(collected, case)
        if "num_beams" not in case["options"]:
            (expected,) = case["sequences"]
            found = [each.logprob for each in collected.logprobs]
            assert found == pytest.approx(expected["logprobs"], abs=1e-4), case["name"]


@pytest.mark.parametrize(("recipe", "beams"), [("greedy", 1), ("beams", 4), ("five beams", 5)])
def test_every_graph_gives_the_tokens_of_the_reference(
    bench: Bench, uneven: GoldenSounds, recipe: str, beams: int
) -> None:
    case = next(case for case in uneven.cases if case["name"].startswith(recipe))
    places = len(case["prompt_token_ids"]) - 1 + beams * case["options"]["max_new_tokens"]
    for cover in bench.make_all_ready(uneven.name, {1, beams}):
        signature = cover.signature
        decodes = signature.kind is GraphKind.DECODE
        if signature.kind is GraphKind.ALIGN or (decodes and signature.beams != beams):
            continue
        if decodes and signature.length < places:
            continue
        with bench.only_ready(cover):
            collected = uneven.submit_case(bench, case)
            assert_equals(collected, case)
            assert signature in {served for _, served in collected.run.uses}


@pytest.mark.parametrize("tokens", [1, 4])
def test_the_first_token_can_be_held_to_a_range(
    bench: Bench, uneven: GoldenSounds, tokens: int
) -> None:
    """As for language detection: the likeliest allowed token, with its probability among them."""
    least, largest = 92, 96
    expected = probabilities(uneven, tokens)[least : largest + 1]
    expected /= expected.sum()
    collected = uneven.submit(
        bench,
        0,
        uneven.arrays["token_ids"][:tokens].tolist(),
        max_new_tokens=1,
        logprobs=0,
        transcript=TranscriptRules.of(first_token=(least, largest)),
    )
    collected.wait()
    assert collected.token_ids == [least + int(expected.argmax())]
    assert collected.logprobs[0].logprob == pytest.approx(np.log(expected.max()), abs=1e-4)


@pytest.mark.parametrize(
    ("prompt", "position", "generated"),
    [
        (1, 0, 0),  # read by the first step
        (4, 3, 0),
        (4, 0, 0),  # read by prefill
        (1, 0, 3),  # read by prefill, since another worker has made tokens
        (9, 2, 0),
    ],
)
def test_the_no_speech_probability_is_read_at_any_position_of_the_prompt(
    bench: Bench, uneven: GoldenSounds, prompt: int, position: int, generated: int
) -> None:
    token_ids = uneven.arrays["token_ids"].tolist()
    token = uneven.rules["no_timestamps_token_id"] - 1
    end = ended(
        uneven.submit(
            bench,
            0,
            token_ids[:prompt],
            generated_token_ids=token_ids[prompt : prompt + generated],
            max_new_tokens=8,
            transcript=TranscriptRules.of(no_speech_token=token, no_speech_position=position),
        )
    )
    assert end.no_speech == pytest.approx(probabilities(uneven, position + 1)[token], abs=1e-5)


def test_beam_search_reports_the_no_speech_probability(bench: Bench, golden: GoldenSounds) -> None:
    token = golden.rules["no_timestamps_token_id"] - 1
    rules = {"no_speech_token": token, "no_speech_position": 0}
    beams = next(case for case in golden.cases if "num_beams" in case["options"])
    greedy = {
        "num_beams": 1,
        "num_return_sequences": 1,
        "max_new_tokens": 1,
        "timestamps": False,
    }
    plain = golden.submit_case(bench, beams | {"options": greedy}, **rules)
    wide = golden.submit_case(bench, beams, **rules)
    assert ended(wide).no_speech == pytest.approx(ended(plain).no_speech, abs=1e-6)


def test_the_no_speech_probability_is_reported_only_on_request(
    bench: Bench, uneven: GoldenSounds
) -> None:
    assert ended(uneven.submit(bench, 0, [91], max_new_tokens=1)).no_speech is None


def test_a_transcript_is_aligned_beside_others(bench: Bench, golden: GoldenSounds) -> None:
    tokens = golden.arrays["token_ids"].tolist()
    case = golden.cases[0]
    others = [golden.submit_case(bench, case) for _ in range(3)]
    aligning = golden.submit(bench, 0, tokens, max_new_tokens=0, aligns=True)
    found = ended(aligning).aligned
    assert found is not None
    shares = np.exp(found.scores)
    shares /= shares.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(shares, golden.arrays["attentions"], atol=1e-5)
    assert found.logprobs.shape == (len(tokens) - 1,)
    for other in others:
        assert_equals(other, case)
    kinds = {served.kind for _, served in aligning.run.uses}
    assert kinds == {GraphKind.ENCODE, GraphKind.ALIGN}


def test_the_time_left_to_read_is_that_of_the_window_and_the_alignment(
    bench: Bench, uneven: GoldenSounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = record_calls_left(monkeypatch, bench, bench.parts.lanes[uneven.name, 1])
    tokens = uneven.arrays["token_ids"].tolist()
    ended(uneven.submit(bench, 0, tokens, max_new_tokens=0, aligns=True))
    assert left == [2, 1]


def test_align_graphs_are_compiled_at_the_first_alignment(bench: Bench) -> None:
    states = {
        graph.signature.kind: graph.state
        for graph in bench.parts.graphs.graphs()
        if graph.signature.model == TEXT
    }
    assert GraphKind.ALIGN not in states
    aligns = bench.parts.ladders[NAMES[0]].first_of(NAMES[0], GraphKind.ALIGN)
    assert aligns in bench.parts.ladders[NAMES[0]].first(NAMES[0])
    assert aligns not in bench.parts.warm_up.signatures


def test_a_text_model_runs_beside_transcribing_models(bench: Bench, golden: GoldenSounds) -> None:
    heard = golden.submit_case(bench, golden.cases[0])
    read = bench.submit(TEXT, [0], source=[5, 6, 7], max_new_tokens=4)
    assert_equals(heard, golden.cases[0])
    read.wait()
    wait_until(lambda: not any(lane.active_slots for lane in bench.parts.lanes.values()))


def test_padding_of_windows_and_of_aligned_transcripts_is_counted(
    bench: Bench, uneven: GoldenSounds
) -> None:
    lane = bench.parts.lanes[uneven.name, 1]
    before = lane.reader.encode_padding_tokens, lane.reader.align_padding_tokens
    tokens = uneven.arrays["token_ids"].tolist()
    with bench.admission_held(uneven.name):
        collected = uneven.submit(bench, 0, tokens, max_new_tokens=0, aligns=True)
        collected.run.valid_length = 20
    ended(collected)
    served = {s.kind: s for _, s in collected.run.uses}
    encode, align = served[GraphKind.ENCODE], served[GraphKind.ALIGN]
    assert lane.reader.encode_padding_tokens - before[0] == encode.rows * uneven.positions - 20
    assert lane.reader.align_padding_tokens - before[1] == align.length - len(tokens)


def request(golden: GoldenSounds, **changes: Any) -> RunRequest:
    """A router's request with changes."""
    asked = RunRequest(
        model=golden.name,
        token_ids=[91, 93],
        options=neutral_options(max_new_tokens=4),
        sound=sound(golden),
    )
    return dataclasses.replace(asked, **changes)


def sound(golden: GoldenSounds) -> Sound:
    return Sound(samples=golden.sound(0).tobytes(), positions=golden.positions)


def test_a_router_request_becomes_a_run(bench: Bench, uneven: GoldenSounds) -> None:
    model = bench.engine.model(uneven.name)
    constraints = TranscriptConstraints(
        first_timestamp=103, last_initial_timestamp=113, no_speech=101, no_speech_position=0
    )
    asked = request(uneven, constraints=constraints)
    check(asked, model)
    run = make_run(asked, model, lambda _: None)
    np.testing.assert_array_equal(run.source, uneven.sound(0))
    assert (run.source_length, run.valid_length) == (uneven.positions, uneven.positions)
    assert run.options.transcript.first_timestamp.tolist() == [103]
    assert run.options.transcript.first_token.tolist() == [[-1, -1]]
    assert run.options.transcript.no_speech_token.tolist() == [101]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sound": Sound(samples=bytes(8), positions=30)}, "sound.samples: must be from 39368 to"),
        (
            {"sound": Sound(samples=bytes(39368), positions=31)},
            "sound.positions: must be from 0 to 30, got 31",
        ),
        ({"source_token_ids": [1]}, "source_token_ids: must be from 0 to 0, got 1"),
        (
            {"constraints": TranscriptConstraints(no_speech_position=2)},
            "options.transcript.no_speech_place: must be from 0 to 1, got 2",
        ),
        (
            {"align_after": 1},
            "options.max_new_tokens: must be from 0 to 0, got 4",
        ),
    ],
)
def test_requests_that_would_break_a_worker_are_refused(
    bench: Bench, uneven: GoldenSounds, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        check(request(uneven, **changes), bench.engine.model(uneven.name))


def test_a_text_model_refuses_a_recording(bench: Bench) -> None:
    asked = RunRequest(
        model=TEXT,
        token_ids=[0],
        source_token_ids=[5],
        options=neutral_options(max_new_tokens=4),
        sound=Sound(samples=b"", positions=1),
    )
    with pytest.raises(InvalidRequestError, match="sound: must not be set: t5-gated makes no"):
        check(asked, bench.engine.model(TEXT))
