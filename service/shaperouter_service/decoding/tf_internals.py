"""Uses of TensorFlow below its public API.

A TensorFlow upgrade can break this file but no other file of decoding; its tests would fail.

- Function names. TensorFlow appends a count of all functions so far to every function's name, and
  records where in Python each operation was created. XLA stores its compilations under both, so a
  different order or installation path would find none of them. `named` gives functions fixed names.
- StableHLO of traced functions, and operations that run it.
- Calls of compiled functions that skip the checks of structures and signatures, which take
  milliseconds for hundreds of tensors.
- Variables as resource handles, without a Python object around each.
- Threads: when a thread first calls a function, as most eager operations do, TensorFlow seeds the
  thread's generator from /dev/urandom, and aborts the process if it cannot open that file.
"""

import importlib
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.eager import context
from tensorflow.python.framework import cpp_shape_inference_pb2
from tensorflow.python.ops import gen_resource_variable_ops as resources
from tensorflow.python.ops import handle_data_util

# Version of the XlaCallModule operation, which defines its arguments and attributes.
_CALL_MODULE_VERSION = 9

_EAGER = "tensorflow.python.eager"

dynamic_update_slice = xla.dynamic_update_slice
read_variable = resources.read_variable_op
assign_variable = resources.assign_variable_op
variable_shape = resources.variable_shape


_thread = threading.local()

# Descriptors that are freed for TensorFlow's one. Other threads may take some of them meanwhile.
_FREED_DESCRIPTORS = 4


def enter_thread() -> None:
    """Prepares the calling thread for eager operations and calls of functions, once.

    Raises:
        OSError: TensorFlow would abort, usually because no file descriptor is free.
    """
    if not getattr(_thread, "is_entered", False):
        with ExitStack() as freed:
            for _ in range(_FREED_DESCRIPTORS):
                freed.enter_context(Path("/dev/urandom").open("rb"))
        # The cast to int32 calls a function, and each call of a function needs the generator.
        tf.constant([0])
        _thread.is_entered = True


def new_variable(dtype: tf.DType) -> tf.Tensor:
    """Returns the handle of a new variable, which lives as long as the handle.

    Its shape is unknown, so that an assignment can change it.
    """
    return resources.var_handle_op(
        dtype=dtype, shape=tf.TensorShape(None), shared_name=context.anonymous_name()
    )


def describe_variable(handle: tf.Tensor, dtype: tf.DType, rank: int) -> None:
    """In a trace: declares the type and rank of a handle's variable, which some operations need."""
    described = cpp_shape_inference_pb2.CppShapeInferenceResult.HandleData(is_set=True)
    described.shape_and_type.add(
        shape=tf.TensorShape([None] * rank).as_proto(), dtype=dtype.as_datatype_enum
    )
    handle_data_util.set_handle_data(handle, described)


def stablehlo(function: tf.types.experimental.PolymorphicFunction, arguments: Sequence[Any]) -> str:
    """Returns the StableHLO of a function with `jit_compile`, for arguments of traced shapes."""
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
    """Calls a function with its arguments and captured tensors; shapes are not checked.

    Raises:
        tf.errors.OpError: An operation has failed.
    """
    try:
        results: Sequence[tf.Tensor] = function.inference_fn.call_flat(*tensors) or ()
    except UnicodeDecodeError as error:
        # An operation quotes a value that is not UTF-8, and TensorFlow cannot raise its error.
        message = error.object.decode(errors="replace")
        raise tf.errors.InvalidArgumentError(None, None, message) from None
    return results


def named(
    function: tf.types.experimental.ConcreteFunction, name: str
) -> tf.types.experimental.ConcreteFunction:
    """Renames a function; returns it unchanged if TensorFlow cannot rename it.

    Functions that differ only in the tensors they capture may share a name: they also share a
    compilation.

    Args:
        function: A trace that calls no other function. The caller must keep it, because the
            renamed function shares its graph.
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
    # This is another version of TensorFlow, or another function has the name.
    except (ImportError, AttributeError, TypeError, tf.errors.InvalidArgumentError):
        return function
