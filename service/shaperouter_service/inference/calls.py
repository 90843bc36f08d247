"""Calls of models that answer once, as values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from shaperouter_service.generation.run_events import GraphUse
from shaperouter_service.routing.choice import Decision, WorkerOption

Tensors: TypeAlias = "Mapping[str, np.ndarray[Any, Any]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRequest:
    """A caller's request.

    Attributes:
        model: Name of the model; empty for the only one that can be called.
        inputs: The tensors, by name. A text encoder takes `text`, or `text` and `text_pair`, or
            token ids.
        outputs: Names of the tensors to return; empty for all.
        truncates: Whether texts that are too long are cut; if not, they are refused.
        explains: Whether the caller asks for the routing decisions.
        received_bytes: Size of the request as it came, which its door keeps until it is answered.
    """

    model: str
    inputs: Tensors
    outputs: Sequence[str] = ()
    truncates: bool = False
    explains: bool = False
    received_bytes: int = 0

    @property
    def size(self) -> int:
        """Bytes of the request and its tensors; elements of type BYTES count as pointers."""
        return self.received_bytes + _size(self.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCall:
    """A checked call, as a worker gets it.

    Attributes:
        request_id: Id of the request, for logs.
        client: Name of the client, for fairness between clients.
        model: Name of the model.
        inputs: The tensors, which fit the model's `CallSpec`.
        outputs: Names of the tensors to return.
        suspect: Whether workers died while they had it, so that it must be computed alone.
    """

    request_id: str
    client: str
    model: str
    inputs: Tensors
    outputs: Sequence[str]
    suspect: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTimings:
    """How long a call took on its worker, in seconds.

    Attributes:
        queue_seconds: From its arrival until its first graph was called, without stalls.
        stall_seconds: Waiting for compilations.
        device_seconds: From the first call of a graph to the end of the last.
    """

    queue_seconds: float = 0.0
    stall_seconds: float = 0.0
    device_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerResult:
    """The result of a call, as a worker gives it.

    Attributes:
        outputs: The tensors that were asked for, without padding.
        timings: Its times.
        graphs: The graphs that served it.
    """

    outputs: Tensors
    timings: CallTimings
    graphs: Sequence[GraphUse]


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceResult:
    """The result of a request.

    Attributes:
        request_id: Id of the request.
        model: Name of the model.
        revision: Revision of the model; see `ServedModel`.
        outputs: The tensors, by name.
        rows: Rows of the batch that the request had.
        tokens: Tokens of its texts.
        timings: Its times on the worker.
        route_seconds: From its arrival until it was first sent to a worker.
        total_seconds: From its arrival to its end.
        graphs: The graphs that served it.
        worker: The worker.
        routes: The routing decisions, if requested.
    """

    request_id: str
    model: str
    revision: str
    outputs: Tensors
    rows: int
    tokens: int
    timings: CallTimings
    route_seconds: float
    total_seconds: float
    graphs: Sequence[GraphUse]
    worker: str
    routes: Sequence[Decision[WorkerOption]] = ()

    @property
    def size(self) -> int:
        """Bytes of the tensors; elements of type BYTES count as pointers."""
        return _size(self.outputs)


def _size(tensors: Tensors) -> int:
    return sum(array.nbytes for array in tensors.values())
