"""The gate, which every call passes, whatever its door."""

import contextlib
from collections.abc import Iterator

from shaperouter_service.auth import Authentication, CallLimit
from shaperouter_service.errors import ServiceError
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.refusal_log import RefusalLog
from shaperouter_service.system.drain import Drain


class Gate:
    """Authenticates calls, applies the limits of clients and of the router, and logs refusals.

    Only the event loop may use it.
    """

    def __init__(
        self,
        drain: Drain,
        call_limit: CallLimit,
        refusals: RefusalLog,
        authentication: Authentication | None,
    ) -> None:
        """Opens the gate.

        Args:
            drain: Refuses work once the router drains.
            call_limit: Limits the calls in progress.
            refusals: Logs every call that ends with an error of the service.
            authentication: The clients that may call; None lets all call.
        """
        self._drain = drain
        self._call_limit = call_limit
        self._refusals = refusals
        self._authentication = authentication

    @property
    def is_open(self) -> bool:
        """Whether it admits work: it does until the router drains."""
        return not self._drain.begun

    @contextlib.contextmanager
    def passed(
        self, call: Call, *, token: str | None, is_work: bool, for_operators: bool
    ) -> Iterator[None]:
        """Surrounds the handling of a call.

        Args:
            call: The call, whose quota and client are set here.
            token: The caller's bearer token, if it sent one.
            is_work: Whether it counts against limits, and whether a drain waits for it.
            for_operators: Whether only operators may make it.

        Raises:
            UnauthenticatedError: The token is missing or unknown.
            NotOperatorError: The client is not an operator.
            StoppingError: The router drains.
            TooManyCallsError: The router, or the client, has too many calls in progress.
            ClientLimitError: The client has reached a limit of its own.
        """
        try:
            if self._authentication:
                call.quota = self._authentication.authenticate(token)
                call.client = call.quota.name
                if for_operators:
                    self._authentication.check_operator(call.quota.client)
            with self._admitted(call) if is_work else contextlib.nullcontext():
                yield
        except ServiceError as error:
            self._refusals.refused(error, call)
            raise

    def max_requests(self, call: Call) -> int:
        """Maximum number of requests in progress of the client of a call."""
        own = None if call.quota is None else call.quota.client.max_requests
        limit = self._call_limit.max_per_client
        return limit if own is None else min(own, limit)

    @contextlib.contextmanager
    def further(self, call: Call, count: int) -> Iterator[None]:
        """Counts further work of a call that has passed, such as the other prompts of a completion.

        Args:
            call: The call.
            count: Number of requests that it stands for, beside itself.

        Raises:
            TooManyCallsError: The router, or the client, has too many calls in progress.
            ClientLimitError: The client has reached a limit of its own.
        """
        with contextlib.ExitStack() as counted:
            for _ in range(count):
                counted.enter_context(self._call_limit.admitted(call.client))
                if call.quota is not None:
                    counted.enter_context(call.quota.admitted())
            yield

    @contextlib.contextmanager
    def _admitted(self, call: Call) -> Iterator[None]:
        with self._drain.admitted(), self._call_limit.admitted(call.client):
            if call.quota is None:
                yield
                return
            with call.quota.admitted():
                yield
