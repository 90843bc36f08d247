"""Programs as StableHLO: traced functions that run without their Python code.

A module is text that depends only on the code, the model's dimensions and the signature, since its
weights are arguments. So it can be cached, and another process can run it without tracing.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from shaperouter_service.decoding import caches
from shaperouter_service.decoding.tf_internals import call_module, read_variable, stablehlo
from shaperouter_service.kernels import clock_platform, nanoseconds_since, start_clock
from shaperouter_service.models import DeviceKind, Model

# Platforms that modules run on, by their names in XLA.
PLATFORMS = {DeviceKind.CPU: "CPU", DeviceKind.GPU: "CUDA"}


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """A program as StableHLO.

    Attributes:
        module: Text of the module. Its arguments are those of the program, flat, then the values of
            the caches, then the weights. Its results are those of the program, flat, then the
            caches that it writes.
        weights: Names of the weights among the arguments, in order.
    """

    module: str
    weights: tuple[str, ...]


def lower(
    function: tf.types.experimental.PolymorphicFunction,
    concrete: tf.types.experimental.ConcreteFunction,
    arguments: Sequence[Any],
    model: Model,
) -> Lowered:
    """Lowers a traced function.

    Args:
        function: Function that takes structures of tensors and, last, the caches' handles.
        concrete: Its trace, which has captured only weights.
        arguments: Arguments of the traced shapes.
        model: Model whose weights the trace has captured.
    """
    names = {id(weight.handle): name for name, weight in model.weights.items()}
    return Lowered(
        module=portable(stablehlo(function, arguments)),
        weights=tuple(names[id(handle)] for handle in concrete.captured_inputs),
    )


def portable(text: str) -> str:
    """Reduces a module to StableHLO that any process can run."""
    # The module's name, which contains the number of the trace, and its attributes. These include
    # aliases, which are created again where the module runs.
    text = re.sub(r"^module @\S+( attributes \{.*\})? \{$", "module {", text, flags=re.MULTILINE)
    # Hints for gradients.
    text = re.sub(r" \{mhlo\.frontend_attributes = \{[^{}]*\}\}", "", text)
    # Copies of values that are read: XLA inserts those that it needs.
    text = re.sub(r"mhlo\.copy (%\S+) : (tensor<\S+>)", r"stablehlo.reshape \1 : (\2) -> \2", text)
    # Source file names and lines.
    text = re.sub(r"^#loc.*\n", "", text, flags=re.MULTILINE)
    # Function names, which contain counts of traces in this process.
    functions = re.findall(r"func\.func private (@\S+?)\(", text)
    names = {name: f"@function{number}" for number, name in enumerate(functions)}
    text = re.sub(r"@[\w.$-]+", lambda name: names.get(name[0], name[0]), text)
    word = r'(?:[^()"]|"[^"]*")'
    text = re.sub(rf" loc\((?:{word}|\({word}*\))*\)", "", text)
    return re.sub(
        r'stablehlo\.constant dense<"0x(\w+)"> : (tensor<(?:1x)*(\d+)xu?i32>)', _iota, text
    )


def _iota(constant: re.Match[str]) -> str:
    """Replaces a constant 0, 1, 2, … by `iota`: the token ids would take megabytes of text."""
    content, kind, size = constant.groups()
    if bytes.fromhex(content) != np.arange(int(size), dtype="<u4").tobytes():
        return constant[0]
    return f"stablehlo.iota dim = {kind.count('x') - 1} : {kind}"


def calling(
    lowered: Lowered, model: Model, *, results: Any, written: Sequence[Sequence[int]]
) -> Callable[..., Any]:
    """Returns a traceable function that runs a module with the program's arguments.

    If the device has a clock of its own, the function returns the results and the nanoseconds that
    they took, otherwise only the results.

    Args:
        lowered: The module.
        model: Model whose weights it runs with.
        results: Static shapes of the program's results, in their structure.
        written: Shapes of the caches that it writes, which come first.
    """
    specs = [
        *tf.nest.flatten(results),
        *(tf.TensorSpec(shape, model.cache_dtype) for shape in written),
    ]

    def call(*arguments: Any) -> Any:
        *inputs, handles = arguments
        taken, clock = tf.nest.flatten(inputs), clock_platform()
        if clock is not None:
            taken, began = start_clock(taken, clock)
        flat = call_module(
            lowered.module,
            [
                *taken,
                *(read_variable(handle, model.cache_dtype) for handle in handles),
                *(model.weights[name].read_value() for name in lowered.weights),
            ],
            specs,
            PLATFORMS[DeviceKind.present()],
        )
        results_count = len(flat) - len(written)
        caches.write(handles[: len(written)], flat[results_count:])
        found = tf.nest.pack_sequence_as(results, flat[:results_count])
        if clock is None:
            return found
        # An encoder has no results but caches.
        return found, nanoseconds_since(began, flat[:results_count] or flat, clock)

    return call
