"""How a stream of events ends: with one completion, and nothing after it."""

from typing import Generic, Protocol, TypeVar

from shaperouter._errors import InternalError


class _Identified(Protocol):
    @property
    def request_id(self) -> str: ...


ResultT = TypeVar("ResultT", bound=_Identified)


class StreamEnd(Generic[ResultT]):
    """What a stream's events come to in the end; `_result` is set by their completion."""

    def __init__(self) -> None:
        """Begins without a result."""
        self._result: ResultT | None = None

    @property
    def complete(self) -> bool:
        """Whether the completion has come."""
        return self._result is not None

    @property
    def result(self) -> ResultT:
        """The whole result.

        Raises:
            RuntimeError: The completion has not come.
        """
        if self._result is None:
            raise RuntimeError(
                "the stream has no result yet: it exists once the stream was read to its end"
            )
        return self._result

    def end(self) -> None:
        """Takes note that no event follows.

        Raises:
            InternalError: There was no completion.
        """
        if self._result is None:
            raise InternalError("the service ended a stream without its completion")

    def _expect_more(self) -> None:
        """Takes note of an event.

        Raises:
            InternalError: It comes after the completion.
        """
        if self._result is not None:
            raise InternalError(
                "the service sent an event after the completion of a stream",
                request_id=self._result.request_id,
            )
