"""Transcription with both clients and the command, against a service that plays a script."""

from __future__ import annotations

import asyncio
import io
import json
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner, Result

from shaperouter import (
    AsyncClient,
    CallCancelledError,
    Client,
    DetectedLanguage,
    InvalidArgumentError,
    TranscribedSegment,
    TranscriptionProgress,
    UnavailableError,
)
from shaperouter._cli._main import cli
from shaperouter._transcription_requests import PIECE_BYTES
from shaperouter.v1 import (
    generation_pb2,
    signature_pb2,
    transcription_pb2,
    transcription_pb2_grpc,
)

Event = transcription_pb2.TranscribeStreamResponse
PATIENCE = 10.0
SIGNATURE = signature_pb2.Signature(
    model="whisper", kind=signature_pb2.GRAPH_KIND_ENCODE, rows=1, length=1500, beams=1
)


def segment(text: str, start: float) -> transcription_pb2.TranscribedSegment:
    word = transcription_pb2.TranscribedWord(
        text=text, start_seconds=start, end_seconds=start + 1, probability=0.5
    )
    return transcription_pb2.TranscribedSegment(
        start_seconds=start, end_seconds=start + 1, text=text, token_ids=[1, 2], words=[word]
    )


COMPLETION = transcription_pb2.TranscriptionCompletion(
    request_id="req-7",
    model="whisper",
    language=transcription_pb2.DetectedLanguage(code="en", probability=0.75),
    audio_seconds=4.0,
    total_seconds=1.0,
    device_seconds=0.5,
    seed=7,
    graphs=[generation_pb2.GraphUse(asked=SIGNATURE, served=SIGNATURE, calls=1)],
)
SEGMENTS = [segment(" Hello", 0.0), segment(" there.", 2.0)]
COMMAND = Path(sys.executable).with_name("shaperouter")
README = Path(__file__).parents[3] / "client" / "README.md"


class FakeTranscriber(transcription_pb2_grpc.TranscriptionServiceServicer):
    """Keeps its requests and answers with two segments."""

    def __init__(self) -> None:
        self.unary: list[transcription_pb2.TranscribeRequest] = []
        self.starts: list[transcription_pb2.TranscribeStreamStart] = []
        self.pieces: list[bytes] = []
        self.heard = threading.Event()  # the first piece has come
        self.losses = 0  # of the next streams, after their first segment
        self.left: list[float] = []  # seconds of each stream
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
        transcription_pb2_grpc.add_TranscriptionServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait(PATIENCE)

    def Transcribe(  # noqa: N802 (gRPC's name)
        self, request: transcription_pb2.TranscribeRequest, context: grpc.ServicerContext
    ) -> transcription_pb2.TranscribeResponse:
        del context
        self.unary.append(request)
        return transcription_pb2.TranscribeResponse(segments=SEGMENTS, completion=COMPLETION)

    def TranscribeStream(  # noqa: N802 (gRPC's name)
        self,
        requests: Iterator[transcription_pb2.TranscribeStreamRequest],
        context: grpc.ServicerContext,
    ) -> Iterator[Event]:
        self.left.append(context.time_remaining())
        self.starts.append(next(requests).start)
        self.pieces.clear()
        yield Event(stall=generation_pb2.Stall(signature=SIGNATURE))
        yield Event(language=COMPLETION.language)
        for request in requests:
            if not self.pieces:
                yield Event(segment=SEGMENTS[0])
                if len(self.starts) <= self.losses:
                    context.abort(grpc.StatusCode.UNAVAILABLE, "shutting down")
            self.pieces.append(request.content)
            self.heard.set()
        progress = transcription_pb2.TranscriptionProgress(
            transcribed_seconds=2.0, received_seconds=4.0
        )
        yield Event(progress=progress)
        yield Event(segment=SEGMENTS[1])
        yield Event(completion=COMPLETION)


@pytest.fixture
def fake() -> Iterator[FakeTranscriber]:
    fake = FakeTranscriber()
    yield fake
    fake.stop()


@pytest.fixture
def client(fake: FakeTranscriber) -> Iterator[Client]:
    with Client(fake.address, timeout=PATIENCE) as client:
        yield client


# --- Whole recordings -----------------------------------------------------------------------------


def test_small_recording_is_sent_in_one_message(fake: FakeTranscriber, client: Client) -> None:
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
    assert fake.unary == [
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
    fake: FakeTranscriber, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    client.transcribe(tmp_path / "a.wav")
    assert fake.unary[0].audio.content == b"RIFF"


def test_a_file_is_sent_as_it_is_read(
    fake: FakeTranscriber, client: Client, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")

    def write() -> None:
        with (tmp_path / "pipe").open("wb", buffering=0) as pipe:
            pipe.write(b"first")
            assert fake.heard.wait(PATIENCE)
            pipe.write(b"second")

    writer = threading.Thread(target=write)
    writer.start()
    list(client.transcribe_stream(tmp_path / "pipe"))
    writer.join()
    assert fake.pieces == [b"first", b"second"]


def test_a_large_recording_is_sent_in_pieces(fake: FakeTranscriber, client: Client) -> None:
    content = bytes(2 * PIECE_BYTES + 1)
    assert client.transcribe(content).text == "Hello there."
    assert [len(piece) for piece in fake.pieces] == [PIECE_BYTES, PIECE_BYTES, 1]


@pytest.mark.usefixtures("fast_retries")
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_large_recording_is_sent_again(
    fake: FakeTranscriber, kind: type[Client | AsyncClient]
) -> None:
    fake.losses = 2
    assert _transcribed(kind, fake.address, bytes(PIECE_BYTES + 1)) == "Hello there."
    assert [len(piece) for piece in fake.pieces] == [PIECE_BYTES, 1]
    assert len(fake.starts) == 3


@pytest.mark.usefixtures("fast_retries")
def test_a_large_recording_is_sent_again_as_often_as_the_client_says(fake: FakeTranscriber) -> None:
    fake.losses = 3
    lost = pytest.raises(UnavailableError, match="shutting down")
    with Client(fake.address, retries=1) as client, lost:
        client.transcribe(bytes(PIECE_BYTES + 1))
    assert len(fake.starts) == 2


def test_the_attempts_for_a_large_recording_share_the_deadline(fake: FakeTranscriber) -> None:
    fake.losses = 2
    with Client(fake.address) as client:
        client.transcribe(bytes(PIECE_BYTES + 1), timeout=10)
    # The pauses between them take at least 0.8 s. gRPC may say up to 3% too much.
    assert fake.left[2] < 9.5


def test_a_large_recording_may_have_no_deadline(fake: FakeTranscriber, client: Client) -> None:
    client.transcribe(bytes(PIECE_BYTES + 1), timeout=math.inf)
    assert fake.left[0] > 1e6


def test_asyncio_client_reports_why_the_service_ended_a_large_recording(
    fake: FakeTranscriber,
) -> None:
    # gRPC often replaces the service's status by its own if it ends a call that is being sent.
    trials = 40
    fake.losses = trials

    async def send() -> None:
        async with AsyncClient(fake.address, timeout=PATIENCE) as client:
            for _ in range(trials):
                with pytest.raises(UnavailableError, match="shutting down"):
                    async for _ in client.transcribe_stream(bytes(20 * PIECE_BYTES)):
                        pass

    asyncio.run(send())


def test_a_stream_of_segments_is_never_repeated(fake: FakeTranscriber, client: Client) -> None:
    fake.losses = 1
    with pytest.raises(UnavailableError, match="shutting down"):
        list(client.transcribe_stream(bytes(PIECE_BYTES + 1)))
    assert len(fake.starts) == 1


def _transcribed(kind: type[Client | AsyncClient], address: str, content: bytes) -> str:
    if kind is AsyncClient:
        return asyncio.run(_transcribe(address, content))
    with Client(address, timeout=PATIENCE) as client:
        return client.transcribe(content).text


async def _transcribe(address: str, content: bytes) -> str:
    async with AsyncClient(address, timeout=PATIENCE) as client:
        return (await client.transcribe(content)).text


@pytest.mark.parametrize("size", [1, PIECE_BYTES + 1])
def test_asyncio_client_sends_and_returns_the_same(fake: FakeTranscriber, size: int) -> None:
    assert asyncio.run(_transcribe(fake.address, bytes(size))) == "Hello there."
    assert len(fake.unary) + len(fake.starts) == 1


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


def test_segments_arrive_before_the_recording_ends(fake: FakeTranscriber, client: Client) -> None:
    more = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"one"
        assert more.wait(PATIENCE)
        yield b"two"

    with client.transcribe_stream(pieces(), step_seconds=2.5) as stream:
        first = next(stream)
        assert (str(first), stream.language) == (
            " Hello",
            DetectedLanguage(code="en", probability=0.75),
        )
        more.set()
        assert [str(one) for one in stream] == [" there."]
    assert fake.pieces == [b"one", b"two"]
    assert fake.starts[0].step_seconds == 2.5
    assert stream.result.seed == 7


def test_on_stall_and_on_progress_are_called(client: Client) -> None:
    told: list[object] = []
    stream = client.transcribe_stream(b"x", on_stall=told.append, on_progress=told.append)
    assert len(list(stream)) == 2
    assert [type(each).__name__ for each in told] == ["Signature", "TranscriptionProgress"]
    assert told[1] == TranscriptionProgress(transcribed_seconds=2.0, received_seconds=4.0)


def test_a_binary_file_is_read_to_its_end(fake: FakeTranscriber, client: Client) -> None:
    assert len(list(client.transcribe_stream(io.BytesIO(b"content")))) == 2
    assert b"".join(fake.pieces) == b"content"


def test_a_file_that_does_not_block_is_read_to_its_end(
    fake: FakeTranscriber, client: Client
) -> None:
    end, other = os.pipe()
    os.set_blocking(end, False)
    with os.fdopen(end, "rb", buffering=0) as pipe, client.transcribe_stream(pipe) as stream:
        for piece in (b"one", b"two"):
            fake.heard.clear()
            os.write(other, piece)
            assert fake.heard.wait(PATIENCE)
        os.close(other)
        assert len(list(stream)) == 2
    assert fake.pieces == [b"one", b"two"]


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
        AsyncClient(address, timeout=PATIENCE) as client,
        client.transcribe_stream(pieces()) as stream,
    ):
        segments = [one async for one in stream]
        assert stream.result.text == "Hello there."
        return segments


def test_asyncio_client_sends_pieces_of_an_asynchronous_iterable(fake: FakeTranscriber) -> None:
    assert [str(one) for one in asyncio.run(_stream(fake.address))] == [" Hello", " there."]
    assert fake.pieces == [b"one", b"two"]


def test_asyncio_client_raises_the_error_of_the_recording(fake: FakeTranscriber) -> None:
    with pytest.raises(OSError, match="the microphone was unplugged"):
        asyncio.run(_stream(fake.address, fails=True))


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
    fake: FakeTranscriber, losses: int
) -> None:
    fake.losses = losses

    async def scenario() -> None:
        closed = asyncio.Event()
        async with AsyncClient(fake.address, timeout=PATIENCE) as client:
            stream = client.transcribe_stream(_silence(closed))
            await anext(stream)
            if losses:
                with pytest.raises(UnavailableError):
                    await anext(stream)
            else:
                stream.cancel()
            await asyncio.wait_for(closed.wait(), PATIENCE)

    asyncio.run(scenario())


def test_dropping_the_asyncio_stream_closes_a_live_recording(fake: FakeTranscriber) -> None:
    async def scenario() -> None:
        closed = asyncio.Event()
        async with AsyncClient(fake.address, timeout=PATIENCE) as client:
            async for _ in client.transcribe_stream(_silence(closed)):
                break
            await asyncio.wait_for(closed.wait(), PATIENCE)

    asyncio.run(scenario())


def test_asyncio_stream_that_has_failed_fails_again(fake: FakeTranscriber) -> None:
    fake.losses = 1

    async def scenario() -> None:
        async with AsyncClient(fake.address, timeout=PATIENCE) as client:
            stream = client.transcribe_stream(b"x")
            await anext(stream)
            for _ in range(3):
                with pytest.raises(UnavailableError, match="shutting down"):
                    await anext(stream)

    asyncio.run(scenario())


def test_asyncio_stream_that_was_cancelled_says_so_at_each_read(fake: FakeTranscriber) -> None:
    async def scenario() -> None:
        async with AsyncClient(fake.address, timeout=PATIENCE) as client:
            stream = client.transcribe_stream(_silence(asyncio.Event()))
            await anext(stream)
            stream.cancel()
            for _ in range(3):
                with pytest.raises(CallCancelledError):
                    await anext(stream)

    asyncio.run(scenario())


def test_asynchronous_recording_needs_an_asyncio_client(
    fake: FakeTranscriber, client: Client
) -> None:
    recording: Any = _silence(asyncio.Event())
    with pytest.raises(
        InvalidArgumentError, match="audio: asynchronous pieces need an AsyncClient"
    ):
        client.transcribe_stream(recording)
    assert not fake.starts


# --- The command ----------------------------------------------------------------------------------


def run(fake: FakeTranscriber, *arguments: str, stdin: bytes | None = None) -> Result:
    options = ["--address", fake.address, "--timeout", "10"]
    return CliRunner().invoke(cli, [*options, "transcribe", *arguments], input=stdin)


def test_command_prints_lines_of_text(fake: FakeTranscriber, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    result = run(fake, str(tmp_path / "a.wav"))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Hello\nthere.\n", "")
    assert fake.pieces == [b"RIFF"]


def test_command_reads_a_pipe(fake: FakeTranscriber) -> None:
    result = run(
        fake, "-", "--audio-format", "pcm_s16le", "--sample-rate", "16000", stdin=b"samples"
    )
    assert result.exit_code == 0, result.stderr
    assert b"".join(fake.pieces) == b"samples"
    assert fake.starts[0].audio.sample_rate == 16000


def test_command_ends_with_its_call_while_stdin_is_open(fake: FakeTranscriber) -> None:
    fake.losses = 1
    with subprocess.Popen(
        [COMMAND, "transcribe", "-", "--address", fake.address],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("samples")
        process.stdin.flush()
        assert process.wait(60) == 1
        assert process.stderr.read() == "Error: shutting down\n"


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["--word-timestamps"], ["     0.00      1.00  Hello", "     2.00      3.00  there."]),
        (
            ["--format", "srt"],
            [
                *("1", "00:00:00,000 --> 00:00:01,000", "Hello", ""),
                *("2", "00:00:02,000 --> 00:00:03,000", "there.", ""),
            ],
        ),
        (
            ["--format", "vtt"],
            [
                *("WEBVTT", "", "00:00:00.000 --> 00:00:01.000", "Hello", ""),
                *("00:00:02.000 --> 00:00:03.000", "there.", ""),
            ],
        ),
    ],
)
def test_command_prints_words_and_subtitles(
    fake: FakeTranscriber, arguments: list[str], printed: list[str]
) -> None:
    assert run(fake, "-", *arguments, stdin=b"x").stdout.splitlines() == printed


@pytest.mark.parametrize("arguments", [["--format", "json"], ["--json"]])
def test_command_prints_json(fake: FakeTranscriber, arguments: list[str]) -> None:
    printed = json.loads(run(fake, "-", *arguments, stdin=b"x").stdout)
    assert printed["text"] == "Hello there."
    assert printed["segments"][0]["words"][0]["text"] == " Hello"


def test_command_sends_every_option(fake: FakeTranscriber) -> None:
    options = (
        "--language de --task translate --word-timestamps --no-timestamps --initial-prompt Zoë "
        "--no-condition-on-previous-text --temperature 0 --temperature 0.5 --num-beams 4 "
        "--best-of 2 --compression-ratio-threshold 3 --logprob-threshold -2 "
        "--no-speech-threshold 0.5 --seed 3 --step-seconds 2 --channels 2"
    )
    result = run(fake, "-", *options.split(), stdin=b"x")
    assert result.exit_code == 0, result.stderr
    (start,) = fake.starts
    assert start.options == transcription_pb2.TranscriptionOptions(
        language="de",
        task=transcription_pb2.TRANSCRIPTION_TASK_TRANSLATE,
        word_timestamps=True,
        timestamps=False,
        initial_prompt="Zoë",
        condition_on_previous_text=False,
        temperatures=[0.0, 0.5],
        num_beams=4,
        best_of=2,
        compression_ratio_threshold=3.0,
        logprob_threshold=-2.0,
        no_speech_threshold=0.5,
        seed=3,
    )
    assert (start.step_seconds, start.audio.channels) == (2.0, 2)


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


def test_word_timestamps_are_refused_for_subrip(fake: FakeTranscriber) -> None:
    result = run(fake, "-", "--format", "srt", "--word-timestamps", stdin=b"x")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--word-timestamps cannot be used with --format srt" in result.stderr
    assert not fake.starts
