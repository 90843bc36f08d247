"""Compiled graphs and their states: queued, tracing, compiling, ready or failed."""

from shaperouter_service.graphs.budget import CompileBudget, memory_bytes
from shaperouter_service.graphs.builder import CachedGraphBuilder, GraphBuilder, lower_here
from shaperouter_service.graphs.graph import Graph
from shaperouter_service.graphs.keys import cache_key
from shaperouter_service.graphs.lowering_process import LoweringProcess
from shaperouter_service.graphs.table import GraphTable, NoCover
from shaperouter_service.routing.views import GraphState

__all__ = [
    "CachedGraphBuilder",
    "CompileBudget",
    "Graph",
    "GraphBuilder",
    "GraphState",
    "GraphTable",
    "LoweringProcess",
    "NoCover",
    "cache_key",
    "lower_here",
    "memory_bytes",
]
