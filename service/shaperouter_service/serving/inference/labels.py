"""The best class of each text, which the router adds to the scores of a classifier."""

from collections.abc import Sequence

import numpy as np

from shaperouter_service.inference.calls import Tensors
from shaperouter_service.routing.call_ladders import ServedCall
from shaperouter_service.routing.served_model import ModelKind, ServedModel
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.specs import TensorSpec

# Outputs: scores of all classes in the last dimension, and the name of the best class.
SCORES, LABEL = "scores", "label"


def output_specs(model: ServedModel, served: ServedCall) -> list[TensorSpec]:
    """The outputs that callers may request."""
    specs = {output.name: output for output in served.spec.outputs}
    scores = specs.get(SCORES)
    if model.kind is ModelKind.CLASSIFIER and scores is not None and LABEL not in specs:
        specs[LABEL] = TensorSpec(name=LABEL, dtype=DType.BYTES, shape=scores.shape[:-1])
    return list(specs.values())


def known_outputs(model: ServedModel, served: ServedCall) -> list[str]:
    """Names of the outputs that callers may request."""
    return [output.name for output in output_specs(model, served)]


def worker_outputs(outputs: Sequence[str]) -> list[str]:
    """Names of the outputs that workers must give for those of a caller."""
    if LABEL not in outputs:
        return list(outputs)
    return list(dict.fromkeys(SCORES if name == LABEL else name for name in outputs))


def with_labels(tensors: Tensors, outputs: Sequence[str], labels: Sequence[str]) -> Tensors:
    """The outputs of a caller, in the requested order.

    Args:
        tensors: The outputs of a worker.
        outputs: Names of the requested outputs.
        labels: Names of the classes; if empty, a class is named by its number.
    """
    found = dict(tensors)
    if LABEL in outputs and LABEL not in found:
        scores = found[SCORES]
        names = labels or list(map(str, range(scores.shape[-1])))
        encoded = np.array([name.encode() for name in names], dtype=object)
        found[LABEL] = encoded[scores.argmax(axis=-1)]
    return {name: found[name] for name in outputs}
