"""Compiled graphs and their states: queued, tracing, compiling, ready or failed."""

from shaperouter_service.graphs.budget import CompileBudget, memory_bytes
from shaperouter_service.graphs.builder import (
    Builder,
    CachedGraphBuilder,
    GraphBuilder,
    PlainGraphBuilder,
)
from shaperouter_service.graphs.cache_keys import cache_key, call_cache_key
from shaperouter_service.graphs.graph import Graph
from shaperouter_service.graphs.graph_table import GraphTable, NoCover
from shaperouter_service.routing.snapshots import GraphState

__all__ = [
    "Builder",
    "CachedGraphBuilder",
    "CompileBudget",
    "Graph",
    "GraphBuilder",
    "GraphState",
    "GraphTable",
    "NoCover",
    "PlainGraphBuilder",
    "cache_key",
    "call_cache_key",
    "memory_bytes",
]
