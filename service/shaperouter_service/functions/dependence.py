"""Which inputs of a function an output depends on, read from its graph without running it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from shaperouter_service.functions.function import LoadedFunction
from shaperouter_service.functions.program import tf_dtype

# Operations that call a function of the library and give its results as they are.
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


def dependences(function: LoadedFunction) -> dict[str, frozenset[str]]:
    """Finds the inputs that each output may depend on, by name.

    An operation is taken to depend on all tensors that it is given, except that calls of functions
    are followed into these, because a SavedModel is little else than one such call.

    """
    specs = {each.name: tf.TensorSpec(each.shape, tf_dtype(each)) for each in function.inputs}
    concrete = tf.function(function.call, autograph=False).get_concrete_function(specs)
    graph_def = concrete.graph.as_graph_def()
    library = {
        definition.signature.name: _Body(
            nodes={node.name: node for node in definition.node_def},
            arguments=[argument.name for argument in definition.signature.input_arg],
            results=[definition.ret[result.name] for result in definition.signature.output_arg],
        )
        for definition in graph_def.library.function
    }
    # TensorFlow flattens dictionaries in the order of their keys.
    inputs, outputs = sorted(specs), sorted(each.name for each in function.outputs)
    body = _Body(
        nodes={node.name: node for node in graph_def.node},
        arguments=[tensor.op.name for tensor in concrete.inputs[: len(inputs)]],
        results=[tensor.name for tensor in concrete.outputs],
    )
    finder = _Finder(library)
    return {
        output: frozenset(inputs[index] for index in finder.arguments(body, result))
        for output, result in zip(outputs, body.results, strict=True)
    }


@dataclass(frozen=True)
class _Body:
    """A graph or a function of the library.

    Attributes:
        nodes: Its operations, by name.
        arguments: Names of its arguments.
        results: References to its results: `operation`, `operation:0` or `operation:output:0`.
    """

    nodes: Mapping[str, NodeDef]
    arguments: Sequence[str]
    results: Sequence[str]


class _Finder:
    """Follows references to the arguments of a body."""

    def __init__(self, library: Mapping[str, _Body]) -> None:
        self._library = library
        self._known: dict[tuple[str, int], frozenset[int]] = {}

    def arguments(self, body: _Body, result: str) -> set[int]:
        """Numbers of the arguments that a result may depend on."""
        numbers = {name: number for number, name in enumerate(body.arguments)}
        found: set[int] = set()
        seen: set[str] = set()
        left = [result]
        while left:
            reference = left.pop()
            if reference in seen:
                continue
            seen.add(reference)
            name, _, place = reference.partition(":")
            if name in numbers:
                found.add(numbers[name])
            elif name in body.nodes:
                left += self._needs(body.nodes[name], place)
        return found

    def _needs(self, node: NodeDef, place: str) -> Iterable[str]:
        """The tensors that an output of an operation needs: references within the same body."""
        # Others only have to precede it.
        tensors = [each for each in node.input if not each.startswith("^")]
        if node.op not in _CALLS:
            return tensors
        called, index = node.attr["f"].func.name, int(place.rpartition(":")[2] or 0)
        key = (called, index)
        if key not in self._known:
            body = self._library[called]
            self._known[key] = frozenset(self.arguments(body, body.results[index]))
        return [tensors[number] for number in self._known[key]]
