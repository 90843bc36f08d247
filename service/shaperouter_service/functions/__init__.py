"""Models that are called once: their programs, functions from files, and the trial of padding."""

from shaperouter_service.functions.joining import (
    Part,
    PartsDifferError,
    common_inputs,
    cut,
    elements,
    join,
    merge,
)
from shaperouter_service.functions.program import (
    CallProgram,
    CompiledCallProgram,
    PlainCallProgram,
    UncompilableError,
)

__all__ = [
    "CallProgram",
    "CompiledCallProgram",
    "Part",
    "PartsDifferError",
    "PlainCallProgram",
    "UncompilableError",
    "common_inputs",
    "cut",
    "elements",
    "join",
    "merge",
]
