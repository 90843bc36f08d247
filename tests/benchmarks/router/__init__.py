"""Benchmark of the router's cost per request: `make bench-router`.

The router runs as a process on its own core, in front of a worker process that computes nothing: it
answers every request with the same 32 tokens in chunks of 8, and has all graphs of its ladders. A
client in a third process keeps a fixed number of requests running. The minimum with gRPC serves as
the comparison: a proxy that only forwards the worker's events.
"""
