"""Recordings that must be refused, and their errors."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import soundfile

from harness.whispers import RATE, noise, wav

HEARD = noise(1.0)
# Offset of a FLAC's length: the low 36 bits of these 8 bytes.
FLAC_LENGTH_AT, FLAC_LENGTH_BITS = 18, 36


def flac_of(hours: int) -> bytes:
    """A file of one second that claims this many hours."""
    file = io.BytesIO()
    soundfile.write(file, HEARD, RATE, format="FLAC")
    content = bytearray(file.getvalue())
    (fields,) = struct.unpack_from(">Q", content, FLAC_LENGTH_AT)
    rest = fields >> FLAC_LENGTH_BITS << FLAC_LENGTH_BITS
    struct.pack_into(">Q", content, FLAC_LENGTH_AT, rest | hours * 3600 * RATE)
    return bytes(content)


def with_nan() -> bytes:
    """Raw samples with a NaN."""
    samples = HEARD.astype(np.float32) / 2**15
    samples[4000] = np.nan
    return samples.tobytes()


# A recording, arguments of a transcription, and the error.
BAD_AUDIO: list[tuple[bytes, dict[str, Any], str]] = [
    (b"", {}, r"audio.content: must have 1 to \d+ bytes, got 0"),
    (
        b"not a recording",
        {},
        "audio.content: must be in one of the formats WAV, FLAC, OGG, MP3, got a file",
    ),
    # A file in the format of `openssl enc`.
    (
        b"Salted__" + bytes(range(200)),
        {},
        "audio.content: must be in one of the formats .* got a file that begins with 53 61 6c 74",
    ),
    (wav(HEARD)[:-999], {}, "audio.content: must be a complete WAV file"),
    (wav(0 * HEARD), {}, "audio.content: must have a sample other than 0, got 16000 samples"),
    (
        wav(HEARD),
        {"audio_format": "flac"},
        "audio.format: must match audio.content, which is WAV; got FLAC",
    ),
    (flac_of(hours=10), {}, "audio.content: must last at most 7200 seconds, got 36000"),
    (
        HEARD.tobytes(),
        {"audio_format": "pcm_s16le", "sample_rate": 0},
        "audio.sample_rate: must have 4000 to 192000 samples per second, got 0",
    ),
    (
        HEARD.tobytes(),
        {"audio_format": "pcm_s16le", "sample_rate": RATE, "channels": 48},
        "audio.channels: must have 1 to 8 channels, got 48",
    ),
    (
        with_nan(),
        {"audio_format": "pcm_f32le", "sample_rate": RATE},
        "audio.content: samples must be numbers .* got nan at 0.250 seconds",
    ),
    (wav(HEARD), {"language": "klingon"}, "options.language: must be one of l0, l1, l2"),
    (wav(HEARD), {"num_beams": 9}, "options.num_beams: must be from 1 to 8, got 9"),
    (
        wav(HEARD),
        {"model": "continuing"},
        "model: must be a model that transcribes recordings, got continuing",
    ),
]
