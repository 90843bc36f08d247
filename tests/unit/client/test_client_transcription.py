"""Transcription with both clients, against a service that plays a script."""

from __future__ import annotations

import asyncio
import io
import math
import os
import re
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.fake_transcriber import FakeTranscriber
from harness.waiting import TIMEOUT
from shaperouter import (
    AsyncClient,
    CallCancelledError,
    Client,
    DetectedLanguage,
    InvalidArgumentError,
    TranscribedSegment,
    TranscriptionProgress,
    UnavailableError,
    _async_exchange,
)
from shaperouter._transcription_requests import PIECE_BYTES
from shaperouter.v1 import transcription_pb2

README = Path(__file__).parents[3] / "client" / "README.md"


@pytest.fixture
def client(transcriber: FakeTranscriber) -> Iterator[Client]:
    with Client(transcriber.address, timeout=TIMEOUT) as client:
        yield client


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits longer for the status of an ended call, which may be late on a busy machine."""
    monkeypatch.setattr(_async_exchange, "_PATIENCE", TIMEOUT)


# --- Whole recordings -----------------------------------------------------------------------------


def test_small_recording_is_sent_in_one_message(
    transcriber: FakeTranscriber, client: Client
) -> None:
    transcription = client.transcribe(
        b"samples",
        model="whisper",
        audio_format="pcm_s16le",
        sample_rate=8000,
        channels=2,
        language="en",
        task="translate",
        word_timestamps=True,
        temperatures=[0.0, 0.5],
        initial_prompt="Zoë",
        num_beams=4,
    )
    assert transcription.text == "Hello there."
    assert transcription.language == DetectedLanguage(code="en", probability=0.75)
    assert [word.text for one in transcription.segments for word in one.words] == [
        " Hello",
        " there.",
    ]
    assert transcriber.unary == [
        transcription_pb2.TranscribeRequest(
            model="whisper",
            audio=transcription_pb2.Audio(
                content=b"samples",
                format=transcription_pb2.AUDIO_FORMAT_PCM_S16LE,
                sample_rate=8000,
                channels=2,
            ),
            options=transcription_pb2.TranscriptionOptions(
                language="en",
                task=transcription_pb2.TRANSCRIPTION_TASK_TRANSLATE,
                word_timestamps=True,
                temperatures=[0.0, 0.5],
                initial_prompt="Zoë",
                num_beams=4,
            ),
        )
    ]


def test_recording_can_be_the_path_of_a_file(
    transcriber: FakeTranscriber, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    client.transcribe(tmp_path / "a.wav")
    assert transcriber.unary[0].audio.content == b"RIFF"


def test_a_file_is_sent_as_it_is_read(
    transcriber: FakeTranscriber, client: Client, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")

    def write() -> None:
        with (tmp_path / "pipe").open("wb", buffering=0) as pipe:
            pipe.write(b"first")
            assert transcriber.heard.wait(TIMEOUT)
            pipe.write(b"second")

    writer = threading.Thread(target=write)
    writer.start()
    list(client.transcribe_stream(tmp_path / "pipe"))
    writer.join()
    assert transcriber.pieces == [b"first", b"second"]


def test_a_large_recording_is_sent_in_pieces(transcriber: FakeTranscriber, client: Client) -> None:
    content = bytes(2 * PIECE_BYTES + 1)
    assert client.transcribe(content).text == "Hello there."
    assert [len(piece) for piece in transcriber.pieces] == [PIECE_BYTES, PIECE_BYTES, 1]


@pytest.mark.usefixtures("fast_retries")
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_large_recording_is_sent_again(
    transcriber: FakeTranscriber, kind: type[Client | AsyncClient]
) -> None:
    transcriber.losses = 2
    assert _transcribed(kind, transcriber.address, bytes(PIECE_BYTES + 1)) == "Hello there."
    assert [len(piece) for piece in transcriber.pieces] == [PIECE_BYTES, 1]
    assert len(transcriber.starts) == 3


@pytest.mark.usefixtures("fast_retries")
def test_a_large_recording_is_sent_again_as_often_as_the_client_says(
    transcriber: FakeTranscriber,
) -> None:
    transcriber.losses = 3
    lost = pytest.raises(UnavailableError, match="shutting down")
    with Client(transcriber.address, retries=1) as client, lost:
        client.transcribe(bytes(PIECE_BYTES + 1))
    assert len(transcriber.starts) == 2


def test_the_attempts_for_a_large_recording_share_the_deadline(
    transcriber: FakeTranscriber,
) -> None:
    transcriber.losses = 2
    with Client(transcriber.address) as client:
        client.transcribe(bytes(PIECE_BYTES + 1), timeout=10)
    # The pauses between them take at least 0.8 s. gRPC may say up to 3% too much.
    assert transcriber.left[2] < 9.5


def test_a_large_recording_may_have_no_deadline(
    transcriber: FakeTranscriber, client: Client
) -> None:
    client.transcribe(bytes(PIECE_BYTES + 1), timeout=math.inf)
    assert transcriber.left[0] > 1e6


def test_asyncio_client_reports_why_the_service_ended_a_large_recording(
    transcriber: FakeTranscriber,
) -> None:
    # gRPC often replaces the service's status by its own if it ends a call that is being sent.
    trials = 40
    transcriber.losses = trials

    async def send() -> None:
        async with AsyncClient(transcriber.address, timeout=TIMEOUT) as client:
            for _ in range(trials):
                with pytest.raises(UnavailableError, match="shutting down"):
                    async for _ in client.transcribe_stream(bytes(20 * PIECE_BYTES)):
                        pass

    asyncio.run(send())


def test_a_stream_of_segments_is_never_repeated(
    transcriber: FakeTranscriber, client: Client
) -> None:
    transcriber.losses = 1
    with pytest.raises(UnavailableError, match="shutting down"):
        list(client.transcribe_stream(bytes(PIECE_BYTES + 1)))
    assert len(transcriber.starts) == 1


def _transcribed(kind: type[Client | AsyncClient], address: str, content: bytes) -> str:
    if kind is AsyncClient:
        return asyncio.run(_transcribe(address, content))
    with Client(address, timeout=TIMEOUT) as client:
        return client.transcribe(content).text


async def _transcribe(address: str, content: bytes) -> str:
    async with AsyncClient(address, timeout=TIMEOUT) as client:
        return (await client.transcribe(content)).text


@pytest.mark.parametrize("size", [1, PIECE_BYTES + 1])
def test_asyncio_client_sends_and_returns_the_same(transcriber: FakeTranscriber, size: int) -> None:
    assert asyncio.run(_transcribe(transcriber.address, bytes(size))) == "Hello there."
    assert len(transcriber.unary) + len(transcriber.starts) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"audio": 5}, "audio: must be bytes or the path of a file, got int"),
        ({"audio": "nowhere.wav"}, "audio: cannot be read: "),
        ({"audio_format": "aac"}, "audio.format: must be one of wav, flac, ogg, mp3, pcm_s16le, "),
        ({"task": "sing"}, "options.task: must be one of transcribe, translate, got 'sing'"),
        ({"temperatures": 0.5}, "options.temperatures: must be a list of numbers, got 0.5"),
        ({"sample_rate": 2.5}, "audio.sample_rate: must be an integer, got 2.5"),
    ],
)
def test_unsendable_arguments_are_refused(
    client: Client, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        client.transcribe(**({"audio": b"x"} | arguments))
    assert message in str(raised.value)


def test_an_unknown_option_is_a_type_error(client: Client) -> None:
    with pytest.raises(TypeError, match="unknown option 'beams'"):
        client.transcribe(b"x", beams=1)  # type: ignore[call-arg]  # the mistake


# --- Streams --------------------------------------------------------------------------------------


def test_segments_arrive_before_the_recording_ends(
    transcriber: FakeTranscriber, client: Client
) -> None:
    more = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"one"
        assert more.wait(TIMEOUT)
        yield b"two"

    with client.transcribe_stream(pieces(), step_seconds=2.5) as stream:
        first = next(stream)
        assert (str(first), stream.language) == (
            " Hello",
            DetectedLanguage(code="en", probability=0.75),
        )
        more.set()
        assert [str(one) for one in stream] == [" there."]
    assert transcriber.pieces == [b"one", b"two"]
    assert transcriber.starts[0].step_seconds == 2.5
    assert stream.result.seed == 7


def test_on_stall_and_on_progress_are_called(client: Client) -> None:
    told: list[object] = []
    stream = client.transcribe_stream(b"x", on_stall=told.append, on_progress=told.append)
    assert len(list(stream)) == 2
    assert [type(each).__name__ for each in told] == ["Signature", "TranscriptionProgress"]
    assert told[1] == TranscriptionProgress(transcribed_seconds=2.0, received_seconds=4.0)


def test_a_binary_file_is_read_to_its_end(transcriber: FakeTranscriber, client: Client) -> None:
    assert len(list(client.transcribe_stream(io.BytesIO(b"content")))) == 2
    assert b"".join(transcriber.pieces) == b"content"


def test_a_file_that_does_not_block_is_read_to_its_end(
    transcriber: FakeTranscriber, client: Client
) -> None:
    end, other = os.pipe()
    os.set_blocking(end, False)
    with os.fdopen(end, "rb", buffering=0) as pipe, client.transcribe_stream(pipe) as stream:
        for piece in (b"one", b"two"):
            transcriber.heard.clear()
            os.write(other, piece)
            assert transcriber.heard.wait(TIMEOUT)
        os.close(other)
        assert len(list(stream)) == 2
    assert transcriber.pieces == [b"one", b"two"]


def test_error_of_the_recording_is_raised_while_iterating(client: Client) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"one"
        raise OSError("the microphone was unplugged")

    with (
        client.transcribe_stream(pieces()) as stream,
        pytest.raises(OSError, match="the microphone was unplugged"),
    ):
        list(stream)


def test_stream_has_no_result_before_its_end(client: Client) -> None:
    with client.transcribe_stream(b"x") as stream, pytest.raises(RuntimeError):
        _ = stream.result


async def _stream(address: str, *, fails: bool = False) -> list[TranscribedSegment]:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        await asyncio.sleep(0)
        if fails:
            raise OSError("the microphone was unplugged")
        yield b"two"

    async with (
        AsyncClient(address, timeout=TIMEOUT) as client,
        client.transcribe_stream(pieces()) as stream,
    ):
        segments = [one async for one in stream]
        assert stream.result.text == "Hello there."
        return segments


def test_asyncio_client_sends_pieces_of_an_asynchronous_iterable(
    transcriber: FakeTranscriber,
) -> None:
    assert [str(one) for one in asyncio.run(_stream(transcriber.address))] == [" Hello", " there."]
    assert transcriber.pieces == [b"one", b"two"]


def test_asyncio_client_raises_the_error_of_the_recording(transcriber: FakeTranscriber) -> None:
    with pytest.raises(OSError, match="the microphone was unplugged"):
        asyncio.run(_stream(transcriber.address, fails=True))


async def _silence(closed: asyncio.Event) -> AsyncIterator[bytes]:
    """A piece, and then nothing more until it is closed, which takes a while."""
    try:
        yield b"one"
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        closed.set()


@pytest.mark.parametrize("losses", [0, 1], ids=["cancelled", "ended by the service"])
def test_asyncio_client_closes_a_live_recording_with_its_call(
    transcriber: FakeTranscriber, losses: int
) -> None:
    transcriber.losses = losses

    async def scenario() -> None:
        closed = asyncio.Event()
        async with AsyncClient(transcriber.address, timeout=TIMEOUT) as client:
            stream = client.transcribe_stream(_silence(closed))
            await anext(stream)
            if losses:
                with pytest.raises(UnavailableError):
                    await anext(stream)
            else:
                stream.cancel()
            await asyncio.wait_for(closed.wait(), TIMEOUT)

    asyncio.run(scenario())


def test_dropping_the_asyncio_stream_closes_a_live_recording(transcriber: FakeTranscriber) -> None:
    async def scenario() -> None:
        closed = asyncio.Event()
        async with AsyncClient(transcriber.address, timeout=TIMEOUT) as client:
            async for _ in client.transcribe_stream(_silence(closed)):
                break
            await asyncio.wait_for(closed.wait(), TIMEOUT)

    asyncio.run(scenario())


def test_asyncio_stream_that_has_failed_fails_again(transcriber: FakeTranscriber) -> None:
    transcriber.losses = 1

    async def scenario() -> None:
        async with AsyncClient(transcriber.address, timeout=TIMEOUT) as client:
            stream = client.transcribe_stream(b"x")
            await anext(stream)
            for _ in range(3):
                with pytest.raises(UnavailableError, match="shutting down"):
                    await anext(stream)

    asyncio.run(scenario())


def test_asyncio_stream_that_was_cancelled_says_so_at_each_read(
    transcriber: FakeTranscriber,
) -> None:
    async def scenario() -> None:
        async with AsyncClient(transcriber.address, timeout=TIMEOUT) as client:
            stream = client.transcribe_stream(_silence(asyncio.Event()))
            await anext(stream)
            stream.cancel()
            for _ in range(3):
                with pytest.raises(CallCancelledError):
                    await anext(stream)

    asyncio.run(scenario())


def test_asynchronous_recording_needs_an_asyncio_client(
    transcriber: FakeTranscriber, client: Client
) -> None:
    recording: Any = _silence(asyncio.Event())
    with pytest.raises(
        InvalidArgumentError, match="audio: asynchronous pieces need an AsyncClient"
    ):
        client.transcribe_stream(recording)
    assert not transcriber.starts


@pytest.mark.parametrize(
    "block",
    [
        block
        for block in re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
        if "transcribe" in block
    ],
    ids=["whole", "live"],
)
def test_python_of_the_readme_runs(
    client: Client,
    block: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("talk.mp3").write_bytes(b"sound")
    names = {"client": client, "microphone": io.BytesIO(b"samples")}
    exec(compile(block, "README.md", "exec"), names)
    assert " Hello" in capsys.readouterr().out
