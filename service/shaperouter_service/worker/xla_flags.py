"""XLA flags of a worker: sums that are equal in all graphs, and faster compilation.

Any graph that covers a request may serve it, and another may continue it. So a row's result must
not depend on the number of rows or tokens of a graph. The native kernels guarantee this, and XLA
does with one exception: on a CPU it passes sums over 32,768 or more numbers, counting all rows, to
a library that adds them in another order. A norm or a softmax then differed in its last bits
between a small graph and a large one.

XLA's newer way to generate code for fused operations takes longer to compile. What XLA computes
between native kernels in a decoder is as fast without it. Attention that XLA computes itself, as in
encoders, is slower without it, and so are its products.

For the same reason LLVM optimizes such decoders at its first level: the code between kernels is as
fast, and takes three quarters of the time to compile. Without any optimization it takes a third,
but steps of several rows or beams take up to 1.3 times as long.

TensorFlow reads `XLA_FLAGS` once, so the variable is set before TensorFlow is imported.
"""

_SUMS = "--xla_cpu_experimental_ynn_fusion_type=-LIBRARY_FUSION_TYPE_REDUCE"
_FUSIONS = "--xla_cpu_use_fusion_emitters=false"
_OPTIMIZATION = "--xla_backend_optimization_level=1"


def xla_flags(given: str, *, only_kernels: bool) -> str:
    """The value of `XLA_FLAGS` for a worker.

    Args:
        given: The user's value, which may set these flags differently.
        only_kernels: Whether native kernels compute all products and attention of all models.
    """
    ours = [_SUMS, _FUSIONS, _OPTIMIZATION] if only_kernels else [_SUMS]
    return " ".join(
        [given, *(flag for flag in ours if flag.partition("=")[0] not in given)]
    ).strip()
