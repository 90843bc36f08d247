"""Who asks: what fairness goes by."""

from typing import Any

from grpc import aio

# What a caller names itself in; a gateway sets it for those behind it.
CLIENT_ID_KEY = "x-client-id"


def client_of(context: aio.ServicerContext[Any, Any]) -> str:
    """Names who asks: by what the call says, or else by the address it comes from.

    Processes on one host are one client then, whatever their ports.
    """
    for key, value in context.invocation_metadata() or ():
        if key == CLIENT_ID_KEY and isinstance(value, str):
            return value
    kind, _, rest = context.peer().partition(":")
    return rest.rpartition(":")[0] if kind in ("ipv4", "ipv6") else kind
