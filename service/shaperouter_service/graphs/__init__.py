"""The life of compiled graphs: asked for, traced, compiled, ready, or failed with a reason."""

from shaperouter_service.graphs.budget import CompileBudget, CompileMode, memory_bytes
from shaperouter_service.graphs.graph import Graph
from shaperouter_service.graphs.table import GraphTable, NoCover
from shaperouter_service.routing.views import GraphState

__all__ = [
    "CompileBudget",
    "CompileMode",
    "Graph",
    "GraphState",
    "GraphTable",
    "NoCover",
    "memory_bytes",
]
