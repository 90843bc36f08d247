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
        "DebugIdentity",
        "DebugIdentityV2",
        "DebugIdentityV3",
        "DebugNanCount",
        "DebugNumericSummary",
        "EagerPyFunc",
        "FileSystemSetConfiguration",
        "GenerateVocabRemapping",
        "ImportEvent",
        "LoadAndRemapMatrix",
        "MatchingFiles",
        "PyFunc",
        "PyFuncStateless",
        "ReadFile",
        "RecordInput",
        "WriteFile",
    }
)
# Words in the names of others. Many of these use files; the rest is a pipeline of input, which a
# model's answer has no need of.
FORBIDDEN_WORDS = ("Dataset", "Reader")
# Attributes that name a file to read.
FORBIDDEN_ATTRIBUTES = ("vocab_file",)

# Operations that save and restore variables, and that fill tables from files. A SavedModel has
# functions for that, which run when it is loaded; its signatures have no use for them.
LOADING = frozenset(
    {
        "DistributedSave",
        "InitializeTableFromTextFile",
        "InitializeTableFromTextFileV2",
        "MergeV2Checkpoints",
        "Restore",
        "RestoreSlice",
        "RestoreV2",
        "Save",
        "SaveSlices",
        "SaveV2",
    }
)
# Where an operation may print to; without a value, it is the first. A placeholder, in a function,
# may stand for a file.
PRINTS_TO = (b"stderr", b"stdout", b"log(info)", b"log(warning)", b"log(error)")

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


def check_graph(path: object, graph_def: GraphDef, *, is_whole: bool = False) -> None:
    """Refuses operations that run code from elsewhere, or use files.

    Args:
        path: The model's path, for errors.
        graph_def: The graph.
        is_whole: Whether it is the graph of a whole file, with the functions that load the model,
            and not only that of a signature.

    Raises:
        StartupError: An operation is forbidden, or TensorFlow does not have it.
    """
    functions = {function.signature.name for function in graph_def.library.function}
    for node in sorted(_nodes(graph_def), key=lambda node: node.op):
        if node.op in functions:
            continue
        if _is_forbidden(node) or (node.op in LOADING and not is_whole):
            raise StartupError(
                f"{path}: the operation {node.op} runs code, uses files of this machine or makes "
                "a pipeline of input, which a model may not do"
            )
        if op_def_registry.get(node.op) is None:
            raise StartupError(f"{path}: {node.op} is a custom operation, which is not supported")


def _is_forbidden(node: NodeDef) -> bool:
    return (
        node.op in FORBIDDEN
        or any(word in node.op for word in FORBIDDEN_WORDS)
        or any(name in node.attr and node.attr[name].s for name in FORBIDDEN_ATTRIBUTES)
        or (
            node.op == "PrintV2"
            and "output_stream" in node.attr
            and node.attr["output_stream"].s not in PRINTS_TO
        )
    )


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
