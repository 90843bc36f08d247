"""The client of a call, as fairness needs it."""

from typing import Any

from grpc import aio

from shaperouter_service.auth import current_account

# Metadata key with which a caller names itself; a gateway sets it for its own clients.
CLIENT_ID_KEY = "x-client-id"


def client_of(context: aio.ServicerContext[Any, Any]) -> str:
    """Name of the client: by its token, by the call's metadata, or else by its address.

    Processes on one host count as one client by address, whatever their ports. With tokens, the
    metadata is ignored, because any client could use another's name.
    """
    if account := current_account():
        return account.name
    for key, value in context.invocation_metadata() or ():
        if key == CLIENT_ID_KEY and isinstance(value, str):
            return value
    kind, _, rest = context.peer().partition(":")
    return rest.rpartition(":")[0] if kind in ("ipv4", "ipv6") else kind
