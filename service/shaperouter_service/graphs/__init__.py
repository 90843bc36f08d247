"""The life of compiled graphs: asked for, traced, compiled, ready, or failed with a reason."""

from shaperouter_service.graphs.graph import Graph, GraphState
from shaperouter_service.graphs.keys import cache_key
from shaperouter_service.graphs.making import CachedMaking, Making
from shaperouter_service.graphs.table import GraphTable, NoCover

__all__ = [
    "CachedMaking",
    "Graph",
    "GraphState",
    "GraphTable",
    "Making",
    "NoCover",
    "cache_key",
]
