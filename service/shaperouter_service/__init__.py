"""Shaperouter's service: a router for requests, and workers that run compiled graphs.

How a request is served, room by room:

1. A door of `edge` has the call pass the gate of `serving`, which authenticates it and applies
   limits. Then the door translates the message with `wire`.
2. `serving` validates the request by the rules of `generation`, and `text` tokenizes the prompt.
3. `routing` computes the signatures that the request needs and finds, in the catalog, the worker
   and the graphs that finish it first.
4. `fleet` sends it to the worker and streams back the worker's events.
5. `worker` queues it, gives it a slot of a lane, and lets it join and leave at chunk boundaries.
6. `graphs` keeps the compiled program of each signature; `decoding` defines what they compute, with
   the forward pass of a model family from `models`.
7. `text` converts tokens back to text, and `telemetry` records what happened.

Only workers load TensorFlow. CONTRIBUTING.md has the rooms that may import it.
"""

import os
from importlib.metadata import version

# gRPC's C core writes lines of its own, which break a JSON log. The service's own errors cover what
# concerns an operator, such as a port in use. gRPC reads this variable when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

__version__ = version("shaperouter-service")
