"""An `Audio` message says what it has, and nothing that contradicts it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import soundfile

from shaperouter.v1 import transcription_pb2
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.speech.audio.declared import decode_audio as decode_blocks
from shaperouter_service.wire.transcription import audio_from_message

SAMPLES = np.array([0, 2**14] * 50, "<i2").tobytes()
PCM = transcription_pb2.AUDIO_FORMAT_PCM_S16LE
FLAC = transcription_pb2.AUDIO_FORMAT_FLAC


def flac() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.frombuffer(SAMPLES, "<i2"), 16000, format="FLAC")
    return file.getvalue()


def decode_audio(audio: transcription_pb2.Audio) -> np.ndarray:
    return np.concatenate(list(decode_blocks(audio_from_message(audio), audio.content)))


@pytest.mark.parametrize(
    "audio",
    [
        {"content": SAMPLES, "format": PCM, "sample_rate": 16000},
        {"content": flac()},
        {"content": flac(), "format": FLAC},
    ],
    ids=["samples", "a file", "a file that is declared"],
)
def test_samples_and_files_are_decoded(audio: dict[str, Any]) -> None:
    decoded = decode_audio(transcription_pb2.Audio(**audio))
    assert decoded.tolist() == [0.0, 0.5] * 50


def test_channels_of_samples_are_mixed() -> None:
    audio = transcription_pb2.Audio(content=SAMPLES, format=PCM, sample_rate=16000, channels=2)
    assert decode_audio(audio).tolist() == [0.25] * 50


@pytest.mark.parametrize(
    ("audio", "message"),
    [
        (
            {"content": SAMPLES, "format": PCM},
            "audio.sample_rate: must be set for raw samples, got none",
        ),
        (
            {"content": SAMPLES, "format": PCM, "sample_rate": 0},
            "audio.sample_rate: must have 4000 to 192000 samples per second, got 0",
        ),
        (
            {"content": flac(), "sample_rate": 16000},
            "audio.sample_rate: must not be set for a file, which states it itself, got 16000",
        ),
        (
            {"content": flac(), "format": FLAC, "channels": 1},
            "audio.channels: must not be set for a file, which states it itself, got 1",
        ),
        (
            {"content": flac(), "format": transcription_pb2.AUDIO_FORMAT_MP3},
            "audio.format: must match audio.content, which is FLAC; got MP3",
        ),
        ({"content": flac(), "format": 99}, "audio.format: must be one of wav, flac"),
        ({}, "audio.content: must have 1 to 536870912 bytes, got 0"),
    ],
)
def test_contradictions_are_refused(audio: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        decode_audio(transcription_pb2.Audio(**audio))
    assert str(raised.value).startswith(message)
