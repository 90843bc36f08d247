# Generated from _async_transcription_calls.py by `make blocking-client`. Do not edit.

"""The client's calls of models that transcribe."""

import os
from collections.abc import Callable
from typing import Unpack

from shaperouter import _transcription_events, _transcription_requests
from shaperouter._base_client import BaseClient
from shaperouter._signature import Signature
from shaperouter._streams import TranscriptionStream
from shaperouter._transcription import AudioFormat, Transcription, TranscriptionProgress
from shaperouter._transcription_options import TranscriptionOptions
from shaperouter._transcription_requests import Recording


class TranscriptionCalls(BaseClient):
    """The methods that transcribe recordings."""

    def transcribe(
        self,
        audio: bytes | str | os.PathLike[str],
        *,
        model: str = "",
        audio_format: AudioFormat | str | None = None,
        sample_rate: int | None = None,
        channels: int | None = None,
        timeout: float | None = None,
        **options: Unpack[TranscriptionOptions],
    ) -> Transcription:
        """Transcribes a recording and returns the complete transcript.

        Args:
            audio: A WAV, FLAC, OGG or MP3 file, as its content or its path; or raw samples with
                interleaved channels.
            model: Name of the model. Default: the only one that transcribes.
            audio_format: The format of the recording. Default: a file format, detected from the
                content.
            sample_rate: Samples per second; only for raw samples.
            channels: Number of interleaved channels; only for raw samples. Default: 1.
            timeout: Deadline of this call in seconds. Default: the client's.
            **options: How to transcribe; see `TranscriptionOptions`.

        Raises:
            InvalidArgumentError: The recording or an option is invalid.
            ModelNotFoundError: The service has no such model.
            OverloadedError: The queue is full.
            UnavailableError: There is no connection, or the worker was lost.
            DeadlineError: The timeout passed before the end.
        """
        arguments = _transcription_requests.TranscriptionArguments(
            model=model,
            audio_format=audio_format,
            sample_rate=sample_rate,
            channels=channels,
            options=options,
        )
        content = _transcription_requests.read_recording(audio)
        if len(content) <= _transcription_requests.PIECE_BYTES:
            request = _transcription_requests.transcription_request(arguments, content)
            response = self._call(self._stubs.transcription.Transcribe, request, timeout)
            return _transcription_events.response(response)
        return self._transcribe_in_pieces(arguments, content, timeout)

    def transcribe_stream(
        self,
        audio: Recording,
        *,
        model: str = "",
        audio_format: AudioFormat | str | None = None,
        sample_rate: int | None = None,
        channels: int | None = None,
        step_seconds: float | None = None,
        timeout: float | None = None,
        on_stall: Callable[[Signature], None] | None = None,
        on_progress: Callable[[TranscriptionProgress], None] | None = None,
        **options: Unpack[TranscriptionOptions],
    ) -> TranscriptionStream:
        """Transcribes a recording and returns segments as they become final.

        Read the stream in ``with client.transcribe_stream(audio) as stream``, so that it is
        cancelled if the block is left early.

        Raw samples are transcribed as they arrive, a file once it is complete. Errors of the call,
        and errors from reading the recording, are raised while iterating.

        Args:
            audio: As for `transcribe`, or a binary file or an iterable of bytes, which is read as
                the bytes arrive: by a thread, or with asyncio in the event loop. With asyncio, the
                iterable may be asynchronous, and the end of the call closes a generator.
            model: Name of the model. Default: the only one that transcribes.
            audio_format: The format of the recording. Default: a file format, detected from the
                content.
            sample_rate: Samples per second; only for raw samples.
            channels: Number of interleaved channels; only for raw samples. Default: 1.
            step_seconds: Decode an incomplete window after every so many seconds of audio, from 0.5
                to 30, so that segments become final sooner; only for raw samples. Default: only
                whole windows of 30 seconds are decoded.
            timeout: Deadline of the whole stream in seconds. Default: the client's.
            on_stall: Called between segments when the request starts to wait for the compilation of
                a graph.
            on_progress: Called between segments when a window is transcribed.
            **options: How to transcribe; see `TranscriptionOptions`.

        Raises:
            InvalidArgumentError: An argument cannot be sent, or a file cannot be read.
        """
        arguments = _transcription_requests.TranscriptionArguments(
            model=model,
            audio_format=audio_format,
            sample_rate=sample_rate,
            channels=channels,
            options=options,
            step_seconds=step_seconds,
        )
        deadline = self._endpoint.deadline(timeout)
        return self._transcription_stream(
            arguments,
            audio,
            deadline=deadline,
            left=deadline,
            on_stall=on_stall,
            on_progress=on_progress,
        )
