"""Authentication of callers by their tokens."""

from shaperouter_service.auth.clients import Client, Clients
from shaperouter_service.auth.quotas import ClientQuota
from shaperouter_service.errors import NotOperatorError, UnauthenticatedError
from shaperouter_service.telemetry.auth import AuthMetrics, Refusal

_SCHEME = "bearer "


class Authentication:
    """Finds the client of a call and its quota. Only the event loop may use it.

    Each router counts for itself. Quotas outlive a change of the file of tokens, which changes only
    the limits.
    """

    def __init__(self, clients: Clients, metrics: AuthMetrics) -> None:
        """Takes the clients, and the metrics that count refusals."""
        self._clients = clients
        self._metrics = metrics
        self._quotas: dict[str, ClientQuota] = {}
        for client in clients.all():
            self._quota(client)

    def authenticate(self, token: str | None) -> ClientQuota:
        """Returns the quota of the client that a token belongs to.

        Args:
            token: The caller's token, if it sent one.

        Raises:
            UnauthenticatedError: The token is missing or unknown.
        """
        client = None if token is None else self._clients.by_token(token)
        if client is None:
            self._metrics.refused(Refusal.MISSING if token is None else Refusal.UNKNOWN)
            raise UnauthenticatedError(has_token=token is not None)
        return self._quota(client)

    def check_operator(self, client: Client) -> None:
        """Checks that a client may make calls that only operators may.

        Raises:
            NotOperatorError: The client is not an operator.
        """
        if not client.operator:
            self._metrics.refused(Refusal.NOT_OPERATOR)
            raise NotOperatorError(client.name)

    def _quota(self, client: Client) -> ClientQuota:
        quota = self._quotas.get(client.name)
        if quota is None:
            quota = self._quotas[client.name] = ClientQuota(client, self._metrics)
            self._metrics.add_client(client.name)
        quota.client = client
        return quota


def bearer_token(authorization: str) -> str | None:
    """The token of an `authorization` header; None if it has another scheme."""
    # The scheme's name may be written in any case (RFC 9110).
    if authorization[: len(_SCHEME)].lower() == _SCHEME:
        return authorization[len(_SCHEME) :].strip()
    return None
