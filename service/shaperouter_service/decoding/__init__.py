"""What graphs compute, as TensorFlow code: lanes of slots, prefill, decode steps, sampling."""

from shaperouter_service.decoding.decode import MAX_STEPS, decode_program
from shaperouter_service.decoding.lane import Lane
from shaperouter_service.decoding.options import SlotOptions
from shaperouter_service.decoding.prefill import prefill_program

__all__ = [
    "MAX_STEPS",
    "Lane",
    "SlotOptions",
    "decode_program",
    "prefill_program",
]
