"""The interface of a model that is called once: a function, or a text encoder with its head."""

import abc
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from shaperouter_service.models.weights import Weights
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.served_model import ModelKind
from shaperouter_service.tensors.specs import CallSpec


class CallModel(abc.ABC):
    """A model that answers once, without slots and steps.

    It computes a batch with static shapes. It sees neither requests nor padding: the worker pads
    each axis of `spec` with the axis' own value, joins calls along the batch, and cuts their rows
    and sizes out of the outputs. A row of padding has padding in every input, and its outputs are
    ignored.

    Instances are immutable and safe to share between threads.

    Attributes:
        kind: What it does with its input.
        compiled: Whether XLA compiles it; if not, TensorFlow runs its operations one by one, and
            `call` may use any of them.
        name: As requests call it.
        family: Family of the architecture, or how the function was saved, e.g. `savedmodel`.
        spec: Its tensors and axes.
        ladders: The sizes of its graphs; None instead of a ladder where padding or joining calls
            would change answers.
        labels: Names of the classes, in the order of the scores; empty without names.
        weights: Its variables on the device, which all of its graphs share.
        dtype: Type of most computations.
        weight_dtype: Type that matrices are stored in.
        parameters: Number of parameters.
        weight_bytes: Memory of the weights.
        max_length: Maximum tokens of a text; 0 for a function.
        vocab_size: Number of token ids; 0 for a function.
        token_types: Number of types of tokens; 0 for a function, and if tokens have no types.
        text_prompt: Text that is put before each text that is not one of a pair; may be empty.
        lowercases_text: Whether texts become lowercase before they are tokenized.
    """

    kind: ModelKind
    compiled: bool = True
    name: str
    family: str
    spec: CallSpec
    ladders: CallLadders
    labels: tuple[str, ...] = ()
    weights: Weights
    dtype: tf.DType
    weight_dtype: tf.DType
    parameters: int
    weight_bytes: int
    max_length: int = 0
    vocab_size: int = 0
    token_types: int = 0
    text_prompt: str = ""
    lowercases_text: bool = False

    @abc.abstractmethod
    def call(self, weights: Weights, inputs: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """Computes all outputs of a batch. It is traced with static shapes, once for each graph.

        Args:
            weights: The values of `weights`.
            inputs: The inputs of `spec`, by name.

        Returns:
            The outputs of `spec`, by name.
        """

    @property
    @abc.abstractmethod
    def cache_parts(self) -> Mapping[str, Any]:
        """Values on which compiled graphs depend, besides code and the weights' shapes and types.

        The values are written as JSON: dimensions of a family, or a digest of a file.
        """
