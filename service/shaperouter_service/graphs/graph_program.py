"""The interface of programs that graphs use: those of `decoding` and of models called once."""

from typing import Protocol

from shaperouter_service.decoding.lowering import Lowered


class _Named(Protocol):
    """The model of a program."""

    @property
    def name(self) -> str: ...


class GraphProgram(Protocol):
    """A program: see `decoding.program.Program` and `functions.program.CallProgram`."""

    traces: int
    device_seconds: float | None

    @property
    def model(self) -> _Named:
        """The model that the program runs."""

    @property
    def label(self) -> str:
        """Label that no program of this model with another computation shares."""


class PlainProgram(GraphProgram, Protocol):
    """A program whose operations TensorFlow runs one by one."""

    def trace(self) -> None:
        """Traces and loads the program."""


class CompiledProgram(GraphProgram, Protocol):
    """A program that XLA compiles."""

    @property
    def compiled_name(self) -> str:
        """TensorFlow's name of the loaded function."""

    def lower(self) -> Lowered:
        """Traces the Python code and lowers it to StableHLO."""

    def load(self, lowered: Lowered, name: str | None = None) -> None:
        """Loads what `lower` returned, here or in an earlier process."""

    def compile(self) -> None:
        """Compiles the loaded program."""
