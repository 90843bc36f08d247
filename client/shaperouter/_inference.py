"""Results of models that answer once: functions and text encoders."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shaperouter._generation import GraphUse, Route

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class CallMetadata:
    """How a call was served.

    Attributes:
        request_id: Id of the request; the service's logs have the same.
        model: Name of the model that served it.
        rows: Rows of the batch that the request had; 1 for a model without a batch.
        route_seconds: From its arrival at the service until it was sent to a worker, in seconds.
        queue_seconds: Waiting at the worker for earlier requests.
        stall_seconds: Waiting for graphs to be compiled.
        device_seconds: From the first call of a graph to the end of the last.
        total_seconds: From its arrival at the service to the end.
        graphs: The graphs asked for and the graphs that served.
        worker: The worker that computed it.
        routes: With `explain`, the options that the router had; otherwise empty.
        revision: Revision of the model that served it; see `Model.revision`.
    """

    request_id: str
    model: str
    rows: int
    route_seconds: float
    queue_seconds: float
    stall_seconds: float
    device_seconds: float
    total_seconds: float
    graphs: tuple[GraphUse, ...]
    worker: str
    routes: tuple[Route, ...] = ()
    revision: str = ""


@dataclass(frozen=True, kw_only=True)
class Inference:
    """The result of a call; ``result["name"]`` is an output.

    Attributes:
        outputs: The arrays, by name.
        metadata: How the call was served.
    """

    outputs: "Mapping[str, np.ndarray[Any, Any]]"
    metadata: CallMetadata

    def __getitem__(self, name: str) -> "np.ndarray[Any, Any]":
        """One output.

        Raises:
            KeyError: There is no such output.
        """
        return self.outputs[name]


@dataclass(frozen=True, kw_only=True)
class Embeddings:
    """The embeddings of texts.

    Attributes:
        vectors: One for each text, in order.
        metadata: How the call was served.
    """

    vectors: tuple[tuple[float, ...], ...]
    metadata: CallMetadata


@dataclass(frozen=True, kw_only=True)
class Classification:
    """The class of a text.

    Attributes:
        label: Name of the class with the highest score; its number if the model has no names.
        score: The score of this class.
        scores: The scores of all classes, in the model's order.
    """

    label: str
    score: float
    scores: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class RankedDocument:
    """A document, ranked by how well it answers a query.

    Attributes:
        index: Its place among the documents that were given.
        score: Its score; higher is better.
        document: Its text.
    """

    index: int
    score: float
    document: str
