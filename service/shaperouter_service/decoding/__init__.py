"""The TensorFlow code of graphs: prefill, decode steps, sampling and beam search."""

from shaperouter_service.decoding.align import Aligned, AlignProgram
from shaperouter_service.decoding.batch import Batch
from shaperouter_service.decoding.caches import Caches, Shape
from shaperouter_service.decoding.caches import prepare as prepare_caches
from shaperouter_service.decoding.decode import DecodeProgram
from shaperouter_service.decoding.decode_values import MAX_STEPS, Decoded
from shaperouter_service.decoding.encode import EncodeProgram
from shaperouter_service.decoding.options import Options, TranscriptRules
from shaperouter_service.decoding.prefill import Piece, PrefillProgram
from shaperouter_service.decoding.program import Program
from shaperouter_service.decoding.search import Logprobs
from shaperouter_service.decoding.speculation import BySource
from shaperouter_service.decoding.step_places import MAX_PROPOSALS
from shaperouter_service.decoding.tf_internals import enter_thread

__all__ = [
    "MAX_PROPOSALS",
    "MAX_STEPS",
    "AlignProgram",
    "Aligned",
    "Batch",
    "BySource",
    "Caches",
    "DecodeProgram",
    "Decoded",
    "EncodeProgram",
    "Logprobs",
    "Options",
    "Piece",
    "PrefillProgram",
    "Program",
    "Shape",
    "TranscriptRules",
    "enter_thread",
    "prepare_caches",
]
