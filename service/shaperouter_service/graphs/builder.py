"""Builders, which make a graph ready: they trace and compile it, or load it from the cache."""

import threading
import time
from collections.abc import Sequence
from typing import Protocol

import structlog

from shaperouter_service.compile_cache import Contents, Part, Section
from shaperouter_service.decoding.lowering import Lowered
from shaperouter_service.errors import ExhaustedError
from shaperouter_service.graphs import xla_cache_dir
from shaperouter_service.graphs.graph_program import CompiledProgram, PlainProgram
from shaperouter_service.graphs.xla_cache_dir import Executable

log = structlog.get_logger(__name__)


class Builder(Protocol):
    """Makes one graph ready: a thread that traces calls `trace`, then one that compiles `compile`.

    Attributes:
        spared_seconds: Time that an earlier process took to make the parts that were found in the
            cache.
    """

    spared_seconds: float

    def trace(self) -> None:
        """Traces the program, or loads it."""

    def compile(self) -> bool:
        """Compiles the program; returns whether it was loaded from the cache instead."""


class GraphBuilder:
    """Traces and compiles one graph: `trace` is called first, then `compile`.

    Only one graph is traced at a time, except where the compile cache rejects a part.
    """

    def __init__(self, program: CompiledProgram) -> None:
        """Prepares to build a program, which is not yet traced or loaded."""
        self._program = program
        # Time that an earlier process took to make the parts that were found in the cache.
        self.spared_seconds = 0.0

    def trace(self) -> None:
        """Traces the program and loads the result into it."""
        self._program.load(self._program.lower())

    def compile(self) -> bool:
        """Compiles the program; returns whether it was loaded from the cache instead."""
        self._program.compile()
        return False


class PlainGraphBuilder:
    """Traces one program whose operations TensorFlow runs one by one: there is nothing to compile.

    Such graphs are not cached, because tracing them takes milliseconds.
    """

    spared_seconds = 0.0

    def __init__(self, program: PlainProgram) -> None:
        """Prepares to trace a program."""
        self._program = program

    def trace(self) -> None:
        """Traces the program."""
        self._program.trace()

    def compile(self) -> bool:
        """Does nothing."""
        return False


class CachedGraphBuilder(GraphBuilder):
    """Builds one graph with the compile cache, which stores two parts of a graph.

    The StableHLO saves tracing, the executable saves compiling. Any process can use the parts that
    another process stored, whatever either traced and compiled before.
    """

    def __init__(self, program: CompiledProgram, section: Section) -> None:
        """Prepares to build a program.

        Args:
            program: The program, not yet traced or loaded.
            section: The cache's section for programs of this model.
        """
        super().__init__(program)
        self._section = section
        # TensorFlow finds the executable by this name. Two models of the same dimensions share it,
        # so their graphs are compiled once.
        self._name = f"{program.label}_{section.key.digest}"
        self._traced: Lowered | None = None
        self._trace_seconds = 0.0

    def trace(self) -> None:
        """Loads the StableHLO from the cache, or traces the program if the cache has none."""
        name = None if self._name in _failed_names else self._name
        kept = self._section.read(self._program.label, Part.MODULE)
        if kept is not None:
            self.spared_seconds += kept.seconds
            lowered = Lowered(module=kept.payload.decode(), weights=tuple(kept.details["weights"]))
            self._program.load(lowered, name)
            return
        started = time.monotonic()
        self._traced = self._program.lower()
        self._trace_seconds = time.monotonic() - started
        self._program.load(self._traced, name)

    def compile(self) -> bool:
        """Loads the executable from the cache, or compiles the program if the cache has none.

        Parts that were missing from the cache are added to it.
        """
        if self._traced is not None:
            self._section.write(
                self._program.label,
                Part.MODULE,
                self._traced.module.encode(),
                seconds=self._trace_seconds,
                weights=self._traced.weights,
            )
        if self._program.compiled_name != self._name or not xla_cache_dir.available():
            # TensorFlow does not use our name for it or remembers a failure of that, or was started
            # without a directory for it.
            log.warning("executable could not be cached", graph=self._program.label)
            self._compile_unkept()
            return False
        with _lock(self._name):
            return self._compile()

    def _compile(self) -> bool:
        kept = self._section.read(self._program.label, Part.EXECUTABLE)
        placed = None if kept is None else _placed(kept)
        started = time.monotonic()
        try:
            self._program.compile()
        # TensorFlow may reject a cached part for any reason; the graph must still be built.
        except Exception as error:
            xla_cache_dir.take(self._name)
            if placed is not None:
                _failed_names.add(self._name)
            suspects = [Part.MODULE] if self._traced is None else []
            suspects += [] if placed is None else [Part.EXECUTABLE]
            # Without memory the attempt fails whatever the cache has.
            if not suspects or ExhaustedError.of(error):
                raise
            self._start_over(suspects, error)
            return False
        seconds = time.monotonic() - started
        made = [executable for executable in xla_cache_dir.take(self._name) if executable != placed]
        for executable in made:
            self._section.write(
                self._program.label,
                Part.EXECUTABLE,
                executable.content,
                seconds=seconds,
                file=executable.file,
            )
        if kept is None or made:
            return False
        self.spared_seconds += kept.seconds
        return True

    def _start_over(self, suspects: Sequence[Part], error: Exception) -> None:
        self.spared_seconds = 0.0
        for part in suspects:
            self._section.drop(self._program.label, part, reason=str(error))
        # Under another name the executable is not cached this time.
        if self._traced is None:
            self._program.load(self._program.lower())
        else:
            self._program.load(self._traced)
        self._compile_unkept()

    def _compile_unkept(self) -> None:
        self._program.compile()
        xla_cache_dir.take(self._program.compiled_name)


def _placed(kept: Contents) -> Executable:
    """Places a cached executable where TensorFlow finds it."""
    executable = Executable(file=str(kept.details["file"]), content=kept.payload)
    xla_cache_dir.place(executable)
    return executable


# Names whose cached executable could not be loaded. TensorFlow remembers that for as long as the
# process lives, so other names are needed: for lack of memory, the next attempt may succeed.
_failed_names: set[str] = set()

_locks: dict[str, threading.Lock] = {}


def _lock(name: str) -> threading.Lock:
    """The lock of a name: only one thread at a time may place and take executables of that name."""
    return _locks.setdefault(name, threading.Lock())
