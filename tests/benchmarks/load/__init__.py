"""A service under open-loop load, against other services on a CPU: `make bench-load`.

Contestants are servers in environments and processes of their own (`server_*.py`) that speak the
same public gRPC API. A generator in a process of its own (`generator.py`) sends them the same
requests at the same times, whatever becomes of those before. The conductor calls them in turn, so
that whatever the machine is doing meets all of them alike. `python -m load --help` tells the rest.
"""
