"""A program: the graph of one signature, before and after it is traced."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from shaperouter_service.decoding import caches
from shaperouter_service.decoding.batch import Batch
from shaperouter_service.decoding.caches import Shape
from shaperouter_service.decoding.lowering import Lowered, calling, lower
from shaperouter_service.decoding.tf_internals import call_flat, named
from shaperouter_service.models import Model


class Program(abc.ABC):
    """A function over batches of R rows and T positions, traced once and compiled once.

    It always runs StableHLO, just traced or kept from another process: both compile alike.

    It holds one ConcreteFunction and calls it directly: a `tf.function` would take a lock that
    tracing another signature holds. `lower`, `load`, `trace` and `compile` run on a compile thread;
    everything else runs on the device thread after these. The threads share only the weights, which
    are never written.

    Attributes:
        model: The model it runs.
        rows: R.
        beams: B; 1 without beam search, and for prefill, which all lanes share.
        length: T.
        source_length: S; 0 without an encoder.
        traces: Times TensorFlow has run the Python code; more than 1 is a defect.
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
            name: Of the function, for profiles and HLO dumps.
            model: The model it runs.
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
        self._function: Any = None
        self._concrete: Any = None
        # Of the loaded function: the weights' handles, and its results' structure.
        self._captured: Sequence[tf.Tensor] = ()
        self._structure: Any = None

    @property
    def shape(self) -> Shape:
        """What a batch must have."""
        return Shape(self.rows, self.length, self.source_length)

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """Tells it from all programs of its model that compute anything else."""

    @property
    @abc.abstractmethod
    def plan(self) -> Callable[[Model], "Program"]:
        """Makes the same program of a model of the same dimensions; can be sent to a process."""

    @property
    @abc.abstractmethod
    def _specs(self) -> Sequence[Any]:
        """The static shapes of the arguments but for the caches' handles, which come last."""

    @property
    @abc.abstractmethod
    def _results(self) -> Any:
        """The static shapes of the results, in their structure."""

    @abc.abstractmethod
    def _body(self, *args: Any) -> Any:
        """The Python code of TensorFlow operations."""

    @abc.abstractmethod
    def _idle_arguments(self, batch: Batch) -> Sequence[Any]:
        """Arguments with which a batch of free rows is not changed, and little is computed."""

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
        """Loads what `lower` returned, here or in another process.

        Args:
            lowered: Of the same code, dimensions and signature.
            name: Of the compiled function; by default, one that no other function ever has.
        """
        call = calling(lowered, self.model, results=self._results, written=self._written_shapes)
        call.__name__ = self._name
        self._function = tf.function(call, jit_compile=True, autograph=False)
        concrete = self._function.get_concrete_function(*self._specs, self._handle_specs)
        self._concrete = concrete if name is None else named(concrete, name)
        self._captured = tuple(self._concrete.captured_inputs)
        self._structure = self._results

    @property
    def compiled_name(self) -> str:
        """What TensorFlow calls the loaded function.

        Raises:
            RuntimeError: None was loaded.
        """
        return str(self._loaded.name.decode())

    def compile(self) -> None:
        """Compiles the graph: XLA does so at the first call, which gets an idle batch."""
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
        """The caches that it takes, those that it writes first."""
        return [*batch.caches.tokens, *batch.caches.source]

    @property
    def _written_shapes(self) -> list[list[int]]:
        """Of the caches that it writes."""
        return self._token_shapes

    @property
    def _loaded(self) -> Any:
        if self._concrete is None:
            raise RuntimeError("a program must be traced or loaded before it is called")
        return self._concrete

    def _new_batch(self) -> Batch:
        return Batch.of_shape(self.model, self.shape, beams=self.beams)

    def _run(self, batch: Batch, *arguments: Any) -> Any:
        """Runs the compiled graph and waits for its result, as NumPy arrays.

        Raises:
            RuntimeError: It was neither traced nor loaded.
        """
        # Shapes are checked by the module.
        tensors = [
            argument if isinstance(argument, tf.Tensor) else tf.constant(argument)
            for argument in tf.nest.flatten(arguments)
        ]
        results = call_flat(self._loaded, [*tensors, *self._handles(batch), *self._captured])
        return tf.nest.pack_sequence_as(self._structure, [tensor.numpy() for tensor in results])
