"""Recordings: decoding, limits and Whisper's input. Needs no TensorFlow.

Every recording is converted to mono at 16 kHz, or refused with an error that names field, limit and
value.
"""

from shaperouter_service.speech.audio.containers import Container
from shaperouter_service.speech.audio.files import decode_file
from shaperouter_service.speech.audio.pcm import Encoding, PCMDecoder, PCMFormat, decode_pcm
from shaperouter_service.speech.audio.spectrum import SAMPLE_RATE

__all__ = [
    "SAMPLE_RATE",
    "Container",
    "Encoding",
    "PCMDecoder",
    "PCMFormat",
    "decode_file",
    "decode_pcm",
]
