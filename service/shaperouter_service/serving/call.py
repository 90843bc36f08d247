"""A call at a door of the service."""

from dataclasses import dataclass

from shaperouter_service.auth import ClientQuota

# Header or metadata with which a caller names itself; a gateway sets it for its own clients.
CLIENT_ID_KEY = "x-client-id"


@dataclass(slots=True, kw_only=True)
class Call:
    """One call: who makes it, and how long it may take.

    Attributes:
        request_id: Names the call in its answer, in errors and in the log.
        method: Name of the method, e.g. `shaperouter.v1.GenerationService/Generate`.
        peer: Address of the caller.
        client: Name of the client, for fairness between clients. The gate replaces it with the
            token's client if calls need one, because any client could use another's name.
        deadline: Deadline on the monotonic clock, in seconds; None if there is none.
        quota: What the client has used of its limits; None if calls need no token.
        logged: Whether the log already has the line that says how the call ended.
    """

    request_id: str
    method: str
    peer: str
    client: str
    deadline: float | None = None
    quota: ClientQuota | None = None
    logged: bool = False
