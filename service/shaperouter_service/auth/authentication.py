"""Authentication of callers by their tokens."""

from shaperouter_service.auth.accounts import Account, Accounts
from shaperouter_service.auth.clients import Client, Clients
from shaperouter_service.errors import NotOperatorError, UnauthenticatedError
from shaperouter_service.telemetry.access import AccessMetrics, Refusal

_SCHEME = "bearer "


class Authentication:
    """The clients that may call, and what each has used. Only the event loop may use it."""

    def __init__(self, clients: Clients, metrics: AccessMetrics) -> None:
        """Takes the clients, and the metrics that count refusals."""
        self._clients = clients
        self._metrics = metrics
        self._accounts = Accounts(metrics)
        for client in clients.known():
            self._accounts.of(client)

    def authenticate(self, token: str | None) -> Account:
        """Returns the account of the client that a token belongs to.

        Args:
            token: The caller's token, if it sent one.

        Raises:
            UnauthenticatedError: The token is missing or unknown.
        """
        client = None if token is None else self._clients.of_token(token)
        if client is None:
            self._metrics.refused(Refusal.MISSING if token is None else Refusal.UNKNOWN)
            raise UnauthenticatedError(has_token=token is not None)
        return self._accounts.of(client)

    def check_operator(self, client: Client) -> None:
        """Checks that a client may make calls that only operators may.

        Raises:
            NotOperatorError: It may not.
        """
        if not client.operator:
            self._metrics.refused(Refusal.NOT_OPERATOR)
            raise NotOperatorError(client.name)


def bearer_token(authorization: str) -> str | None:
    """The token of an `authorization` header; None if it has another scheme."""
    # The scheme's name may be written in any case (RFC 9110).
    if authorization[: len(_SCHEME)].lower() == _SCHEME:
        return authorization[len(_SCHEME) :].strip()
    return None
