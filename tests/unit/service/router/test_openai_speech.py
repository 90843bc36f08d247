"""Transcriptions and translations over HTTP, in front of scripted workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest

from harness.forms import END, FORM, form, part
from harness.transcribing import RATE, tone, transcribes
from harness.transcripts import TOKENS
from harness.waiting import TIMEOUT
from harness.whispers import wav
from shaperouter.v1 import transcription_pb2, transcription_pb2_grpc, worker_pb2
from shaperouter_service.edge.http import bodies, server
from shaperouter_service.edge.http.openai import speech
from shaperouter_service.speech.transcription import Task

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]

TRANSCRIPTIONS, TRANSLATIONS = "/v1/audio/transcriptions", "/v1/audio/translations"
RECORDING = wav(tone(1.0))
TASKS = (Task.TRANSLATE, Task.TRANSCRIBE)
# A window of 30 s, and another one.
LONG = wav(tone(40.0))
FIELDS = {"model": "tiny", "language": "en", "temperatures": "0", "seed": "7"}
SAMPLES = FIELDS | {"audio_format": "pcm_s16le", "sample_rate": str(RATE)}


class Caller:
    """A client of the HTTP port."""

    def __init__(self, client: httpx.AsyncClient, router: Router) -> None:
        self.client, self.router = client, router

    async def post(
        self, path: str = TRANSCRIPTIONS, *, file: bytes = RECORDING, **changes: Any
    ) -> httpx.Response:
        """Sends a form as usual clients do: all fields before the file."""
        data = {name: value for name, value in (FIELDS | changes).items() if value is not None}
        return await self.client.post(path, data=data, files={"file": ("a.wav", file)})

    async def send(self, content: Any, **headers: str) -> httpx.Response:
        """Sends any body."""
        return await self.client.post(TRANSCRIPTIONS, content=content, headers=FORM | headers)

    async def native(self, audio: bytes) -> transcription_pb2.TranscribeResponse:
        """The transcript over gRPC."""
        stub = transcription_pb2_grpc.TranscriptionServiceStub(self.router.channel)
        request = transcription_pb2.TranscribeRequest(
            audio=transcription_pb2.Audio(content=audio),
            options=transcription_pb2.TranscriptionOptions(
                language="en", seed=7, temperatures=[0.0]
            ),
        )
        response: transcription_pb2.TranscribeResponse = await stub.Transcribe(
            request, timeout=TIMEOUT
        )
        return response


@pytest.fixture
def http(play: Play, sockets: Path) -> Callable[..., None]:
    """Plays a scenario of an HTTP client and a worker whose model transcribes."""
    path = sockets / "http"

    def run(scenario: Callable[..., Any], **settings: Any) -> None:
        async def with_client(router: Router, worker: FakeWorker) -> None:
            await transcribes(worker)
            transport = httpx.AsyncHTTPTransport(uds=str(path))
            async with httpx.AsyncClient(
                transport=transport, base_url="http://router", timeout=TIMEOUT
            ) as client:
                caller = Caller(client, router)
                # Until the router knows that the model transcribes.
                while (await caller.post()).status_code != 200:
                    pass
                worker.requests.clear()
                await scenario(caller, worker)

        play(with_client, settings=settings | {"http_listen": f"unix:{path}"})

    return run


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    return error


def test_every_format_has_the_native_transcript(http: Any) -> None:
    async def scenario(caller: Caller, worker: FakeWorker) -> None:
        native = await caller.native(LONG)
        first, second = native.segments
        text = native.text.lstrip()
        usage = {"type": "duration", "seconds": 40.0}
        assert (await caller.post(file=LONG)).json() == {"text": text, "usage": usage}
        plain = await caller.post(file=LONG, response_format="text")
        assert plain.text == f"{text}\n"
        assert plain.headers["content-type"] == "text/plain; charset=utf-8"
        cues = [segment.text.strip() for segment in native.segments]
        assert (await caller.post(file=LONG, response_format="srt")).text == (
            f"1\n00:00:00,000 --> 00:00:01,000\n{cues[0]}\n\n"
            f"2\n00:00:30,000 --> 00:00:31,000\n{cues[1]}\n\n"
        )
        assert (await caller.post(file=LONG, response_format="vtt")).text == (
            f"WEBVTT\n\n00:00.000 --> 00:01.000\n{cues[0]}\n\n"
            f"00:30.000 --> 00:31.000\n{cues[1]}\n\n"
        )
        verbose = (await caller.post(file=LONG, response_format="verbose_json")).json()
        segments = verbose.pop("segments")
        assert verbose == {
            "task": "transcribe",
            "language": "english",
            "duration": 40.0,
            "text": text,
            "usage": usage,
        }
        assert [segment["id"] for segment in segments] == [0, 1]
        assert [segment["seek"] for segment in segments] == [0, 3000]
        for found, expected in zip(segments, (first, second), strict=True):
            assert found["text"] == expected.text
            assert found["tokens"] == list(expected.token_ids)
            assert (found["start"], found["end"]) == (expected.start_seconds, expected.end_seconds)
            assert found["temperature"] == expected.temperature
            assert found["avg_logprob"] == pytest.approx(expected.mean_logprob)
            assert found["compression_ratio"] == pytest.approx(expected.compression_ratio)
            assert found["no_speech_prob"] == 0.25

    http(scenario)


def test_fields_may_follow_the_file(http: Any) -> None:
    async def scenario(caller: Caller, worker: FakeWorker) -> None:
        usual = await caller.post(response_format="srt")
        fields = (FIELDS | {"response_format": "srt"}).items()
        response = await caller.send(form(("file", RECORDING), *fields))
        assert response.text == usual.text

    http(scenario)


async def events_of(response: httpx.Response) -> list[Any]:
    """The events of a stream, of which the last must say that it is the last."""
    lines = [line async for line in response.aiter_lines() if line.startswith("data: ")]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_a_stream_has_the_text_of_each_segment(http: Any) -> None:
    async def scenario(caller: Caller, worker: FakeWorker) -> None:
        response = await caller.post(file=LONG, stream="true", response_format="text")
        *deltas, done = await events_of(response)
        assert [delta["type"] for delta in deltas] == ["transcript.text.delta"] * 2
        text = (await caller.post(file=LONG)).json()["text"]
        assert "".join(delta["delta"] for delta in deltas) == text
        assert done == {"type": "transcript.text.done", "text": text}

    http(scenario)


def test_a_stream_that_outlasts_the_grace_of_a_stop_ends_with_the_error(
    http: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_FLUSH", 0.1)

    async def scenario(caller: Caller, worker: FakeWorker) -> None:
        whole, scripts = worker.script_of, [worker.script, [worker.hold]]

        def one_window(request: worker_pb2.RunRequest) -> Any:
            worker.script = scripts.pop(0)
            return whole(request)

        worker.script_of = one_window
        asked = {"data": FIELDS | {"stream": "true"}, "files": {"file": ("a.wav", LONG)}}
        lines = []
        async with caller.client.stream("POST", TRANSCRIPTIONS, **asked) as response:
            async for line in response.aiter_lines():
                caller.router.stop.set()
                lines += [line] if line.startswith("data: ") else []
        error = json.loads(lines[-1].removeprefix("data: "))["error"]
        assert "the service is being stopped" in error["message"]

    http(scenario)


def head(length: str) -> bytes:
    lines = [f"POST {TRANSCRIPTIONS} HTTP/1.1", "host: r", length]
    lines += [f"{name}: {value}" for name, value in FORM.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def test_raw_samples_are_transcribed_as_they_arrive(http: Any, sockets: Path) -> None:
    samples = tone(35.0).tobytes()
    first, rest = samples[: 31 * 2 * RATE], samples[31 * 2 * RATE :]
    fields = b"".join(part(*field) for field in (SAMPLES | {"stream": "true"}).items())
    before = fields + part("file", first)

    async def scenario(caller: Caller, worker: FakeWorker) -> None:
        reader, writer = await asyncio.open_unix_connection(sockets / "http")
        size = len(before) + len(rest) + len(END)
        writer.write(head(f"content-length: {size}") + before)
        while b"transcript.text.delta" not in (line := await reader.readline()):
            assert line
        writer.write(rest + END)
        answer = await reader.readuntil(b"[DONE]")
        assert answer.count(b"transcript.text.delta") == 1
        assert answer.count(b"transcript.text.done") == 1
        writer.close()

    http(scenario)


def test_a_caller_who_leaves_while_samples_arrive_cancels_the_transcription(
    http: Any, sockets: Path, until: Until
) -> None:
    fields = b"".join(part(*field) for field in (SAMPLES | {"stream": "true"}).items())
    begun = fields + part("file", tone(31.0).tobytes())

    async def scenario(caller: Caller, worker: FakeWorker) -> None:
        worker.script = [worker.hold]
        _, writer = await asyncio.open_unix_connection(sockets / "http")
        writer.write(head("content-length: 9000000") + begun)
        await until(lambda: worker.running == 1)
        writer.close()
        await until(lambda: worker.cancelled == 1)

    http(scenario)


@pytest.mark.parametrize("streams", ["true", "false"])
def test_a_caller_who_leaves_frees_the_slot_and_the_memory(
    http: Any, until: Until, streams: str
) -> None:
    async def scenario(caller: Caller, worker: FakeWorker) -> None:
        script, worker.script = worker.script, [worker.hold]
        if streams == "true":
            worker.script.insert(0, worker.stall())
        for _ in range(3):
            call = asyncio.ensure_future(caller.post(file=LONG, stream=streams))
            await until(lambda: worker.running == 1)
            call.cancel()
            await until(lambda: not worker.running)
        assert worker.cancelled == 3
        worker.script = script
        # One client may use half of the memory: just enough for the file and a window of samples.
        assert (await caller.post(file=LONG)).status_code == 200

    http(scenario, max_recording_memory=2 * (len(LONG) + 4 * 40 * RATE))


def test_our_own_options_are_fields(http: Any) -> None:
    async def scenario(caller: Caller, worker: FakeWorker) -> None:
        options: dict[str, Any] = {"temperatures[]": ["0.5", "0.75"], "temperatures": None}
        options |= {"best_of": "2", "prompt": "TensorFlow", "logprob_threshold": "-inf"}
        response = await caller.post(response_format="verbose_json", **options)
        (segment,) = response.json()["segments"]
        assert segment["temperature"] == 0.5
        assert len(worker.requests) == 2
        longer, plain = worker.requests[0].token_ids, 3
        assert len(longer) > plain

    http(scenario)


def test_a_temperature_of_zero_is_raised_for_improbable_transcripts(http: Any) -> None:
    async def scenario(caller: Caller, worker: FakeWorker) -> None:
        asked: dict[str, Any] = {"response_format": "verbose_json", "temperatures": None}
        asked |= {"logprob_threshold": "0", "no_speech_threshold": "1"}
        for given, found in ({"temperature": "0"}, 1.0), ({"temperature": "0.5"}, 0.5):
            response = await caller.post(**asked, **given)
            assert response.json()["segments"][0]["temperature"] == found
        response = await caller.post(**asked | {"temperatures": "0"})
        assert response.json()["segments"][0]["temperature"] == 0.0

    http(scenario)


def test_a_translation_is_english(http: Any) -> None:
    async def scenario(caller: Caller, worker: FakeWorker) -> None:
        asked = {"language": "de", "response_format": "verbose_json"}
        body = (await caller.post(TRANSLATIONS, **asked)).json()
        assert (body["task"], body["language"]) == ("translate", "english")
        body = (await caller.post(**asked)).json()
        assert (body["task"], body["language"]) == ("transcribe", "german")
        prompts = [list(run.token_ids) for run in worker.requests]
        assert prompts == [TOKENS.start_sequence("de", task) for task in TASKS]

    http(scenario)


def test_a_model_that_cannot_translate_refuses(http: Any) -> None:
    async def scenario(caller: Caller, worker: FakeWorker) -> None:
        worker.models[0].transcripts.ClearField("language_token_ids")
        worker.models[0].transcripts.ClearField("task_token_ids")
        await worker.change()
        while (response := await caller.post(TRANSLATIONS)).status_code == 200:
            pass
        assert error_of(response)["param"] == "task"
        assert "English-only" in error_of(response)["message"]

    http(scenario)


# Changes of a request, the field that is wrong, and a part of the message.
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"model": None}, "model", "is required"),
    ({"response_format": "xml"}, "response_format", "json, text, srt, vtt, verbose_json, got"),
    ({"stream": "true", "response_format": "srt"}, "response_format", "when stream is true"),
    ({"stream": "yes"}, "stream", "must be true or false, got 'yes'"),
    ({"temperature": "warm", "temperatures": None}, "temperature", "must be numbers, got ['warm']"),
    ({"temperature": "7", "temperatures": None}, "temperature[0]", "got 7"),
    ({"temperature": "0.5"}, "temperatures", "must not be set with temperature"),
    ({"num_beams": "99"}, "num_beams", "must be from 1 to 8, got 99"),
    ({"num_beams": "two"}, "num_beams", "must be an integer, got 'two'"),
    ({"language": "klingon"}, "language", "must be one of de, en, zh"),
    ({"prompt": "graphs " * 9000}, "prompt", "must have at most"),
    ({"timestamp_granularities[]": "word"}, "timestamp_granularities", "is verbose_json"),
    (
        {"timestamp_granularities[]": "letter", "response_format": "verbose_json"},
        "timestamp_granularities",
        "must be segment or word, got ['letter']",
    ),
    ({"include[]": "logprobs"}, "include", "is not supported (transcripts have no log-pro"),
    ({"chunking_strategy": "vad"}, "chunking_strategy", "must be 'auto' or 'none', got 'vad'"),
    ({"chunking_strategy[type]": "server_vad"}, "chunking_strategy[type]", "is unknown"),
    ({"known_speaker_names[]": "me"}, "known_speaker_names[]", "is unknown"),
    ({"keywords": "me"}, "keywords", "is not supported, got 'me'"),
    ({"word_timestamps": "true"}, "word_timestamps", "timestamp_granularities is"),
    ({"task": "translate"}, "task", "must be 'transcribe' (the path says the task)"),
    ({"audio_format": "aiff"}, "audio_format", "must be one of wav, flac, ogg, mp3, pcm_s16le"),
    ({"audio_format": "flac"}, "audio_format", "which is WAV; got FLAC"),
    ({"audio_format": "pcm_s16le"}, "sample_rate", "must be set for raw samples"),
    ({"sample_rate": "8000"}, "sample_rate", "must not be set for a file"),
    ({"step_seconds": "1"}, "step_seconds", "must not be set unless"),
    ({"unheard": "1"}, "unheard", "is unknown"),
    ({"seed": ["1", "2"]}, "seed", "must occur once, got 2 values"),
    ({"file": b"not a recording"}, "file", "must be in one of the formats WAV"),
    ({"file": RECORDING[:-999]}, "file", "must be a complete WAV file"),
    ({"file": b""}, "file", "must have 1 to"),
]


def test_fields_that_cannot_be_used_are_refused(http: Any) -> None:
    async def scenario(caller: Caller, worker: FakeWorker) -> None:
        for changes, param, told in REFUSED:
            response = await caller.post(**changes)
            assert response.status_code == 400, changes
            assert error_of(response)["param"] == param
            assert told in error_of(response)["message"]
        # An error before the first segment has a status.
        response = await caller.post(stream="true", file=RECORDING[:-999])
        assert response.status_code == 400
        assert not worker.requests

    http(scenario)


# A body, the status of its answer, and a part of the message.
BAD_FORMS: list[tuple[bytes, int, str]] = [
    (form(*FIELDS.items()), 400, "file: is required"),
    (form(("file", b"a"), ("file", b"b")), 400, "file: must occur once"),
    (form(*SAMPLES.items(), ("file", b"ab"), ("stream", "true")), 400, "must come before file"),
    (form(("file", RECORDING))[:-20], 400, "it ends before its last boundary"),
    (form(("a", b"\xff")), 400, "a must be UTF-8"),
    (form(*[("a", "b")] * 129), 400, "at most 128 parts"),
    (part("a", "b").replace(b"form-data", b"attachment") + END, 400, "each part must have"),
    (part("a", "Yg==", "content-transfer-encoding: base64") + END, 400, "got 'base64'"),
    (part("a", "b", f"x: {'y' * 5000}") + END, 400, "header size"),
    (form(("prompt", "x" * 2**20)), 413, "all fields but file must have at most 1048576 bytes"),
    (b"no form", 400, "the body must be a multipart form"),
    (b"", 400, "it ends before its last boundary"),
]


def test_bodies_that_are_no_request_are_refused(http: Any) -> None:
    async def scenario(caller: Caller, worker: FakeWorker) -> None:
        for content, status, told in BAD_FORMS:
            response = await caller.send(content)
            assert response.status_code == status, content[:200]
            assert told in error_of(response)["message"]

    http(scenario)


# Headers, likewise; an empty message where the request is answered.
HEADERS: list[tuple[dict[str, str], int, str]] = [
    ({"content-type": "application/json"}, 415, "must be multipart/form-data, got 'applic"),
    ({"content-type": "multipart/form-data"}, 400, "boundary must have from 1 to 70"),
    ({"content-type": f"multipart/form-data; boundary={'b' * 71}"}, 400, "got 71"),
    ({"content-encoding": "gzip"}, 415, "content-encoding of a form must be identity, got 'gzip'"),
    ({"content-encoding": "br"}, 415, "got 'br'"),
    ({"content-encoding": "Identity"}, 200, ""),
    ({"origin": "https://evil.example"}, 403, "got a form from 'https://evil.example'"),
    ({"origin": "null"}, 403, "pages of other sites must send a bearer token"),
    ({"origin": "https://evil.example", "authorization": "Bearer x"}, 200, ""),
    ({"origin": "http://router"}, 200, ""),
]


def test_forms_of_another_type_encoding_or_site_are_refused(http: Any) -> None:
    async def scenario(caller: Caller, worker: FakeWorker) -> None:
        content = form(*FIELDS.items(), ("file", RECORDING))
        for headers, status, told in HEADERS:
            response = await caller.send(content, **headers)
            assert response.status_code == status, headers
            assert not told or told in error_of(response)["message"]

    http(scenario)


def test_a_form_has_a_maximum_size(
    http: Any, monkeypatch: pytest.MonkeyPatch, sockets: Path
) -> None:
    monkeypatch.setattr(speech, "MAX_AUDIO_BYTES", 2**20)

    async def parts() -> Any:
        yield part("file", b"")
        for _ in range(40):
            yield b" " * 2**16

    async def scenario(caller: Caller, worker: FakeWorker) -> None:
        # Whether or not its length is announced.
        assert (await caller.send(parts())).status_code == 413
        reader, writer = await asyncio.open_unix_connection(sockets / "http")
        writer.write(head(f"content-length: {2**22}"))
        assert (await reader.readline()).startswith(b"HTTP/1.1 413")
        writer.close()

    http(scenario)


def test_a_form_that_does_not_arrive_is_given_up(
    http: Any, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(*_: Any) -> None:
        monkeypatch.setattr(bodies, "BODY_SECONDS", 0.05)
        reader, writer = await asyncio.open_unix_connection(sockets / "http")
        writer.write(head("content-length: 100") + b"\r\n--")
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()

    http(scenario)


def test_a_recording_takes_its_share_of_the_memory(http: Any, sockets: Path) -> None:
    begun = part("file", tone(18.0).tobytes())

    async def scenario(caller: Caller, worker: FakeWorker) -> None:
        large = await caller.post(file=LONG)
        assert (large.status_code, error_of(large)["param"]) == (400, "file")
        assert "half of this service's --max-recording-memory" in error_of(large)["message"]
        # A form that is still arriving takes some.
        _, writer = await asyncio.open_unix_connection(sockets / "http")
        writer.write(head("content-length: 900000") + begun)
        while (response := await caller.post(file=wav(tone(5.0)))).status_code == 200:
            pass
        assert response.status_code == 429
        assert error_of(response)["code"] == "recording_memory_full"
        writer.close()
        while (await caller.post(file=wav(tone(5.0)))).status_code != 200:
            pass

    http(scenario, max_recording_memory=1_500_000)
