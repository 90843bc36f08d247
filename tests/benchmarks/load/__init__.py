"""Benchmark of services under open-loop load on a CPU: `make bench-load`.

Each contestant is a server in its own environment and process (`server_*.py`) that speaks the same
public gRPC API. A generator in a separate process (`generator.py`) sends each of them the same
requests at the same times, whether or not earlier requests have ended. The conductor calls the
contestants in turn, so that other load on the machine affects all of them alike.
`python -m load --help` lists the options.
"""
