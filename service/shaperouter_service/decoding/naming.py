"""Names of compiled functions.

TensorFlow ends every function's name with a count of all there have been, and XLA's compilations
are stored by that name: traced in another order, none would be found again. This module alone goes
below TensorFlow's public API to give a function a name of ours; a test tells when that has changed.
"""

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import atomic_function, concrete_function


def named(
    function: tf.types.experimental.ConcreteFunction, name: str
) -> tf.types.experimental.ConcreteFunction:
    """The same function under another name; or itself, where TensorFlow can't do that.

    Functions may share a name if they are equal but for what they have captured: they share their
    compilation, too.

    Args:
        function: A trace, which the caller keeps: they share its graph.
        name: The new name, of letters, digits and underscores.
    """
    try:
        renamed = concrete_function.ConcreteFunction(
            atomic_function.from_func_graph(
                name, function.graph, function._attrs, function.function_type
            )
        )
    # Of another version of TensorFlow, or another function has the name.
    except (AttributeError, TypeError, tf.errors.InvalidArgumentError):
        return function
    return renamed
