"""Programs as StableHLO: traced functions that run without their Python code.

A module is text that depends only on the code, the model's dimensions and the signature, since
weights are its arguments. So it can be cached, and run in another process without a trace.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from shaperouter_service.decoding import caches
from shaperouter_service.decoding.tf_internals import call_module, read_variable, stablehlo
from shaperouter_service.models import DeviceKind, Model

# What modules run on, as XLA calls it.
PLATFORMS = {DeviceKind.CPU: "CPU", DeviceKind.GPU: "CUDA"}


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """A program as StableHLO.

    Attributes:
        module: The text. Its arguments are the program's, flat, then the values of the caches, then
            the weights; its results are the program's, flat, then the caches that it writes.
        weights: Names of the weights among its arguments, in order.
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
        function: It, which takes structures of tensors and, last, the caches' handles.
        concrete: Its trace, which has captured nothing but weights.
        arguments: Of the shapes it was traced for.
        model: Whose weights it has captured.
    """
    names = {id(weight.handle): name for name, weight in model.weights.items()}
    return Lowered(
        module=portable(stablehlo(function, arguments)),
        weights=tuple(names[id(handle)] for handle in concrete.captured_inputs),
    )


def portable(text: str) -> str:
    """Drops everything but StableHLO, and everything that only this process can use."""
    # The module's name, which has the number of the trace, and attributes. Aliases are among
    # these: they are made anew where a module is run.
    text = re.sub(r"^module @\S+( attributes \{.*\})? \{$", "module {", text, flags=re.MULTILINE)
    # Hints for gradients.
    text = re.sub(r" \{mhlo\.frontend_attributes = \{[^{}]*\}\}", "", text)
    # Copies of what is read; XLA makes those it needs itself.
    text = re.sub(r"mhlo\.copy (%\S+) : (tensor<\S+>)", r"stablehlo.reshape \1 : (\2) -> \2", text)
    # Names and lines of source.
    text = re.sub(r"^#loc.*\n", "", text, flags=re.MULTILINE)
    # Names of functions, which have counts of what this process has traced.
    functions = re.findall(r"func\.func private (@\S+?)\(", text)
    names = {name: f"@function{number}" for number, name in enumerate(functions)}
    text = re.sub(r"@[\w.$-]+", lambda name: names.get(name[0], name[0]), text)
    word = r'(?:[^()"]|"[^"]*")'
    text = re.sub(rf" loc\((?:{word}|\({word}*\))*\)", "", text)
    return re.sub(
        r'stablehlo\.constant dense<"0x(\w+)"> : (tensor<(?:1x)*(\d+)xu?i32>)', _iota, text
    )


def _iota(constant: re.Match[str]) -> str:
    """The numbers of a vocabulary's tokens, which TensorFlow writes out: megabytes otherwise."""
    content, kind, size = constant.groups()
    if bytes.fromhex(content) != np.arange(int(size), dtype="<u4").tobytes():
        return constant[0]
    return f"stablehlo.iota dim = {kind.count('x') - 1} : {kind}"


def calling(
    lowered: Lowered, model: Model, *, results: Any, written: Sequence[Sequence[int]]
) -> Callable[..., Any]:
    """A function for TensorFlow to trace that runs a module, with the arguments of the program.

    Args:
        lowered: The module.
        model: Whose weights it runs with.
        results: Static shapes of the program's results, in their structure.
        written: Shapes of the caches that it writes, which come first.
    """
    specs = [
        *tf.nest.flatten(results),
        *(tf.TensorSpec(shape, model.dtype) for shape in written),
    ]

    def call(*arguments: Any) -> Any:
        *inputs, handles = arguments
        flat = call_module(
            lowered.module,
            [
                *tf.nest.flatten(inputs),
                *(read_variable(handle, model.dtype) for handle in handles),
                *(model.weights[name].read_value() for name in lowered.weights),
            ],
            specs,
            PLATFORMS[DeviceKind.present()],
        )
        made = len(flat) - len(written)
        caches.write(handles[: len(written)], flat[made:])
        return tf.nest.pack_sequence_as(results, flat[:made])

    return call
