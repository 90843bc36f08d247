"""Recordings: decoding, limits, and what Whisper hears of them. Needs no TensorFlow.

Whatever comes in, mono at 16 kHz comes out, or an error that names field, limit and value.
"""

from shaperouter_service.audio.containers import Container
from shaperouter_service.audio.files import decode_file
from shaperouter_service.audio.pcm import Encoding, PCMDecoder, PCMFormat, decode_pcm
from shaperouter_service.audio.spectrum import SAMPLE_RATE

__all__ = [
    "SAMPLE_RATE",
    "Container",
    "Encoding",
    "PCMDecoder",
    "PCMFormat",
    "decode_file",
    "decode_pcm",
]
