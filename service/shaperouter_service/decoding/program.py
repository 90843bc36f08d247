"""A program: one lane's graph of one signature, before and after it is traced."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


class Program:
    """A function of static shapes that is traced once and compiled once.

    Holds one ConcreteFunction and calls it directly: a `tf.function` would take a lock that tracing
    another signature holds. `trace` and `compile` run on a compile thread, `__call__` on the device
    thread, and only after both.

    Attributes:
        traces: Times TensorFlow has run the Python code; anything but 1 after `trace` is a defect.
    """

    def __init__(
        self,
        name: str,
        body: Callable[..., Any],
        specs: Sequence[Any],
        idle_arguments: Sequence[Any],
    ) -> None:
        """Describes the function; nothing is traced yet.

        Args:
            name: Of the function, for profiles and HLO dumps.
            body: Python code of TensorFlow operations.
            specs: The arguments' static shapes.
            idle_arguments: Arguments with no active row: running it with them changes nothing.
        """
        self.traces = 0
        self._specs = specs
        self._idle_arguments = idle_arguments
        self._concrete: Callable[..., Any] | None = None

        def traced(*args: Any) -> Any:
            self.traces += 1
            return body(*args)

        traced.__name__ = name
        self._function = tf.function(traced, jit_compile=True, autograph=False)

    def trace(self) -> None:
        """Turns the Python code into a TensorFlow graph."""
        self._concrete = self._function.get_concrete_function(*self._specs)

    def compile(self) -> None:
        """Compiles the graph, which XLA does at its first call."""
        self(*self._idle_arguments)

    def __call__(self, *args: Any) -> Any:
        """Runs the compiled graph and waits for its result, as NumPy arrays.

        Raises:
            RuntimeError: It was not traced.
        """
        if self._concrete is None:
            raise RuntimeError("a program must be traced before it is called")
        flat = [tf.convert_to_tensor(arg) for arg in tf.nest.flatten(args)]
        return tf.nest.map_structure(lambda tensor: tensor.numpy(), self._concrete(*flat))

    def compiler_ir(self, stage: str) -> str:
        """The compiler's view of the graph, e.g. `hlo` or `optimized_hlo`, to inspect in tests."""
        flat = [tf.convert_to_tensor(arg) for arg in self._idle_arguments]
        return str(self._function.experimental_get_compiler_ir(*flat)(stage=stage))
