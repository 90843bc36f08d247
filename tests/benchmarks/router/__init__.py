"""Measures the cost of a small request in router and worker: `make bench-router`.

The router runs as a process on its own core, in front of a worker process that computes nothing:
the real server of a worker, on an engine that answers every run at once with the same 32 tokens in
chunks of 8 and has all graphs of its ladders. A client in a third process keeps a fixed number of
requests running. The minimum with gRPC serves as the comparison: a proxy on the router's core that
forwards bytes, and the worker's process, which answers the proxy with bytes. The two take turns.

`BENCH=--doors` compares HTTP with gRPC instead: the same requests to two doors of one router, in
turn.
"""
