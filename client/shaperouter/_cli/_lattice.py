"""Graphs by shape: a lattice of rows and lengths for each model, kind and beam width."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shaperouter._graph import Graph, GraphState
from shaperouter._signature import GraphKind, Signature

# States in the order in which an operator looks at them.
BY_INTEREST = (
    *(GraphState.COMPILING, GraphState.TRACING, GraphState.QUEUED, GraphState.FAILED),
    *(GraphState.READY, GraphState.UNKNOWN, GraphState.COLD),
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One signature on all workers.

    Attributes:
        graphs: Its graph on each worker; at least one.
    """

    graphs: Sequence[Graph]

    @property
    def signature(self) -> Signature:
        """The signature."""
        return self.graphs[0].signature

    @property
    def ready(self) -> int:
        """Number of workers that have it ready."""
        return sum(graph.state is GraphState.READY for graph in self.graphs)

    @property
    def state(self) -> GraphState:
        """Its most interesting state on any worker."""
        return min((graph.state for graph in self.graphs), key=BY_INTEREST.index)

    @property
    def missed_seconds(self) -> float:
        """Device time that its absence has cost, on all workers together."""
        return sum(graph.missed_seconds for graph in self.graphs)

    @property
    def padded_seconds(self) -> float:
        """Device time that it spent on padding, on all workers together."""
        return sum(graph.padded_seconds for graph in self.graphs)


@dataclass(frozen=True, kw_only=True)
class Lattice:
    """The signatures of one model, kind and beam width.

    Attributes:
        model: Name of the model.
        kind: What the graphs compute.
        beams: Beam width.
        cells: The cells by rows and length, with all sizes of a call; not every combination has
            one.
    """

    model: str
    kind: GraphKind
    beams: int
    cells: Mapping[tuple[int, str], Cell]

    @property
    def title(self) -> str:
        """Model and kind, and the beam width if it is above 1."""
        return f"{self.model} {self.kind}" + (f" beams {self.beams}" if self.beams > 1 else "")

    @property
    def rows(self) -> list[int]:
        """The ladder of rows."""
        return sorted({rows for rows, _ in self.cells})

    @property
    def lengths(self) -> list[str]:
        """The ladder of lengths."""
        sizes = {
            length: (cell.signature.exact, cell.signature.length, cell.signature.further)
            for (_, length), cell in self.cells.items()
        }
        return sorted(sizes, key=sizes.__getitem__)

    @property
    def states(self) -> Counter[GraphState]:
        """How many graphs are in each state."""
        return Counter(graph.state for cell in self.cells.values() for graph in cell.graphs)


def lattices(graphs: Iterable[Graph]) -> list[Lattice]:
    """Groups graphs into lattices, in their order."""
    grouped: dict[tuple[str, GraphKind, int], dict[tuple[int, str], list[Graph]]] = {}
    for graph in graphs:
        shape = graph.signature
        group = grouped.setdefault((shape.model, shape.kind, shape.beams), {})
        group.setdefault((shape.rows, shape.length_text), []).append(graph)
    return [
        Lattice(
            model=model,
            kind=kind,
            beams=beams,
            cells={size: Cell(graphs=same_size) for size, same_size in cells.items()},
        )
        for (model, kind, beams), cells in grouped.items()
    ]
