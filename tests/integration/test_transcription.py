"""Recordings are transcribed by a tiny Whisper, through the real client, router and worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from safetensors.numpy import load_file

from harness.bad_audio import BAD_AUDIO
from harness.other_clients import run_with_openai
from harness.service import GOLDENS, START_TIMEOUT, Service, kept_compilations, serving
from harness.waiting import wait_until
from harness.whispers import NAME, RATE, WINDOW_SAMPLES, noise, wav, with_tokenizer
from shaperouter import (
    AudioFormat,
    Client,
    InvalidArgumentError,
    ModelKind,
    TranscribedSegment,
    TranscriptionOptions,
    TranscriptionProgress,
)

CASES = {case["name"]: case for case in json.loads((GOLDENS / f"{NAME}.json").read_text())["cases"]}
SOUNDS = load_file(GOLDENS / f"{NAME}.arrays.safetensors")["sounds"]
# Accepts whatever a random model says.
TRUSTING: TranscriptionOptions = {
    "language": "l1",
    "temperatures": [0.0],
    "logprob_threshold": -float("inf"),
    "no_speech_threshold": 1.0,
    "compression_ratio_threshold": float("inf"),
}
# Windows follow one another without gaps then.
BY_WINDOWS: TranscriptionOptions = TRUSTING | {"timestamps": False}
LONG_SECONDS = 30.0


@pytest.fixture(scope="module")
def hearing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("models")
    with serving(
        f"--model=hearing={with_tokenizer(directory)}",
        f"--model=continuing={GOLDENS / 'gpt2-untied'}",
        "--slots=2",
        env=kept_compilations(),
    ) as service:
        yield service


@pytest.fixture(scope="module")
def client(hearing: Service) -> Iterator[Client]:
    with Client(hearing.address) as client:
        yield client


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("greedy")])
def test_transcripts_equal_the_reference(client: Client, name: str) -> None:
    case = CASES[name]
    (expected,) = case["sequences"]
    right = expected["token_ids"]
    heard = client.transcribe(wav(SOUNDS[case["sound"]]), model="hearing", **TRUSTING)
    found = list(heard.segments[0].token_ids)
    # Up to where two timestamps meet; what has no text, or no length, is left out.
    assert found in [right[start : start + len(found)] for start in range(len(right))]
    assert heard.audio_seconds == pytest.approx(0.6)
    assert heard.language.code == "l1"


def test_the_language_is_detected_and_words_are_timed(client: Client) -> None:
    options: TranscriptionOptions = BY_WINDOWS | {"word_timestamps": True}
    del options["language"]
    heard = client.transcribe(wav(noise(1.5)), model="hearing", **options)
    assert heard.language.code in client.model("hearing").languages
    assert 0.2 <= heard.language.probability <= 1
    for segment in heard.segments:
        assert "".join(word.text for word in segment.words) == segment.text
        times = [(word.start_seconds, word.end_seconds) for word in segment.words]
        assert times == sorted(times)
        assert segment.start_seconds <= times[0][0] <= times[-1][1] <= segment.end_seconds
    kinds = {use.served.kind for use in heard.graphs}
    assert kinds >= {"encode", "decode", "align"}


def test_sampled_transcripts_are_the_same_for_a_seed(client: Client) -> None:
    options: TranscriptionOptions = BY_WINDOWS | {"temperatures": [0.8], "best_of": 3, "seed": 5}
    first, again = (
        client.transcribe(wav(noise(1.2)), model="hearing", **options) for _ in range(2)
    )
    assert first.segments == again.segments
    assert first.seed == 5
    other = client.transcribe(wav(noise(1.2)), model="hearing", **(options | {"seed": 6}))
    assert other.segments != first.segments


def test_samples_are_transcribed_as_they_arrive(client: Client) -> None:
    samples = noise(3.0)
    progress: list[TranscriptionProgress] = []

    def pieces() -> Iterator[bytes]:
        # A window, and what its last frame needs of the next.
        yield samples[: WINDOW_SAMPLES + 800].tobytes()
        wait_until(lambda: bool(progress))
        for start in range(WINDOW_SAMPLES + 800, len(samples), 1600):
            yield samples[start : start + 1600].tobytes()

    with client.transcribe_stream(
        pieces(),
        model="hearing",
        audio_format=AudioFormat.PCM_S16LE,
        sample_rate=RATE,
        on_progress=progress.append,
        **BY_WINDOWS,
    ) as stream:
        segments = list(stream)
    assert stream.result.audio_seconds == pytest.approx(3.0)
    # The first window was transcribed before there was more.
    assert progress[0].received_seconds < 1.0
    assert [each.transcribed_seconds for each in progress][-1] == pytest.approx(3.0)
    assert segments == list(stream.result.segments)


@pytest.mark.parametrize(("audio", "arguments", "message"), BAD_AUDIO)
def test_invalid_recordings_are_refused_by_name(
    client: Client, audio: bytes, arguments: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {"model": "hearing"} | arguments
    with pytest.raises(InvalidArgumentError, match=message):
        client.transcribe(audio, **given)
    with pytest.raises(InvalidArgumentError, match=message):
        list(client.transcribe_stream(audio, **given))


def test_a_transcribing_model_refuses_text(client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match="must be a model that generates from text"):
        client.generate([5, 6], model="hearing")


def test_openais_client_gets_the_native_transcript(
    client: Client, hearing: Service, tmp_path: Path
) -> None:
    recording = tmp_path / "recording.wav"
    recording.write_bytes(wav(noise(1.5)))
    # JSON has no infinity, but a form's texts do.
    options = BY_WINDOWS | {
        name: str(value) for name, value in BY_WINDOWS.items() if "threshold" in name
    }
    found = json.loads(
        run_with_openai(
            "openai_speech.py", hearing.http_url, "hearing", str(recording), json.dumps(options)
        )
    )
    for task, kind in ("transcribe", "transcriptions"), ("translate", "translations"):
        native = client.transcribe(recording.read_bytes(), model="hearing", task=task, **BY_WINDOWS)
        text, formats = native.text.lstrip(), found[kind]
        assert formats["json"]["text"] == text
        assert formats["text"] == f"{text}\n"
        times = [
            (f"00:{start:06.3f}", f"00:{end:06.3f}")
            for start, end in ((s.start_seconds, s.end_seconds) for s in native.segments)
        ]
        assert formats["vtt"] == "WEBVTT\n\n" + "".join(
            f"{start} --> {end}\n{segment.text.strip()}\n\n"
            for (start, end), segment in zip(times, native.segments, strict=True)
        )
        assert formats["srt"].count(" --> ") == len(native.segments)
        verbose = formats["verbose_json"]
        assert verbose["language"] == ("english" if task == "translate" else "l1")
        assert verbose["duration"] == pytest.approx(1.5)
        frames = [each["seek"] for each in verbose["segments"]]
        assert (frames[0], frames) == (0, sorted(frames))
        assert [each["tokens"] for each in verbose["segments"]] == [
            list(each.token_ids) for each in native.segments
        ]
        assert [each["avg_logprob"] for each in verbose["segments"]] == pytest.approx(
            [each.mean_logprob for each in native.segments]
        )
    timed = client.transcribe(
        recording.read_bytes(), model="hearing", word_timestamps=True, **BY_WINDOWS
    )
    assert found["words"] == [
        [word.text.strip(), word.start_seconds, word.end_seconds]
        for segment in timed.segments
        for word in segment.words
    ]
    *deltas, done = found["streamed"]
    assert {kind for kind, _ in deltas} == {"transcript.text.delta"}
    text = found["transcriptions"]["json"]["text"]
    assert "".join(delta for _, delta in deltas) == found["asynchronous"] == text
    assert done == ["transcript.text.done", text]
    assert found["refused"] == ["BadRequestError", "file"]


def test_the_service_continues_after_bad_input(client: Client, hearing: Service) -> None:
    worker, before = (
        hearing.worker_pid(),
        client.transcribe(wav(noise(1.0)), model="hearing", **BY_WINDOWS),
    )
    for audio, arguments, _ in BAD_AUDIO:
        given: dict[str, Any] = {"model": "hearing"} | arguments
        with pytest.raises(InvalidArgumentError):
            client.transcribe(audio, **given)
    assert (
        client.transcribe(wav(noise(1.0)), model="hearing", **BY_WINDOWS).segments
        == before.segments
    )
    assert hearing.worker_pid() == worker
    wait_until(lambda: not hearing.metric("shaperouter_slots", model="hearing", state="active"))


def test_a_model_reports_that_it_transcribes(client: Client) -> None:
    model = client.model("hearing")
    assert model.kind is ModelKind.TRANSCRIBER
    assert model.languages == ("l0", "l1", "l2", "l3", "l4")
    assert model.window_seconds == pytest.approx(0.6)
    assert model.ladders.align_lengths == (64,)


def test_a_cancelled_transcription_frees_its_slot(client: Client, hearing: Service) -> None:
    with client.transcribe_stream(wav(noise(LONG_SECONDS)), model="hearing", **BY_WINDOWS) as heard:
        next(heard)
    wait_until(
        lambda: (
            not hearing.metric("shaperouter_slots", model="hearing", state="active")
            and not hearing.metric("shaperouter_num_requests_running", model="hearing")
        )
    )


def test_metrics_count_transcribed_audio_and_no_graph_is_traced_twice(
    client: Client, hearing: Service
) -> None:
    name = "shaperouter_audio_seconds_total"
    before = hearing.metric(name, model="hearing")
    client.transcribe(wav(noise(1.5)), model="hearing", **BY_WINDOWS)
    assert hearing.metric(name, model="hearing") - before == pytest.approx(1.5)
    assert hearing.metric("shaperouter_real_time_factor_count", model="hearing") > 0
    padding = {"model": "hearing", "kind": "encode"}
    wait_until(lambda: hearing.metric("shaperouter_padding_tokens_total", **padding) > 0)
    traces = {
        labels: value
        for (metric, labels), value in hearing.metrics().items()
        if metric == "shaperouter_graph_traces_total"
    }
    assert traces
    assert max(traces.values()) <= 1


def test_a_transcription_continues_after_a_lost_worker(client: Client, hearing: Service) -> None:
    recording = wav(noise(LONG_SECONDS))
    expected = client.transcribe(recording, model="hearing", **BY_WINDOWS).segments
    assert len(expected) > LONG_SECONDS

    def transcribed(kill: Callable[[], None]) -> tuple[TranscribedSegment, ...]:
        with client.transcribe_stream(recording, model="hearing", **BY_WINDOWS) as stream:
            first = next(stream)
            kill()
            return (first, *stream)

    for segments in hearing.losing_worker(transcribed):
        assert segments == expected


def test_a_transcription_over_http_continues_after_a_lost_worker(
    client: Client, hearing: Service
) -> None:
    hearing.wait_until_ready()
    recording = wav(noise(LONG_SECONDS))
    expected = client.transcribe(recording, model="hearing", **BY_WINDOWS)
    # JSON has no infinity, but a form's texts do.
    fields = {name: str(value).lower() for name, value in BY_WINDOWS.items()}
    del fields["temperatures"]
    fields |= {"model": "hearing", "stream": "true", "temperatures[]": "0"}

    def events(kill: Callable[[], None]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        with httpx.stream(
            "POST",
            f"{hearing.http_url}/v1/audio/transcriptions",
            data=fields,
            files={"file": recording},
            timeout=START_TIMEOUT,
        ) as response:
            for line in response.iter_lines():
                if not line.startswith("data: {"):
                    continue
                if not found:
                    kill()
                found.append(json.loads(line.removeprefix("data: ")))
        return found

    for *deltas, done in hearing.losing_worker(events):
        assert len(deltas) == len(expected.segments)
        assert "".join(each["delta"] for each in deltas) == done["text"] == expected.text.lstrip()
