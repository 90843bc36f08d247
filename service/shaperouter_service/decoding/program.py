"""A program: the graph of one signature, before and after it is traced."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from shaperouter_service.decoding.batch import Batch
from shaperouter_service.models import Model


class Program(abc.ABC):
    """A function over batches of R rows and T places, that is traced once and compiled once.

    Holds one ConcreteFunction and calls it directly: a `tf.function` would take a lock that tracing
    another signature holds. `trace` and `compile` run on a compile thread, everything else on the
    device thread, and only after both. They share nothing but the weights, which nobody writes.

    Attributes:
        model: The model it runs.
        rows: R.
        beams: B; 1 without beam search, and for prefill, which all lanes share.
        length: T.
        traces: Times TensorFlow has run the Python code; anything but 1 after `trace` is a defect.
    """

    def __init__(self, name: str, model: Model, *, rows: int, beams: int, length: int) -> None:
        """Describes the function; nothing is traced yet.

        Args:
            name: Of the function, for profiles and HLO dumps.
            model: The model it runs.
            rows: R.
            beams: B.
            length: T.
        """
        self.model = model
        self.rows, self.beams, self.length = rows, beams, length
        self.traces = 0
        self._concrete: Callable[..., Any] | None = None

        def traced(*args: Any) -> Any:
            self.traces += 1
            return self._body(*args)

        traced.__name__ = name
        self._function = tf.function(traced, jit_compile=True, autograph=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and length, which a batch must have."""
        return self.rows, self.length

    @property
    @abc.abstractmethod
    def _specs(self) -> Sequence[Any]:
        """The static shapes of the arguments but for the caches' handles, which come last."""

    @abc.abstractmethod
    def _body(self, *args: Any) -> Any:
        """The Python code of TensorFlow operations."""

    @abc.abstractmethod
    def _idle_arguments(self, batch: Batch) -> Sequence[Any]:
        """Arguments with which a batch of free rows is not changed, and little is computed."""

    def trace(self) -> None:
        """Turns the Python code into a TensorFlow graph."""
        handles = [tf.TensorSpec([], tf.resource)] * (2 * self.model.family.layers)
        self._concrete = self._function.get_concrete_function(*self._specs, handles)

    def compile(self) -> None:
        """Compiles the graph, which XLA does at its first call: one of a batch of its own."""
        batch = self._new_batch()
        self._run(batch, *self._idle_arguments(batch))

    def compiler_ir(self, stage: str) -> str:
        """The compiler's view of the graph, e.g. `hlo` or `optimized_hlo`, to inspect in tests."""
        batch = self._new_batch()
        arguments = (*self._idle_arguments(batch), batch.caches.handles)
        return str(self._function.experimental_get_compiler_ir(*arguments)(stage=stage))

    def _new_batch(self) -> Batch:
        return Batch(self.model, rows=self.rows, beams=self.beams, length=self.length)

    def _run(self, batch: Batch, *arguments: Any) -> Any:
        """Runs the compiled graph and waits for its result, as NumPy arrays.

        Raises:
            RuntimeError: It was not traced.
        """
        if self._concrete is None:
            raise RuntimeError("a program must be traced before it is called")
        # Tensors in their structure: whatever else TensorFlow accepts costs milliseconds a call.
        tensors = tf.nest.map_structure(tf.convert_to_tensor, arguments)
        result = self._concrete(*tensors, batch.caches.handles)
        return tf.nest.map_structure(lambda tensor: tensor.numpy(), result)
