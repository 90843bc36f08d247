"""The XLA flag that makes sums equal in all graphs.

Any graph that covers a request may serve it, and another may continue it. So a row's result must
not depend on the number of rows or tokens of a graph. The native kernels guarantee this, and XLA
does with one exception: on a CPU it passes sums over 32,768 or more numbers, counting all rows, to
a library that adds them in another order. A norm or a softmax then differed in its last bits
between a small graph and a large one.

TensorFlow reads `XLA_FLAGS` once, so the variable is set before TensorFlow is imported.
"""

_FLAG = "--xla_cpu_experimental_ynn_fusion_type"


def xla_flags(given: str) -> str:
    """The value of `XLA_FLAGS` for a worker.

    Args:
        given: The user's value, which may set the flag differently.
    """
    if _FLAG in given:
        return given
    return f"{given} {_FLAG}=-LIBRARY_FUSION_TYPE_REDUCE".strip()
