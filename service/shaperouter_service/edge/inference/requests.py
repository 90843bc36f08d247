"""Requests and responses of the protocol as values, whatever they travel over."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"

# The version of every model.
VERSION = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedOutput:
    """A tensor to answer with.

    Attributes:
        name: Its name.
        parameters: Names of its parameters that do not concern its form.
    """

    name: str
    parameters: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """A request to run a model.

    Attributes:
        model: Name of the model.
        version: Its version; empty for any.
        id: The caller's id of the request; empty for none.
        inputs: The tensors, by name.
        parameters: The parameters, by name.
        fields: Values that are neither tensors nor parameters, by name.
        outputs: The tensors to answer with; empty for all.
        received_bytes: Size of the request as it came.
    """

    model: str
    version: str = ""
    id: str = ""
    inputs: Mapping[str, Array] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[RequestedOutput] = ()
    received_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InferResponse:
    """A response to a request; streams have several.

    Attributes:
        model: Name of the model.
        id: The caller's id of the request.
        outputs: The tensors, by name.
        is_final: Whether it is the last response to its request.
    """

    model: str
    id: str
    outputs: Mapping[str, Array]
    is_final: bool = True

    @property
    def size(self) -> int:
        """Bytes of the tensors; elements of type BYTES count as pointers."""
        return sum(array.nbytes for array in self.outputs.values())
