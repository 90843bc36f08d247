"""Bare samples become mono at 16 kHz, in pieces of any size."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.speech.audio import Encoding, PCMDecoder, PCMFormat
from shaperouter_service.speech.audio import decode_pcm as decode_blocks

RANDOM = np.random.default_rng(0)
STEREO = PCMFormat(encoding=Encoding.S16LE, rate=44100, channels=2)
MONO = PCMFormat(encoding=Encoding.S16LE, rate=16000, channels=1)
SAMPLES = RANDOM.integers(-(2**15), 2**15, 2 * 44100).astype("<i2").tobytes()


def decode_pcm(content: bytes, form: PCMFormat) -> np.ndarray:
    return np.concatenate(list(decode_blocks(content, form)))


def test_sixteen_bits_are_from_minus_one_to_one() -> None:
    content = np.array([-(2**15), 0, 2**14], "<i2").tobytes()
    assert decode_pcm(content, MONO).tolist() == [-1.0, 0.0, 0.5]


def test_floats_stay_as_they_are() -> None:
    samples = RANDOM.uniform(-1, 1, 100).astype("<f4")
    floats = PCMFormat(encoding=Encoding.F32LE, rate=16000, channels=1)
    np.testing.assert_array_equal(decode_pcm(samples.tobytes(), floats), samples)


@given(st.lists(st.integers(0, len(SAMPLES)), max_size=6))
def test_pieces_give_what_the_whole_gives(cuts: list[int]) -> None:
    decoder = PCMDecoder(STEREO)
    places = [0, *sorted(cuts), len(SAMPLES)]
    pieces = [SAMPLES[start:end] for start, end in itertools.pairwise(places)]
    decoded = np.concatenate([*(decoder.feed(piece) for piece in pieces), decoder.finish()])
    assert len(decoded) == 16000
    np.testing.assert_allclose(decoded, decode_pcm(SAMPLES, STEREO), atol=1e-6)


def test_a_stream_may_be_silent() -> None:
    decoder = PCMDecoder(MONO)
    assert decoder.feed(bytes(200)).tolist() == [0.0] * 100
    assert decoder.finish().size == 0


@pytest.mark.parametrize(
    ("content", "form", "message"),
    [
        (b"", MONO, "audio.content: must have 1 to 536870912 bytes, got 0"),
        (
            bytes(200),
            MONO,
            "audio.content: must have a sample other than 0, got 100 samples that are all 0",
        ),
        (
            b"1234567",
            STEREO,
            "audio.content: must be whole frames of 4 bytes each, got 7 bytes",
        ),
        (
            b"1234",
            PCMFormat(encoding=Encoding.S16LE, rate=0, channels=1),
            "audio.sample_rate: must have 4000 to 192000 samples per second, got 0",
        ),
        (
            b"1234",
            PCMFormat(encoding=Encoding.S16LE, rate=8000, channels=48),
            "audio.channels: must have 1 to 8 channels, got 48",
        ),
        (
            np.array([0, np.nan], "<f4").tobytes(),
            PCMFormat(encoding=Encoding.F32LE, rate=16000, channels=1),
            "audio.content: samples must be numbers from -32768 to 32768, got nan at 0.000 seconds",
        ),
    ],
)
def test_what_is_over_a_limit_is_refused(content: bytes, form: PCMFormat, message: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        decode_pcm(content, form)
    assert str(raised.value) == message


def test_a_stream_is_refused_once_it_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shaperouter_service.speech.audio.violations.MAX_AUDIO_SECONDS", 1)
    decoder = PCMDecoder(MONO)
    decoder.feed(bytes(32000))
    with pytest.raises(InvalidRequestError, match=r"must last at most 1 seconds, got 1\.5"):
        decoder.feed(bytes(16000))
