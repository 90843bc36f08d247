"""What decoding needs of TensorFlow below its public API.

An upgrade of TensorFlow can break this file and none beside it; tests tell.

- Function names. TensorFlow ends every function's name with a count of all functions so far, and
  notes where in Python each operation was made; XLA's compilations are stored by both. In another
  order, or installed elsewhere, none would be found again. `named` gives a function a fixed name.
- StableHLO of traced functions, and operations that run it.
- Calls of compiled functions without the checks of structures and signatures, which take
  milliseconds for hundreds of tensors.
- Variables as resource handles, without a Python object around each.
"""

import importlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.eager import context
from tensorflow.python.ops import gen_resource_variable_ops as resources

# Of the XlaCallModule operation: what its arguments and attributes mean.
_CALL_MODULE_VERSION = 9

_EAGER = "tensorflow.python.eager"

dynamic_update_slice = xla.dynamic_update_slice
read_variable = resources.read_variable_op
assign_variable = resources.assign_variable_op
variable_shape = resources.variable_shape


def new_variable(dtype: tf.DType) -> tf.Tensor:
    """The handle of a new variable, which lives as long as the handle.

    Its shape is unknown, so that an assignment can change it.
    """
    return resources.var_handle_op(
        dtype=dtype, shape=tf.TensorShape(None), shared_name=context.anonymous_name()
    )


def stablehlo(function: tf.types.experimental.PolymorphicFunction, arguments: Sequence[Any]) -> str:
    """The StableHLO text of a function with `jit_compile`, for arguments of its traced shapes."""
    text: str = function.experimental_get_compiler_ir(*arguments)(stage="stablehlo")
    return text


def call_module(
    module: str, arguments: Sequence[tf.Tensor], results: Sequence[tf.TensorSpec], platform: str
) -> list[tf.Tensor]:
    """In a graph: runs a module of StableHLO."""
    made: list[tf.Tensor] = xla.call_module(
        arguments,
        version=_CALL_MODULE_VERSION,
        module=module,
        Tout=[spec.dtype for spec in results],
        Sout=[spec.shape for spec in results],
        platforms=[platform],
    )
    return made


def call_flat(
    function: tf.types.experimental.ConcreteFunction, tensors: Sequence[tf.Tensor]
) -> Sequence[tf.Tensor]:
    """Calls a function with its arguments and captured tensors; shapes are not checked."""
    results: Sequence[tf.Tensor] = function.inference_fn.call_flat(*tensors) or ()
    return results


def named(
    function: tf.types.experimental.ConcreteFunction, name: str
) -> tf.types.experimental.ConcreteFunction:
    """The same function under another name; or itself, where TensorFlow can't do that.

    Functions may share a name if they are equal but for what they have captured: they share their
    compilation, too.

    Args:
        function: A trace that calls no others. The caller keeps it: they share its graph.
        name: The new name, of letters, digits and underscores.
    """
    try:
        eager = importlib.import_module(f"{_EAGER}.context").context()
        functions = f"{_EAGER}.polymorphic_function"
        atomic = importlib.import_module(f"{functions}.atomic_function")
        concrete = importlib.import_module(f"{functions}.concrete_function")
        definition = type(function.function_def)()
        definition.CopyFrom(function.function_def)
        definition.signature.name = name
        eager.add_function_def(definition)
        inner = function.inference_fn
        return concrete.ConcreteFunction(
            atomic.AtomicFunction(
                name,
                eager,
                inner.function_type,
                call_options=inner.call_options,
                cached_graph=inner.graph,
            )
        )
    # Of another version of TensorFlow, or another function has the name.
    except (ImportError, AttributeError, TypeError, tf.errors.InvalidArgumentError):
        return function
