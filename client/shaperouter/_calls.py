"""Calls in progress in several threads, which can be cancelled together."""

import threading
from typing import Any, TypeVar

import grpc

from shaperouter._status import cancelled

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class Calls:
    """A set of calls that are cancelled together. Threads may share it.

    Attributes:
        ended: Set by `end`.
    """

    def __init__(self) -> None:
        """Starts without calls."""
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._under_way: set[grpc.Future[Any]] = set()

    def send(
        self,
        method: "grpc.UnaryUnaryMultiCallable[_Request, _Response]",
        request: _Request,
        timeout: float | None,
    ) -> _Response:
        """Makes a call and waits for its answer.

        Raises:
            grpc.RpcError: The call failed.
            CallCancelledError: `end` was called.
        """
        call = method.future(request, timeout=timeout)
        with self._lock:
            self._under_way.add(call)
        if self.ended.is_set():
            call.cancel()
        try:
            return call.result()
        except grpc.FutureCancelledError:
            raise cancelled() from None
        finally:
            with self._lock:
                self._under_way.discard(call)

    def end(self) -> None:
        """Cancels the calls in progress and all later ones."""
        self.ended.set()
        with self._lock:
            calls = list(self._under_way)
        for call in calls:
            call.cancel()
