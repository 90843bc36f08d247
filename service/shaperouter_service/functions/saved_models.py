"""Loading SavedModels: one signature, with its variables on the device."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from shaperouter_service.checkpoints.functions import SAVED_MODEL
from shaperouter_service.errors import StartupError
from shaperouter_service.functions.function import LoadedFunction
from shaperouter_service.functions.operations import check_graph, operations_of
from shaperouter_service.functions.settings import FunctionSettings
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.specs import TensorSpec

USUAL_SIGNATURE = "serving_default"


def load_saved_model(directory: Path, settings: FunctionSettings) -> LoadedFunction:
    """Loads a signature of a SavedModel.

    Raises:
        StartupError: The SavedModel is damaged, lacks the signature, has a forbidden operation, or
            the signature has tensors that cannot be served.
    """
    content = _check_graph(directory)
    try:
        loaded = tf.saved_model.load(str(directory))
    # A damaged file makes TensorFlow's loader raise whatever its code meets first, such as KeyError
    # or AttributeError; each means that this model cannot be loaded.
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise StartupError(f"{directory}: the SavedModel cannot be loaded: {reason}") from error
    signatures = dict(loaded.signatures)
    name = settings.signature or USUAL_SIGNATURE
    if settings.signature is None and name not in signatures and len(signatures) == 1:
        (name,) = signatures
    if name not in signatures:
        known = ", ".join(sorted(signatures)) or "none"
        raise StartupError(f"{directory}: has no signature {name!r}; its signatures: {known}")
    signature = signatures[name]
    _, keywords = signature.structured_input_signature
    # By name: SavedModels do not keep an order.
    inputs = [
        tensor_spec(directory, each, keywords[each].dtype, keywords[each].shape)
        for each in sorted(keywords)
    ]
    if not inputs:
        raise StartupError(f"{directory}: the signature {name} has no inputs")
    outputs = [
        tensor_spec(directory, each, output.dtype, output.shape)
        for each, output in sorted(signature.structured_outputs.items())
    ]

    graph_def = signature.graph.as_graph_def()
    check_graph(directory, graph_def)

    # Refers to `loaded`, which owns the variables.
    def call(tensors: Mapping[str, Any], _owner: Any = loaded) -> Mapping[str, tf.Tensor]:
        found: Mapping[str, tf.Tensor] = signature(
            **{each.name: tf.convert_to_tensor(tensors[each.name]) for each in inputs}
        )
        return found

    variables = {id(variable.handle): variable for variable in signature.variables}
    return LoadedFunction(
        family="savedmodel",
        inputs=inputs,
        outputs=outputs,
        call=call,
        captured=[
            variables.get(id(tensor)) if tensor.dtype == tf.resource else tensor
            for tensor in signature.captured_inputs
        ],
        operations=operations_of(graph_def),
        digest=hashlib.blake2b(content + name.encode(), digest_size=16).hexdigest(),
    )


def tensor_spec(path: Path, name: str, dtype: tf.DType, shape: tf.TensorShape) -> TensorSpec:
    """The description of a tensor.

    Raises:
        StartupError: Its number of dimensions is unknown, or tensors cannot have its type.
    """
    if shape.rank is None:
        raise StartupError(f"{path}: {name} has an unknown number of dimensions")
    if dtype == tf.string:
        kind = DType.BYTES
    else:
        try:
            kind = DType.from_numpy(dtype.as_numpy_dtype)
        except (ValueError, TypeError, KeyError) as error:
            raise StartupError(f"{path}: {name} has the data type {dtype.name}") from error
    return TensorSpec(name=name, dtype=kind, shape=tuple(shape.as_list()))


def _check_graph(directory: Path) -> bytes:
    """Checks the operations before anything is loaded; returns the content of the file."""
    path = directory / SAVED_MODEL
    try:
        content = path.read_bytes()
        saved = saved_model_pb2.SavedModel.FromString(content)
    except OSError as error:
        raise StartupError(f"{path}: cannot be read: {error.strerror}") from error
    except DecodeError as error:
        raise StartupError(f"{path}: is not a SavedModel: {error}") from error
    if not saved.meta_graphs:
        raise StartupError(f"{path}: has no graph")
    for meta_graph in saved.meta_graphs:
        check_graph(directory, meta_graph.graph_def, is_whole=True)
    return content
