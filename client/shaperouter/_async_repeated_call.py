"""A streaming call that is made again if it fails before its first response."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from shaperouter._async_connection import AsyncCalls, async_errors, read
from shaperouter._errors import ShaperouterError
from shaperouter._retries import Attempts

if TYPE_CHECKING:
    from shaperouter._async_connection import AsyncStreamingCall

ResponseT = TypeVar("ResponseT")


class AsyncRepeatedCall(Generic[ResponseT]):
    """Reads the responses of a call. Only one thread or task may read."""

    def __init__(
        self,
        start: "Callable[[float | None], AsyncStreamingCall[ResponseT]]",
        attempts: Attempts,
        calls: AsyncCalls,
        *,
        address: str,
        deadline: float | None,
    ) -> None:
        """Starts the call.

        Args:
            start: Starts it, with a timeout in seconds; None means no limit.
            attempts: The failures after which it is started again.
            calls: They cancel a pause between two attempts.
            address: The service's address, for errors.
            deadline: The caller's timeout in seconds, which errors name.
        """
        self._began = False
        self._start = start
        self._attempts = attempts
        self._calls = calls.part()
        self._address = address
        self._deadline = deadline
        self._call = self._calls.start(start, attempts.left)

    def cancel(self) -> None:
        """Cancels the call: its reader gets `CallCancelledError`. No effect after the end.

        Any thread may call it; in asyncio, any task.
        """
        self._calls.cancel()
        self._call.cancel()

    async def read(self) -> ResponseT:
        """Waits for the next response.

        Raises:
            StopAsyncIteration: The call has ended.
            ShaperouterError: It failed.
        """
        while True:
            try:
                with async_errors(address=self._address, deadline=self._deadline):
                    response = await read(self._call)
            except ShaperouterError as error:
                pause = self._pause_after(error)
                if pause is None:
                    raise
            else:
                self._began = True
                return response
            try:
                await self._calls.pause(pause)
            except BaseException:  # an interrupted reader has cancelled the call
                self.cancel()
                raise
            self._call = self._calls.start(self._start, self._attempts.left)
            if self._calls.cancelled:  # perhaps before the assignment
                self._call.cancel()

    def _pause_after(self, error: ShaperouterError) -> float | None:
        """Seconds until the next attempt; None if there is none."""
        if self._began or self._calls.cancelled:
            return None
        return self._attempts.pause_after(error)
