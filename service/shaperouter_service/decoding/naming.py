"""Names of compiled functions.

TensorFlow ends every function's name with a count of all there have been, and notes where in its
Python code each operation was made; XLA's compilations are stored by both. So in another order, or
installed elsewhere, none would be found again. This module alone goes below TensorFlow's public API
to give a function a name of ours and no past; tests tell when that can't be done any more.
"""

import importlib

import tensorflow as tf

_EAGER = "tensorflow.python.eager"


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
        context = importlib.import_module(f"{_EAGER}.context").context()
        functions = f"{_EAGER}.polymorphic_function"
        atomic = importlib.import_module(f"{functions}.atomic_function")
        concrete = importlib.import_module(f"{functions}.concrete_function")
        definition = type(function.function_def)()
        definition.CopyFrom(function.function_def)
        definition.signature.name = name
        context.add_function_def(definition)
        inner = function.inference_fn
        return concrete.ConcreteFunction(
            atomic.AtomicFunction(
                name,
                context,
                inner.function_type,
                call_options=inner.call_options,
                cached_graph=inner.graph,
            )
        )
    # Of another version of TensorFlow, or another function has the name.
    except (ImportError, AttributeError, TypeError, tf.errors.InvalidArgumentError):
        return function
