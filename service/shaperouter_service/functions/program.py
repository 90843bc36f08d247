"""Programs of models that are called once: the graph of one signature."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from shaperouter_service.decoding.lowering import PLATFORMS, Lowered, portable
from shaperouter_service.decoding.tf_internals import call_flat, call_module, named, stablehlo
from shaperouter_service.errors import ExhaustedError
from shaperouter_service.kernels import clock_platform, nanoseconds_since, start_clock
from shaperouter_service.models import DeviceKind
from shaperouter_service.models.call_model import CallModel
from shaperouter_service.tensors.checking import Sizes
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.specs import CallSpec, TensorSpec

# A result of a module whose size is only known once it has run.
_DYNAMIC_RESULT = re.compile(r"^\s*return .*tensor<[^>]*\?", re.MULTILINE)


class UncompilableError(Exception):
    """XLA cannot compile a model; the message says what it cannot compile."""


class CallProgram:
    """A model at one set of sizes.

    `load`, `compile` and what precedes them run on the threads that make graphs, calls later on the
    device thread. The threads share only the weights.

    Attributes:
        model: The model.
        sizes: The static sizes of its axes.
        traces: How often TensorFlow has run the Python code; more than once is a defect.
        device_seconds: Time of the latest call by the device's own clock; None without one.
    """

    def __init__(self, name: str, model: CallModel, sizes: Sizes) -> None:
        """Describes the program; nothing is traced yet.

        Args:
            name: Name of the function in profiles and HLO dumps.
            model: The model.
            sizes: The static sizes of its axes.
        """
        self._name = name
        self.model = model
        self.sizes = sizes
        self.traces = 0
        self.device_seconds: float | None = None
        self._concrete: Any = None
        self._captured: Sequence[tf.Tensor] = ()
        self._is_timed = False

    @property
    def label(self) -> str:
        """Label that no program of this model with another computation shares."""
        sizes = (self.sizes.rows, *self.sizes.axes)
        return f"call_{'x'.join(map(str, sizes))}"

    def __call__(
        self, inputs: "Mapping[str, np.ndarray[Any, Any]]"
    ) -> "dict[str, np.ndarray[Any, Any]]":
        """Computes a batch.

        Args:
            inputs: The inputs of the model's `CallSpec`, of the program's sizes.

        Returns:
            The outputs, by name.

        Raises:
            RuntimeError: The program was neither traced nor loaded.
        """
        if self._concrete is None:
            raise RuntimeError("a program must be traced or loaded before it is called")
        spec = self.model.spec
        tensors = [tf.constant(inputs[each.name]) for each in spec.inputs]
        results = call_flat(self._concrete, [*tensors, *self._captured])
        if self._is_timed:
            *results, nanoseconds = results
            self.device_seconds = int(nanoseconds.numpy()) / 1e9
        return {
            each.name: to_array(result) for each, result in zip(spec.outputs, results, strict=True)
        }

    def idle_inputs(self) -> "dict[str, np.ndarray[Any, Any]]":
        """Inputs of padding only."""
        return {
            each.name: np.full(
                _shape(each, self.model.spec, self.sizes),
                b"" if each.dtype is DType.BYTES else 0,
                each.dtype.numpy,
            )
            for each in self.model.spec.inputs
        }

    @property
    def _input_specs(self) -> list[tf.TensorSpec]:
        return [
            tf.TensorSpec(_shape(each, self.model.spec, self.sizes), tf_dtype(each))
            for each in self.model.spec.inputs
        ]

    def _trace(self, *tensors: tf.Tensor) -> list[tf.Tensor]:
        """Python code of TensorFlow operations, which is traced."""
        self.traces += 1
        spec = self.model.spec
        inputs = {each.name: tensor for each, tensor in zip(spec.inputs, tensors, strict=True)}
        outputs = self.model.call(self.model.weights.read(), inputs)
        return [tf.convert_to_tensor(outputs[each.name]) for each in spec.outputs]

    def _function(self, call: Callable[..., Any], *, compiled: bool) -> Any:
        def function(*tensors: tf.Tensor) -> Any:
            return call(*tensors)

        function.__name__ = self._name
        return tf.function(function, jit_compile=compiled, autograph=False)

    def _hold(self, concrete: Any) -> None:
        self._concrete = concrete
        self._captured = tuple(concrete.captured_inputs)


class CompiledCallProgram(CallProgram):
    """A program that XLA compiles. It runs StableHLO, whether or not this process traced it."""

    def lower(self) -> Lowered:
        """Traces the model and lowers it to StableHLO.

        Raises:
            UncompilableError: XLA cannot compile one of its operations, or the size of an output
                depends on values.
        """
        # Results must not depend on the device's TensorFloat-32.
        tf.config.experimental.enable_tensor_float_32_execution(False)
        function = self._function(self._trace, compiled=True)
        concrete = function.get_concrete_function(*self._input_specs)
        names = {
            id(weight.handle if isinstance(weight, tf.Variable) else weight): name
            for name, weight in self.model.weights.items()
        }
        try:
            weights = tuple(names[id(captured)] for captured in concrete.captured_inputs)
            inputs = self.idle_inputs()
            text = stablehlo(function, [tf.constant(value) for value in inputs.values()])
        except KeyError as error:
            raise UncompilableError("it uses a resource that is not a variable") from error
        # TensorFlow raises errors of several kinds for operations that it has no kernel for.
        except Exception as error:
            if ExhaustedError.of(error):
                raise
            raise UncompilableError(_reason(str(error))) from error
        module = portable(text)
        if _DYNAMIC_RESULT.search(module):
            raise UncompilableError("the size of an output depends on the values of inputs")
        return Lowered(module=module, weights=weights)

    def load(self, lowered: Lowered, name: str | None = None) -> None:
        """Loads what `lower` returned, here or in an earlier process.

        Args:
            lowered: Module of the same model and sizes.
            name: Name of the compiled function; by default a name that is never reused.
        """
        spec, clock = self.model.spec, clock_platform()
        results = [
            tf.TensorSpec(_shape(each, spec, self.sizes), tf_dtype(each)) for each in spec.outputs
        ]

        def call(*tensors: tf.Tensor) -> list[tf.Tensor]:
            weights = (self.model.weights[name] for name in lowered.weights)
            taken = list(tensors)
            if clock is not None:
                taken, began = start_clock(tensors, clock)
            arguments = [*taken, *map(_value, weights)]
            found = call_module(lowered.module, arguments, results, PLATFORMS[DeviceKind.present()])
            return found if clock is None else [*found, nanoseconds_since(began, found, clock)]

        self._is_timed = clock is not None
        concrete = self._function(call, compiled=True).get_concrete_function(*self._input_specs)
        self._hold(concrete if name is None else named(concrete, name))

    @property
    def compiled_name(self) -> str:
        """TensorFlow's name of the loaded function."""
        return str(self._concrete.name.decode())

    def compile(self) -> None:
        """Compiles the graph by calling it: XLA compiles at the first call."""
        self(self.idle_inputs())


class PlainCallProgram(CallProgram):
    """A program whose operations TensorFlow runs one by one.

    It is never called idly, because the model may have state.
    """

    def trace(self) -> None:
        """Traces and loads the program."""
        function = self._function(self._trace, compiled=False)
        self._hold(function.get_concrete_function(*self._input_specs))


def to_array(tensor: tf.Tensor) -> "np.ndarray[Any, Any]":
    """The array of a tensor. TensorFlow gives a text without dimensions as bytes."""
    value: np.ndarray[Any, Any] | bytes = tensor.numpy()
    return np.array(value, dtype=object) if isinstance(value, bytes) else value


def tf_dtype(spec: TensorSpec) -> tf.DType:
    """TensorFlow's data type of a tensor."""
    return tf.string if spec.dtype is DType.BYTES else tf.as_dtype(spec.dtype.numpy)


def _shape(tensor: TensorSpec, spec: CallSpec, sizes: Sizes) -> list[int | None]:
    """The static shape of an input or output; None where the sizes do not determine one."""
    shape = list(tensor.shape)
    axes = [] if spec.batch is None else [(spec.batch, sizes.rows)]
    for axis, size in (*axes, *zip(spec.axes, sizes.axes, strict=True)):
        for dimensions in (axis.inputs, axis.outputs):
            if tensor.name in dimensions:
                shape[dimensions[tensor.name]] = size
    return shape


def _value(weight: Any) -> tf.Tensor:
    return weight.read_value() if isinstance(weight, tf.Variable) else weight


def _reason(error: str) -> str:
    """What XLA could not compile, from TensorFlow's error."""
    operations = re.findall(r"(\w+) \(No registered '\w+' OpKernel", error)
    if "DT_STRING" in error:
        return "it has tensors of text"
    if operations:
        return f"XLA has no operation {', '.join(sorted(set(operations)))}"
    return error.strip().partition("\n")[0] or "TensorFlow does not say why"
