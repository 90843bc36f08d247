"""Operations of functions that are refused, and those that give a function state."""

from collections.abc import Iterable

from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.framework import op_def_registry

from shaperouter_service.errors import StartupError

# They run Python code of the process that saved the model, or use files of this machine.
FORBIDDEN = frozenset(
    {
        "CreateSummaryDbWriter",
        "CreateSummaryFileWriter",
        "DebugIdentityV2",
        "DebugIdentityV3",
        "EagerPyFunc",
        "FileSystemSetConfiguration",
        "GenerateVocabRemapping",
        "ImportEvent",
        "LoadAndRemapMatrix",
        "MatchingFiles",
        "PyFunc",
        "PyFuncStateless",
        "ReadFile",
        "WriteFile",
    }
)
# Words in the names of others. Many of these read and write files, and none of them is part of a
# model's answer.
FORBIDDEN_WORDS = ("Dataset", "Reader")

# Operations that save and restore variables. A SavedModel has functions for that, which run when it
# is loaded; its signatures have no use for them.
SAVING = frozenset(
    {
        "DistributedSave",
        "MergeV2Checkpoints",
        "Restore",
        "RestoreSlice",
        "RestoreV2",
        "Save",
        "SaveSlices",
        "SaveV2",
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
    return frozenset(node.op for node in _nodes(graph_def))


def check_graph(path: object, graph_def: GraphDef, *, may_save: bool = False) -> None:
    """Refuses operations that run code from elsewhere, or use files.

    Args:
        path: The model's path, for errors.
        graph_def: The graph.
        may_save: Whether it may have operations that save and restore variables.

    Raises:
        StartupError: An operation is forbidden, or TensorFlow does not have it.
    """
    functions = {function.signature.name for function in graph_def.library.function}
    for node in sorted(_nodes(graph_def), key=lambda node: node.op):
        name = node.op
        if (
            name in FORBIDDEN
            or any(word in name for word in FORBIDDEN_WORDS)
            or (name in SAVING and not may_save)
            or (name == "PrintV2" and node.attr["output_stream"].s.startswith(b"file:"))
        ):
            raise StartupError(
                f"{path}: the operation {name} runs code or uses files of this machine, which a "
                "model may not do"
            )
        if name not in functions and op_def_registry.get(name) is None:
            raise StartupError(f"{path}: {name} is a custom operation, which is not supported")


def _nodes(graph_def: GraphDef) -> list[NodeDef]:
    """The operations of a graph and of all functions in it."""
    nodes = list(graph_def.node)
    for function in graph_def.library.function:
        nodes.extend(function.node_def)
    return nodes


def stateful(operations: Iterable[str]) -> list[str]:
    """The operations that give a function state: it then answers equal calls differently."""
    found = []
    for name in sorted(set(operations) - HARMLESS):
        definition = op_def_registry.get(name)
        if definition is not None and definition.is_stateful:
            found.append(name)
    return found
