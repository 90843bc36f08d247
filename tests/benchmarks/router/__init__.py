"""The cost of the router for a request: `make bench-router`.

A router as its own process on a core of its own, over a worker that computes nothing: it is another
process, says the same 32 tokens to everybody in chunks of 8, and has all graphs of its ladders. A
client in a third process keeps so many requests under way. Beside it the least that gRPC allows: a
proxy that passes on what the worker says, and does nothing else.
"""
