"""How a graph becomes ready: by tracing and compiling it, or from the compile cache."""

import functools
import threading
import time
from collections.abc import Callable

import structlog

from shaperouter_service.compile_cache import Contents, Part, Section
from shaperouter_service.decoding.lowering import Lowered
from shaperouter_service.decoding.program import Program
from shaperouter_service.graphs import xla_cache_dir
from shaperouter_service.graphs.xla_cache_dir import Executable

# Traces a program: in this process or in another.
Lowering = Callable[[Program], Lowered]

log = structlog.get_logger(__name__)


def lower_here(program: Program) -> Lowered:
    """Traces a program in this process."""
    return program.lower()


class GraphBuilder:
    """Makes one graph ready: a compile thread calls `trace`, and then `compile`.

    Only one compile thread traces at a time.
    """

    def __init__(self, program: Program, lower: Lowering = lower_here) -> None:
        """Begins with a program that was neither traced nor loaded.

        Args:
            program: It.
            lower: Traces it.
        """
        self._program = program
        self._lower = lower
        # Time that another process took to make the parts that were found in the cache.
        self.spared_seconds = 0.0

    def trace(self) -> None:
        """Gives the program what is to be compiled."""
        self._program.load(self._lower(self._program))

    def compile(self) -> bool:
        """Makes the program ready; returns whether it was loaded instead of compiled."""
        self._program.compile()
        return False


class CachedGraphBuilder(GraphBuilder):
    """Makes one graph ready with the compile cache, which keeps two parts of a graph.

    The StableHLO saves the trace, the executable saves the compilation. Any other process can use
    what one process has made, whatever they traced and compiled before.
    """

    def __init__(self, program: Program, section: Section, lower: Lowering = lower_here) -> None:
        """Begins with a program that was neither traced nor loaded.

        Args:
            program: It.
            section: Of the cache, for programs of its model.
            lower: Traces it.
        """
        super().__init__(program, lower)
        self._section = section
        # By this name TensorFlow finds the executable. Graphs of two models share it if they have
        # the same dimensions, and are compiled once then.
        self._name = f"{program.label}_{section.key.digest}"
        self._traced: Lowered | None = None
        self._trace_seconds = 0.0

    def trace(self) -> None:
        """Takes the StableHLO of the cache; without, traces."""
        kept = self._section.read(self._program.label, Part.MODULE)
        if kept is not None:
            self.spared_seconds += kept.seconds
            lowered = Lowered(module=kept.payload.decode(), weights=tuple(kept.details["weights"]))
            self._program.load(lowered, self._name)
            return
        started = time.monotonic()
        self._traced = self._lower(self._program)
        self._trace_seconds = time.monotonic() - started
        self._program.load(self._traced, self._name)

    def compile(self) -> bool:
        """Takes the executable of the cache; without, compiles. Keeps all that was not there."""
        if self._traced is not None:
            self._section.write(
                self._program.label,
                Part.MODULE,
                self._traced.module.encode(),
                seconds=self._trace_seconds,
                weights=self._traced.weights,
            )
        if self._program.compiled_name != self._name or not xla_cache_dir.available():
            # TensorFlow can't be told its name, or was started without a place for it.
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
        # Whatever TensorFlow has against what the cache had, it must not be the end.
        except Exception as error:
            xla_cache_dir.take(self._name)
            if placed is None and self._traced is not None:
                raise
            self._start_over(error)
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

    def _start_over(self, error: Exception) -> None:
        self.spared_seconds = 0.0
        for part in Part:
            self._section.drop(self._program.label, part, reason=str(error))
        # Under its name, TensorFlow would go on failing it. Under another, it is not kept now.
        if self._traced is None:
            self._program.load(self._lower(self._program))
        else:
            self._program.load(self._traced)
        self._compile_unkept()

    def _compile_unkept(self) -> None:
        self._program.compile()
        xla_cache_dir.take(self._program.compiled_name)


def _placed(kept: Contents) -> Executable:
    """Has TensorFlow find an executable of the cache."""
    executable = Executable(file=str(kept.details["file"]), content=kept.payload)
    xla_cache_dir.place(executable)
    return executable


@functools.cache
def _lock(_: str) -> threading.Lock:
    """The lock of a name: executables of one name must not be placed and taken by two threads."""
    return threading.Lock()
