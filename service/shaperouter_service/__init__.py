"""Shaperouter's service: a router that signs requests and workers that run compiled graphs.

A request's life, room by room:

1. `api` checks the message; a violation names the field, the limit and the value.
2. `text` tokenizes the prompt.
3. `routing` derives the signatures it asks for and knows, in the catalog, which worker has what.
4. `fleet` hands it to a worker and streams back what the worker says.
5. `worker` queues it, gives it a slot of a lane, and lets it join and leave at chunk boundaries.
6. `graphs` keeps the compiled program of each signature; `decoding` is what they compute, with
   the forward pass of a family from `models`.
7. `text` turns tokens back into text, and `telemetry` counts what happened.

Only `worker`, `graphs`, `decoding` and `models` import TensorFlow, and only worker processes
import those.
"""

import os
from importlib.metadata import version

# gRPC has a log of its own, which tells of every connection that ends. Read when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

__version__ = version("shaperouter-service")
