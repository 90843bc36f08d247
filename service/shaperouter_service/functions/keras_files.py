"""Loading `.keras` files, in Keras' safe mode: without running code from the file."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from shaperouter_service.errors import StartupError
from shaperouter_service.functions.function import LoadedFunction
from shaperouter_service.functions.operations import check_graph, operations_of
from shaperouter_service.functions.saved_models import tensor_spec

# Characters of Keras' own error that are shown.
MAX_ERROR = 500


def load_keras(path: Path) -> LoadedFunction:
    """Loads a Functional or Sequential model.

    Raises:
        StartupError: The file is damaged, has code of its own or unknown layers, or is no such
            model.
    """
    keras = _import_keras()
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "blake2b")
    except OSError as error:
        raise StartupError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        model = keras.saving.load_model(path, compile=False, safe_mode=True)
    # Keras runs the layers' own code on what a file says, which raises errors of any kind; each
    # means that this file cannot be loaded.
    except Exception as error:
        reason = " ".join(str(error).split())[:MAX_ERROR] or type(error).__name__
        raise StartupError(f"{path}: Keras cannot load the model: {reason}") from error
    if not getattr(model, "inputs", None) or not getattr(model, "outputs", None):
        raise StartupError(
            f"{path}: must be a Functional or Sequential model; export others as a SavedModel"
        )
    if isinstance(model, keras.Sequential):
        # Only a Functional model has the structure and the names of its outputs.
        model = keras.Model(model.inputs, model.outputs)
    inputs = [
        tensor_spec(path, each.name, tf.as_dtype(each.dtype), tf.TensorShape(each.shape))
        for each in model.inputs
    ]
    names = _output_names(path, model)
    outputs = [
        tensor_spec(path, name, tf.as_dtype(each.dtype), tf.TensorShape(each.shape))
        for name, each in zip(names, model.outputs, strict=True)
    ]

    def call(tensors: Mapping[str, Any]) -> Mapping[str, tf.Tensor]:
        given = [tf.convert_to_tensor(tensors[each.name]) for each in inputs]
        found = model(keras.tree.pack_sequence_as(model.input, given), training=False)
        return dict(zip(names, keras.tree.flatten(found), strict=True))

    specs = {each.name: tf.TensorSpec(each.shape, tf.as_dtype(each.dtype.numpy)) for each in inputs}
    traced = tf.function(call, autograph=False).get_concrete_function(specs)
    variables = {id(each.value.handle): each.value for each in model.variables}
    graph_def = traced.graph.as_graph_def()
    check_graph(path, graph_def)
    return LoadedFunction(
        family="keras",
        inputs=inputs,
        outputs=outputs,
        call=call,
        captured=[
            variables.get(id(tensor)) if tensor.dtype == tf.resource else tensor
            for tensor in traced.captured_inputs
        ],
        operations=operations_of(graph_def),
        digest=f"{keras.__version__} {digest.hexdigest()[:32]}",
    )


def _import_keras() -> Any:
    # Only workers with such a file import Keras, which takes a third of a second.
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    try:
        import keras  # noqa: PLC0415 (its import takes long)
    except ImportError as error:
        raise StartupError("a .keras file needs the package keras") from error
    return keras


def _output_names(path: Path, model: Any) -> list[str]:
    """Names of the outputs: their keys if they are a dict, else those of their layers.

    Raises:
        StartupError: They are nested.
    """
    structure = model.output
    if isinstance(structure, dict):
        if any(isinstance(each, dict | list | tuple) for each in structure.values()):
            raise StartupError(
                f"{path}: its outputs are nested; export such a model as a SavedModel"
            )
        return sorted(structure)
    names = list(model.output_names)
    if len(set(names)) == len(names):
        return names
    return [f"{name}_{index}" for index, name in enumerate(names)]
