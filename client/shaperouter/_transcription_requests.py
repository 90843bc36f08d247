"""Construction of a transcription's messages, in pieces for long recordings."""

import asyncio
import os
import selectors
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Iterable,
    Iterator,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from shaperouter import _values
from shaperouter._enums import by_member
from shaperouter._errors import InvalidArgumentError
from shaperouter._transcription import AudioFormat, TranscriptionTask
from shaperouter._transcription_options import TranscriptionOptions
from shaperouter.v1 import transcription_pb2

Recording = bytes | str | os.PathLike[str] | BinaryIO | Iterable[bytes]
AsyncRecording = Recording | AsyncIterable[bytes]

# Bytes of a message: half of the service's limit, to leave room for the other fields.
PIECE_BYTES = 2 * 2**20
# Bytes to read from a pipe at a time: about a second of speech.
_READ_BYTES = 2**15

_FORMATS = by_member(AudioFormat, transcription_pb2.AudioFormat)
_TASKS = by_member(TranscriptionTask, transcription_pb2.TranscriptionTask)


@dataclass(frozen=True, kw_only=True)
class TranscriptionArguments:
    """The arguments of `Client.transcribe` except the recording.

    Attributes:
        model: Name of the model.
        audio_format: Format of the recording; None to detect it.
        sample_rate: Samples per second, for raw samples.
        channels: Number of channels, for raw samples.
        options: How to transcribe.
        step_seconds: For a stream; see `Client.transcribe_stream`.
    """

    model: str
    audio_format: AudioFormat | str | None
    sample_rate: int | None
    channels: int | None
    options: TranscriptionOptions
    step_seconds: float | None = None


def transcription_request(
    arguments: TranscriptionArguments, content: bytes
) -> transcription_pb2.TranscribeRequest:
    """The request of ``Transcribe``."""
    return transcription_pb2.TranscribeRequest(
        model=_values.text("model", arguments.model),
        audio=_audio(arguments, content),
        options=_options(arguments.options),
    )


def _start(arguments: TranscriptionArguments) -> transcription_pb2.TranscribeStreamRequest:
    """The first message of ``TranscribeStream``, without a piece of the recording."""
    return transcription_pb2.TranscribeStreamRequest(
        start=transcription_pb2.TranscribeStreamStart(
            model=_values.text("model", arguments.model),
            audio=_audio(arguments, b""),
            options=_options(arguments.options),
            step_seconds=None
            if arguments.step_seconds is None
            else _values.number("step_seconds", arguments.step_seconds),
        )
    )


def read_recording(recording: object) -> bytes:
    """Returns a recording that is in memory or in a named file.

    Raises:
        InvalidArgumentError: It is neither, or its file cannot be read.
    """
    if isinstance(recording, bytes | bytearray | memoryview):
        return bytes(recording)
    if not isinstance(recording, str | os.PathLike):
        raise InvalidArgumentError.of(
            "audio", f"must be bytes or the path of a file, got {type(recording).__name__}"
        )
    try:
        return Path(recording).read_bytes()
    except OSError as error:
        raise InvalidArgumentError.of("audio", f"cannot be read: {error}") from error


async def async_read_recording(recording: object) -> bytes:
    """The same as `read_recording`, in a thread."""
    return await asyncio.to_thread(read_recording, recording)


class RecordingMessages:
    """The messages of ``TranscribeStream``, as the recording supplies them.

    gRPC reads them in its own thread or task, which swallows errors from reading the recording.

    Attributes:
        error: The error from reading the recording, if any.
    """

    def __init__(self, arguments: TranscriptionArguments, recording: AsyncRecording) -> None:
        """Opens a named file at once.

        Raises:
            InvalidArgumentError: An argument cannot be sent, or a file cannot be read.
        """
        self._start = _start(arguments)
        if isinstance(recording, bytes | bytearray | memoryview):
            recording = read_recording(recording)
        elif isinstance(recording, str | os.PathLike):
            recording = _pieces_of_file(recording)
        elif not isinstance(recording, Iterable | AsyncIterable) and not hasattr(recording, "read"):
            raise InvalidArgumentError.of(
                "audio",
                "must be bytes, the path of a file, a file or pieces of bytes, got "
                f"{type(recording).__name__}",
            )
        self._recording = recording
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[transcription_pb2.TranscribeStreamRequest]:
        """The messages for blocking code.

        Raises:
            InvalidArgumentError: The recording is asynchronous.
        """
        if isinstance(self._recording, AsyncIterable):
            raise InvalidArgumentError.of("audio", "asynchronous pieces need an AsyncClient")
        return self._messages(self._recording)

    async def __aiter__(self) -> AsyncGenerator[transcription_pb2.TranscribeStreamRequest]:
        """Yields the messages for asyncio. A file or an iterable is read in the event loop."""
        try:
            if isinstance(self._recording, AsyncIterable):
                yield self._start
                pieces = aiter(self._recording)
                try:
                    async for each in pieces:
                        for piece in _split(each):
                            yield transcription_pb2.TranscribeStreamRequest(content=piece)
                finally:
                    if isinstance(pieces, AsyncGenerator):
                        await pieces.aclose()
            else:
                for message in self._messages(self._recording):
                    yield message
        # Keep the error: the caller would otherwise see only a cancelled call.
        except Exception as error:
            self.error = error
            raise

    def _messages(self, recording: Any) -> Iterator[transcription_pb2.TranscribeStreamRequest]:
        try:
            yield self._start
            for piece in _pieces(recording):
                yield transcription_pb2.TranscribeStreamRequest(content=piece)
        # Keep the error: the caller would otherwise see only a cancelled call.
        except Exception as error:
            self.error = error
            raise


def _pieces_of_file(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Opens a file and returns its pieces.

    The file is not read as a whole, because the service may refuse it after the first pieces.
    """
    try:
        file = Path(path).open("rb")  # noqa: SIM115 (closed with the generator)
    except OSError as error:
        raise InvalidArgumentError.of("audio", f"cannot be read: {error}") from error

    def pieces() -> Iterator[bytes]:
        with file:
            # A named pipe has less at a time.
            while piece := file.read1(PIECE_BYTES):
                yield piece

    return pieces()


def _pieces(recording: Any) -> Iterator[bytes]:
    if isinstance(recording, bytes):
        yield from _split(recording)
    elif hasattr(recording, "read"):
        # Read what the pipe has, without waiting for a full buffer.
        read: Callable[[int], bytes | None] = getattr(recording, "read1", recording.read)
        while (piece := read(_READ_BYTES)) != b"":
            if piece is None:  # a file that does not block has nothing yet
                with selectors.DefaultSelector() as selector:
                    selector.register(recording, selectors.EVENT_READ)
                    selector.select()
            else:
                yield piece
    else:
        for each in recording:
            yield from _split(each)


def _split(content: object) -> Iterator[bytes]:
    if not isinstance(content, bytes | bytearray | memoryview):
        raise InvalidArgumentError.of("audio", f"must be bytes, got {_values.shown(content)}")
    for start in range(0, len(content), PIECE_BYTES):
        yield bytes(content[start : start + PIECE_BYTES])


def _audio(arguments: TranscriptionArguments, content: bytes) -> transcription_pb2.Audio:
    fields: dict[str, Any] = {"content": content}
    if arguments.audio_format is not None:
        fields["format"] = _choice("audio.format", arguments.audio_format, _FORMATS)
    for name in ("sample_rate", "channels"):
        value = getattr(arguments, name)
        if value is not None:
            fields[name] = _values.integer(f"audio.{name}", value, bits=32)
    return transcription_pb2.Audio(**fields)


def _options(options: TranscriptionOptions) -> transcription_pb2.TranscriptionOptions:
    return transcription_pb2.TranscriptionOptions(**_values.fields(options, _TO_FIELD))


def _choice(field: str, value: object, choices: dict[Any, Any]) -> Any:
    if not isinstance(value, str) or value not in choices:
        raise InvalidArgumentError.of(
            field, f"must be one of {', '.join(choices)}, got {_values.shown(value)}"
        )
    return choices[value]


def _count(field: str, value: object) -> int:
    return _values.integer(field, value, bits=32)


def _numbers(field: str, values: object) -> list[float]:
    given = _values.items(field, values, "numbers")
    return [_values.number(f"{field}[{index}]", value) for index, value in enumerate(given)]


_TO_FIELD: dict[str, Callable[[str, object], Any]] = {
    "language": _values.text,
    "task": lambda field, value: _choice(field, value, _TASKS),
    "word_timestamps": _values.flag,
    "timestamps": _values.flag,
    "initial_prompt": _values.text,
    "condition_on_previous_text": _values.flag,
    "temperatures": _numbers,
    "num_beams": _count,
    "best_of": _count,
    "compression_ratio_threshold": _values.number,
    "logprob_threshold": _values.number,
    "no_speech_threshold": _values.number,
    "seed": lambda field, value: _values.integer(field, value, bits=64),
}
