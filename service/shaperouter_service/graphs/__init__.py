"""The life of compiled graphs: asked for, traced, compiled, ready, or failed with a reason."""

from shaperouter_service.graphs.graph import Graph, GraphState
from shaperouter_service.graphs.table import GraphTable, NoCover

__all__ = ["Graph", "GraphState", "GraphTable", "NoCover"]
