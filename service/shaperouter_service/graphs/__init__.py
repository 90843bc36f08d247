"""The life of compiled graphs: asked for, traced, compiled, ready, or failed with a reason."""

from shaperouter_service.graphs.budget import CompileBudget, memory_bytes
from shaperouter_service.graphs.graph import Graph
from shaperouter_service.graphs.keys import cache_key
from shaperouter_service.graphs.making import CachedMaking, Making, lower_here
from shaperouter_service.graphs.table import GraphTable, NoCover
from shaperouter_service.graphs.tracing import TracingProcess
from shaperouter_service.routing.views import GraphState

__all__ = [
    "CachedMaking",
    "CompileBudget",
    "Graph",
    "GraphState",
    "GraphTable",
    "Making",
    "NoCover",
    "TracingProcess",
    "cache_key",
    "lower_here",
    "memory_bytes",
]
