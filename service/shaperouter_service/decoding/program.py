"""Base class of programs: the graph of one signature, before and after tracing."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from shaperouter_service.decoding import caches
from shaperouter_service.decoding.batch import Batch
from shaperouter_service.decoding.caches import Shape
from shaperouter_service.decoding.lowering import Lowered, calling, lower
from shaperouter_service.decoding.tf_internals import call_flat, named
from shaperouter_service.kernels import clock_platform
from shaperouter_service.models import Model


class Program(abc.ABC):
    """A function over batches of R rows and T positions, traced once and compiled once.

    A program always runs StableHLO, whether this process traced it or the compile cache has it:
    both compile the same way.

    It holds one ConcreteFunction and calls it directly, since calling a `tf.function` would wait
    for a lock that is held while another signature is traced. `lower`, `load`, `trace` and
    `compile` run on the threads that make graphs; everything else runs later, on the device thread.
    The threads share only the weights, which are never written.

    Attributes:
        model: The model that the program runs.
        rows: R.
        beams: B; 1 without beam search, and 1 for prefill, which all lanes share.
        length: T.
        source_length: S; 0 without an encoder.
        traces: How often TensorFlow has run the Python code; more than once is a defect.
        device_seconds: Time of the latest call by the device's own clock; None without one.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        *,
        rows: int,
        beams: int,
        length: int,
        source_length: int,
    ) -> None:
        """Describes the function; nothing is traced yet.

        Args:
            name: Name of the function in profiles and HLO dumps.
            model: The model that the program runs.
            rows: R.
            beams: B.
            length: T.
            source_length: S.
        """
        self._name = name
        self.model = model
        self.rows, self.beams, self.length = rows, beams, length
        self.source_length = source_length
        self.traces = 0
        self.device_seconds: float | None = None
        self._function: Any = None
        self._concrete: Any = None
        # The weights' handles and the structure of the results, both of the loaded function.
        self._captured: Sequence[tf.Tensor] = ()
        self._structure: Any = None
        self._is_timed = False

    @property
    def shape(self) -> Shape:
        """Shape that a batch must have for this program."""
        return Shape(self.rows, self.length, self.source_length)

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """Label that no program of this model with another computation shares."""

    @property
    @abc.abstractmethod
    def _specs(self) -> Sequence[Any]:
        """Static shapes of the arguments, except for the caches' handles, which come last."""

    @property
    @abc.abstractmethod
    def _results(self) -> Any:
        """Static shapes of the results, in their structure."""

    @abc.abstractmethod
    def _body(self, *args: Any) -> Any:
        """Python code of TensorFlow operations, which is traced."""

    @abc.abstractmethod
    def _idle_arguments(self, batch: Batch) -> Sequence[Any]:
        """Arguments that compute little and leave a batch of free rows unchanged."""

    def trace(self) -> None:
        """Traces and loads the program."""
        self.load(self.lower())

    def lower(self) -> Lowered:
        """Traces the Python code and lowers it to StableHLO."""

        def traced(*arguments: Any) -> Any:
            self.traces += 1
            return self._body(*arguments)

        traced.__name__ = self._name
        # Tokens must not depend on the device's TensorFloat-32.
        tf.config.experimental.enable_tensor_float_32_execution(False)
        function = tf.function(traced, jit_compile=True, autograph=False)
        concrete = function.get_concrete_function(*self._specs, self._handle_specs)
        batch = self._new_batch()
        arguments = (*self._idle_arguments(batch), self._handles(batch))
        return lower(function, concrete, arguments, self.model)

    def load(self, lowered: Lowered, name: str | None = None) -> None:
        """Loads what `lower` returned, here or in an earlier process.

        Args:
            lowered: Module of the same code, dimensions and signature.
            name: Name of the compiled function; by default a name that is never reused.
        """
        call = calling(lowered, self.model, results=self._results, written=self._written_shapes)
        call.__name__ = self._name
        self._is_timed = clock_platform() is not None
        self._function = tf.function(call, jit_compile=True, autograph=False)
        concrete = self._function.get_concrete_function(*self._specs, self._handle_specs)
        self._concrete = concrete if name is None else named(concrete, name)
        self._captured = tuple(self._concrete.captured_inputs)
        self._structure = self._results

    @property
    def compiled_name(self) -> str:
        """TensorFlow's name of the loaded function.

        Raises:
            RuntimeError: No function was loaded.
        """
        return str(self._loaded.name.decode())

    def compile(self) -> None:
        """Compiles the graph by calling it with an idle batch: XLA compiles at the first call."""
        batch = self._new_batch()
        self._run(batch, *self._idle_arguments(batch))

    @property
    def _token_shapes(self) -> list[list[int]]:
        return caches.token_shapes(self.model, self.shape)

    @property
    def _source_shapes(self) -> list[list[int]]:
        return caches.source_shapes(self.model, self.shape)

    @property
    def _handle_specs(self) -> list[tf.TensorSpec]:
        return [tf.TensorSpec([], tf.resource)] * len([*self._token_shapes, *self._source_shapes])

    def _handles(self, batch: Batch) -> list[tf.Tensor]:
        """Caches that the program takes; those that it writes come first."""
        return [*batch.caches.tokens, *batch.caches.source]

    @property
    def _written_shapes(self) -> list[list[int]]:
        """Shapes of the caches that the program writes."""
        return self._token_shapes

    @property
    def _loaded(self) -> Any:
        if self._concrete is None:
            raise RuntimeError("a program must be traced or loaded before it is called")
        return self._concrete

    def _new_batch(self) -> Batch:
        return Batch.of_shape(self.model, self.shape, beams=self.beams)

    def _run(self, batch: Batch, *arguments: Any) -> Any:
        """Runs the compiled graph, waits for it and returns its results as NumPy arrays.

        Raises:
            RuntimeError: The program was neither traced nor loaded.
        """
        tensors = self._call(batch, *arguments)
        if not tensors:
            # Without a result to wait for, the call has only been given to a GPU.
            tf.test.experimental.sync_devices()
        return pack(self._structure, (tensor.numpy() for tensor in tensors))

    def _call(self, batch: Batch, *arguments: Any) -> Sequence[tf.Tensor]:
        """Runs the compiled graph and returns its results, flat and on the device.

        Raises:
            RuntimeError: The program was neither traced nor loaded.
        """
        # The module checks the shapes.
        tensors = [
            argument if isinstance(argument, tf.Tensor) else tf.constant(argument)
            for argument in tf.nest.flatten(arguments)
        ]
        results = call_flat(self._loaded, [*tensors, *self._handles(batch), *self._captured])
        if not self._is_timed:
            return results
        *results, nanoseconds = results
        self.device_seconds = int(nanoseconds.numpy()) / 1e9
        return results


class SourceProgram(Program):
    """A program that takes no caches but those of sources, and no arguments but arrays."""

    def _idle_arguments(self, batch: Batch) -> Sequence[Any]:
        del batch
        return [np.zeros(spec.shape, spec.dtype.as_numpy_dtype) for spec in self._specs]

    @property
    def _handle_specs(self) -> list[tf.TensorSpec]:
        return [tf.TensorSpec([], tf.resource)] * len(self._source_shapes)

    def _handles(self, batch: Batch) -> list[tf.Tensor]:
        return batch.caches.source


def pack(structure: Any, values: Iterator[Any]) -> Any:
    """Puts values into the leaves of nested tuples, in a tenth of the time that `tf.nest` takes."""
    if not isinstance(structure, tuple):
        return next(values)
    parts = [pack(part, values) for part in structure]
    return type(structure)(*parts) if hasattr(structure, "_fields") else tuple(parts)
