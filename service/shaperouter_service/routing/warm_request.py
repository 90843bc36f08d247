"""A request to warm graphs, before it is checked."""

from collections.abc import Sequence
from dataclasses import dataclass

from shaperouter_service.routing.signatures import GraphKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedGraph:
    """The shape of a graph as requested, which may not exist; see `Signature`.

    Attributes:
        model: Name of the model; empty for the only one that has graphs of the kind.
        kind: What the graph computes. A number is an unknown kind, which is refused.
        beams: Beam width.
        rows: Rows.
        length: Length.
        further: Sizes of the other axes of a call.
        exact: Sizes of a call along axes that cannot be padded.
    """

    model: str
    kind: GraphKind | int
    beams: int
    rows: int
    length: int
    further: tuple[int, ...] = ()
    exact: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmRequest:
    """A request to warm graphs.

    Attributes:
        count: Number of requested graphs.
        graphs: The graphs, in order; only the first ones if there are more than allowed.
        workers: Names of the workers to warm them on.
        all_workers: Whether to warm them on all workers.
    """

    count: int
    graphs: Sequence[RequestedGraph]
    workers: Sequence[str]
    all_workers: bool
