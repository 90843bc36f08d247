"""The end of an event stream: one completion, and no event after it."""

from typing import Generic, Protocol, TypeVar

from shaperouter._errors import InternalError


class _Identified(Protocol):
    @property
    def request_id(self) -> str: ...


ResultT = TypeVar("ResultT", bound=_Identified)


class StreamEnd(Generic[ResultT]):
    """The result of an event stream; the completion event sets `_result`."""

    def __init__(self) -> None:
        """Begins without a result."""
        self._result: ResultT | None = None

    @property
    def complete(self) -> bool:
        """Whether the completion has arrived."""
        return self._result is not None

    @property
    def result(self) -> ResultT:
        """The whole result.

        Raises:
            RuntimeError: The completion has not arrived.
        """
        if self._result is None:
            raise RuntimeError(
                "the stream has no result yet: it exists once the stream was read to its end"
            )
        return self._result

    def end(self) -> None:
        """Marks the end of the events.

        Raises:
            InternalError: There was no completion.
        """
        if self._result is None:
            raise InternalError("the service ended a stream without its completion")

    def _expect_more(self) -> None:
        """Checks that an event may still come.

        Raises:
            InternalError: The completion has already arrived.
        """
        if self._result is not None:
            raise InternalError(
                "the service sent an event after the completion of a stream",
                request_id=self._result.request_id,
            )
