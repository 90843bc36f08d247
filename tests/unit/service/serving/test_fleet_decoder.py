"""Windows are decoded by runs on a fleet: their requests, results and refusals."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from harness.calls import a_call, recorder_of
from harness.transcripts import END, TOKENS, decode, transcript
from shaperouter.v1 import transcription_pb2
from shaperouter_service.errors import OverloadedError, ServiceError, WorkerLostError
from shaperouter_service.generation.run_events import (
    AlignedTokens,
    FinishReason,
    Hypothesis,
    NewTokens,
    RunCompletion,
    RunEvent,
    Stalled,
    TokenLogprobs,
)
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.serving.transcription import fleet_decoder
from shaperouter_service.serving.transcription.fleet_decoder import FleetDecoder
from shaperouter_service.serving.transcription.options import Transcribing, resolve_transcription
from shaperouter_service.speech.transcription import Alignment, Attempt, TranscriptSettings
from shaperouter_service.wire.transcription import transcription_options_from_message

WINDOW = np.arange(7, dtype=np.float32)
SETTINGS = TranscriptSettings(
    tokens=TOKENS,
    suppressed=(1, 2),
    begin_suppressed=(3, END),
    last_initial_timestamp=TOKENS.first_timestamp + 50,
    mel_bands=80,
    window_frames=3000,
)
Script = Callable[[RunRequest], Sequence[RunEvent | ServiceError]]


def made(*token_ids: int, logprob: float = -0.5) -> NewTokens:
    return NewTokens(token_ids, [TokenLogprobs(token, logprob) for token in token_ids])


def end(**fields: Any) -> RunCompletion:
    return RunCompletion(
        **{"finish_reason": FinishReason.EOS, "no_speech_probability": 0.25} | fields
    )


class Fleet:
    """Workers that play a script for each run."""

    def __init__(self, script: Script) -> None:
        self.requests: list[RunRequest] = []
        self._script = script

    async def run(
        self, request: RunRequest, *_: Any, **__: Any
    ) -> AsyncGenerator[tuple[str, RunEvent], None]:
        self.requests.append(request)
        for step in self._script(request):
            if isinstance(step, ServiceError):
                raise step
            yield "w0", step


def decoder(
    script: Script, *, stalls: list[Stalled] | None = None, **options: Any
) -> tuple[FleetDecoder, Fleet]:
    fleet = Fleet(script)
    resolved = resolve_transcription(
        transcription_options_from_message(
            transcription_pb2.TranscriptionOptions(language="de", seed=7, **options)
        ),
        TOKENS,
        names={},
        initial_prompt=[],
        max_beams=8,
        step_seconds=None,
    )
    transcribing = Transcribing(
        request_id="r",
        client="c",
        model="m",
        settings=SETTINGS,
        max_length=448,
        resolved=resolved,
        decode=decode,
        deadline=None,
    )
    record = recorder_of(CollectorRegistry(), "whisper").record(a_call())
    reported = [] if stalls is None else stalls
    # The fleet is a fake.
    decoder = FleetDecoder(fleet, transcribing, record, on_stall=reported.append)  # type: ignore[arg-type]
    return decoder, fleet


def attempt(temperature: float = 0.0, first_frame: int = 0, previous: str = "") -> Attempt:
    prompt = TOKENS.start_sequence("de", next(iter(TOKENS.tasks)))
    if previous:
        prompt = [TOKENS.previous, *transcript(previous), *prompt]
    return Attempt(
        first_frame=first_frame,
        frames=1001,
        is_partial=False,
        prompt=prompt,
        temperature=temperature,
    )


SPEECH = transcript(0.0, " hello", 1.0)


def test_a_window_is_decoded_by_the_rules_of_transcripts() -> None:
    window_decoder, fleet = decoder(lambda _: [made(*SPEECH), made(END), end()])
    (decoded,) = asyncio.run(window_decoder.decode(WINDOW, attempt(previous="before")))
    assert decoded.token_ids == SPEECH
    assert decoded.text == " hello"
    assert decoded.sum_logprob == -0.5 * (len(SPEECH) + 1)
    assert decoded.no_speech_probability == 0.25
    (request,) = fleet.requests
    assert request.sound is not None
    assert np.frombuffer(request.sound.samples, "<f4").tolist() == WINDOW.tolist()
    assert request.sound.positions == 500
    options, constraints = request.options, request.constraints
    assert (options["do_sample"], options["num_beams"]) == (False, 1)
    assert options["max_new_tokens"] == 224
    assert options["biases"] == [((1,), -math.inf), ((2,), -math.inf)]
    assert options["eos_token_ids"] == [END]
    assert constraints is not None
    assert constraints.first_timestamp == TOKENS.first_timestamp
    assert constraints.last_initial_timestamp == SETTINGS.last_initial_timestamp
    assert list(constraints.begin_suppressed) == [3, END]
    # After the previous text and the token that precedes it.
    assert constraints.no_speech == TOKENS.no_speech
    assert constraints.no_speech_position == 1 + len("before")


def test_without_timestamps_there_are_no_rules_about_them() -> None:
    window_decoder, fleet = decoder(lambda _: [made(END), end()], timestamps=False)
    asyncio.run(window_decoder.decode(WINDOW, attempt()))
    constraints = fleet.requests[0].constraints
    assert constraints is not None
    assert constraints.first_timestamp is None


def test_a_score_of_beam_search_is_divided_by_its_tokens_without_the_end() -> None:
    best = Hypothesis(token_ids=[*SPEECH, END], finish_reason=FinishReason.EOS, score=-0.25)
    window_decoder, fleet = decoder(lambda _: [end(hypotheses=[best])], num_beams=5)
    (decoded,) = asyncio.run(window_decoder.decode(WINDOW, attempt()))
    assert fleet.requests[0].options["num_beams"] == 5
    assert decoded.token_ids == SPEECH
    assert decoded.sum_logprob == -0.25 * len(SPEECH)


def test_each_sampled_transcript_of_a_window_and_temperature_has_its_own_seed() -> None:
    window_decoder, fleet = decoder(lambda _: [made(END), end()], best_of=3)

    async def sample() -> None:
        for each in (attempt(0.2), attempt(0.4), attempt(0.2, first_frame=3000)):
            assert len(await window_decoder.decode(WINDOW, each)) == 3

    asyncio.run(sample())
    options = [request.options for request in fleet.requests]
    assert len({each["seed"] for each in options}) == 9
    assert {each["temperature"] for each in options} == {0.2, 0.4}
    assert all(each["do_sample"] for each in options)


def test_the_language_is_the_likeliest_language_token() -> None:
    german = TOKENS.languages["de"]
    window_decoder, fleet = decoder(lambda _: [made(german, logprob=math.log(0.75)), end()])
    assert asyncio.run(window_decoder.language(WINDOW)) == ("de", pytest.approx(0.75))
    constraints = fleet.requests[0].constraints
    assert constraints is not None
    assert constraints.min_first_token == min(TOKENS.languages.values())
    assert constraints.max_first_token == END + 4


ALIGNMENT = Alignment(
    first_frame=0,
    frames=1000,
    prefix=[TOKENS.start, TOKENS.no_timestamps],
    words=[(" a", transcript(" a")), (" b", transcript(" b"))],
)


def test_words_are_timed_by_the_positions_that_a_worker_reports() -> None:
    logprobs = [math.log(0.5)] * 4
    aligned = AlignedTokens(positions=[0, 10, 20, 30, 50], logprobs=logprobs)
    window_decoder, fleet = decoder(lambda _: [end(aligned=aligned)])
    first, second = asyncio.run(window_decoder.align(WINDOW, ALIGNMENT))
    assert (first.start, first.end, second.start) == (0.0, 0.4, 0.4)
    assert second.end == 1.0
    assert second.probability == pytest.approx(0.5)
    (request,) = fleet.requests
    assert request.token_ids[:2] == ALIGNMENT.prefix
    assert request.token_ids[-1] == END
    assert (request.align_after, request.options["max_new_tokens"]) == (2, 0)


def test_a_run_whose_completion_was_lost_is_repeated() -> None:
    """A run resumed after its last token has no other results of the lost worker."""
    ends = [RunCompletion(finish_reason=FinishReason.EOS), end()]
    window_decoder, fleet = decoder(lambda _: [made(*SPEECH, END), ends.pop(0)])
    (decoded,) = asyncio.run(window_decoder.decode(WINDOW, attempt()))
    assert decoded.token_ids == SPEECH
    assert len(fleet.requests) == 2


def test_a_transcription_that_has_begun_waits_out_an_overload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(fleet_decoder.asyncio, "sleep", sleep)
    refusals: list[ServiceError] = []
    window_decoder, fleet = decoder(lambda _: [refusals.pop()] if refusals else [made(END), end()])

    async def decode_twice() -> None:
        await window_decoder.decode(WINDOW, attempt())
        refusals.extend([OverloadedError("m", 12.0, 10.0)] * 2)
        await window_decoder.decode(WINDOW, attempt())

    asyncio.run(decode_twice())
    assert pauses == [2.0, 2.0]
    assert len(fleet.requests) == 4


@pytest.mark.parametrize("error", [OverloadedError("m", 12.0, 10.0), WorkerLostError("w0")])
def test_a_transcription_that_has_not_begun_is_refused(error: ServiceError) -> None:
    window_decoder, _ = decoder(lambda _: [error])
    with pytest.raises(type(error)):
        asyncio.run(window_decoder.decode(WINDOW, attempt()))


def test_transcripts_that_wait_for_one_graph_report_one_stall() -> None:
    stall = Stalled(Signature(model="m", kind=GraphKind.DECODE, rows=1, length=448, beams=1))
    stalls: list[Stalled] = []
    window_decoder, _ = decoder(lambda _: [stall, made(END), end()], stalls=stalls)
    asyncio.run(window_decoder.decode(WINDOW, attempt(0.2)))
    assert stalls == [stall]
