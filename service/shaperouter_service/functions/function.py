"""A function: a model of somebody else's code, saved as a graph of TensorFlow's operations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import tensorflow as tf

from shaperouter_service.models.call_model import CallModel
from shaperouter_service.models.weights import Weights
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.served_model import ModelKind
from shaperouter_service.tensors.specs import CallSpec, TensorSpec

Call: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, tf.Tensor]]


@dataclass(frozen=True, kw_only=True)
class LoadedFunction:
    """A function as it was saved, before its axes are known.

    Attributes:
        family: How it was saved: `savedmodel` or `keras`.
        inputs: The tensors that it takes.
        outputs: The tensors that it gives.
        call: Calls it, eagerly or in a graph, with the tensors by name.
        captured: The variables and constants that it uses, in the order of its graph; None for
            other resources, such as tables.
        operations: Names of the operations that it runs.
        digest: Hash of everything that its compiled graphs depend on.
    """

    family: str
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    call: Call = field(repr=False)
    captured: Sequence[Any] = field(repr=False)
    operations: frozenset[str] = field(repr=False)
    digest: str


class CapturedWeights(Weights):
    """Variables and constants that a graph captures by itself, so nothing need be read for it."""

    def read(self) -> Weights:
        """Returns itself."""
        return self


@dataclass(frozen=True, kw_only=True)
class Function(CallModel):
    """A function that is ready to serve; see `CallModel`.

    Attributes:
        path: The SavedModel's directory, or the `.keras` file.
        function: What was loaded.
        usual: The largest value of each output of real numbers in the trial; see `TriedAxes`.
    """

    kind = ModelKind.FUNCTION

    name: str
    family: str
    spec: CallSpec
    ladders: CallLadders
    weights: Weights
    dtype: tf.DType
    weight_dtype: tf.DType
    parameters: int
    weight_bytes: int
    compiled: bool
    path: Path
    function: LoadedFunction
    usual: Mapping[str, float]

    def call(self, weights: Weights, inputs: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """See `CallModel`. The graph reads its own variables."""
        del weights
        return self.function.call(inputs)

    @property
    def cache_parts(self) -> Mapping[str, Any]:
        """See `CallModel`."""
        return {"function": self.function.digest}
