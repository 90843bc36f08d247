"""Operations of functions that are refused, and those that give a function state."""

from collections.abc import Collection, Iterable

from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.python.framework import op_def_registry

from shaperouter_service.errors import StartupError

# They run Python code of the process that saved the model, or use files of this machine.
FORBIDDEN = frozenset(
    {
        "EagerPyFunc",
        "MatchingFiles",
        "PyFunc",
        "PyFuncStateless",
        "ReadFile",
        "WriteFile",
    }
)

# Operations that TensorFlow marks as stateful, but that change nothing and always answer the same.
HARMLESS = frozenset(
    {
        "AnonymousHashTable",
        "Assert",
        "Case",
        "HashTableV2",
        "If",
        "LookupTableFindV2",
        "LookupTableSizeV2",
        "ReadVariableOp",
        "ResourceGather",
        "ResourceGatherNd",
        "StatefulPartitionedCall",
        "VarHandleOp",
        "VarIsInitializedOp",
        "VariableShape",
        "VariableV2",
        "While",
        "XlaCallModule",
    }
)


def operations_of(graph_def: GraphDef) -> frozenset[str]:
    """Names of the operations of a graph and of all functions in it."""
    nodes = list(graph_def.node)
    for function in graph_def.library.function:
        nodes.extend(function.node_def)
    return frozenset(node.op for node in nodes)


def check_operations(path: object, operations: Iterable[str], functions: Collection[str]) -> None:
    """Refuses operations that run code from elsewhere.

    Args:
        path: The model's path, for errors.
        operations: Names of its operations.
        functions: Names of the functions that the model defines, which may be called by name.

    Raises:
        StartupError: An operation is forbidden, or TensorFlow does not have it.
    """
    for name in sorted(operations):
        if name in FORBIDDEN:
            raise StartupError(
                f"{path}: the operation {name} runs code or reads files of this machine, which a "
                "model may not do"
            )
        if name not in functions and op_def_registry.get(name) is None:
            raise StartupError(f"{path}: {name} is a custom operation, which is not supported")


def stateful(operations: Iterable[str]) -> list[str]:
    """The operations that give a function state: it then answers equal calls differently."""
    found = []
    for name in sorted(set(operations) - HARMLESS):
        definition = op_def_registry.get(name)
        if definition is not None and definition.is_stateful:
            found.append(name)
    return found
