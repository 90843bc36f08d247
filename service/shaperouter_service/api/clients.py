"""Who asks: what fairness goes by."""

from typing import Any

from grpc import aio

from shaperouter_service.access import current_account

# What a caller names itself in; a gateway sets it for those behind it.
CLIENT_ID_KEY = "x-client-id"


def client_of(context: aio.ServicerContext[Any, Any]) -> str:
    """Names who asks: by the token, by what the call says, or else by the address it comes from.

    Processes on one host are one client by their address, whatever their ports. With tokens, what
    the call says counts for nothing: any client could say any other's name.
    """
    if account := current_account():
        return account.name
    for key, value in context.invocation_metadata() or ():
        if key == CLIENT_ID_KEY and isinstance(value, str):
            return value
    kind, _, rest = context.peer().partition(":")
    return rest.rpartition(":")[0] if kind in ("ipv4", "ipv6") else kind
