"""Result that the events of a stream add up to."""

from typing import Any, Generic, Protocol, TypeVar

from shaperouter import _convert
from shaperouter._errors import InternalError
from shaperouter._graph import Graph

EventT_contra = TypeVar("EventT_contra", contravariant=True)
ItemT_co = TypeVar("ItemT_co", covariant=True)


class StreamEvents(Protocol[EventT_contra, ItemT_co]):
    """Reads the events of one stream, in order. Only one reader may use it."""

    @property
    def complete(self) -> bool:
        """Whether the completion has arrived."""

    def add(self, event: EventT_contra) -> ItemT_co | None:
        """Takes the next event and returns its item, or None if it has none.

        Raises:
            InternalError: The event comes after the completion.
        """

    def end(self) -> None:
        """Marks the end of the events.

        Raises:
            InternalError: There was no completion.
        """


class GraphEvents:
    """The events of a stream of graphs: each is a list, and none completes the stream."""

    complete = False

    def add(self, event: Any) -> list[Graph]:
        """Returns the event's graphs."""
        return [_convert.graph(graph) for graph in event.graphs]

    def end(self) -> None:
        """Does nothing: the stream may end after any event."""


class _Identified(Protocol):
    @property
    def request_id(self) -> str: ...


ResultT = TypeVar("ResultT", bound=_Identified)


class CompletedEvents(Generic[ResultT]):
    """Base of events that end with one completion, which sets `_result`."""

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
