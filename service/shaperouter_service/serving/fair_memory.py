"""Memory that calls share: a router's recordings, and its tensors."""

import contextlib
from collections import Counter
from collections.abc import Iterator

from shaperouter_service.errors import InvalidRequestError, MemoryLimitError


class FairMemory:
    """Memory for calls, shared fairly between clients. Only the event loop may use it.

    A single client may use half of it, two a third each, and so on. So there is always room for one
    more.
    """

    def __init__(self, limit: int, *, full: type[MemoryLimitError]) -> None:
        """Starts empty.

        Args:
            limit: Maximum bytes that all calls may use at a time.
            full: The error for a call that may succeed later, unless its share has another.
        """
        self._limit = limit
        self._full = full
        self._used: Counter[str] = Counter()

    @contextlib.contextmanager
    def share(self, client: str, full: type[MemoryLimitError] | None = None) -> Iterator["Share"]:
        """Gives one call of a client a share of the memory, inside the context.

        Args:
            client: The client.
            full: The error for this call if it may succeed later; None for the usual one.
        """
        share = Share(self, client, full or self._full)
        try:
            yield share
        finally:
            share.resize(0)

    def change(
        self, client: str, before: int, size: int, *, begun: bool, full: type[MemoryLimitError]
    ) -> None:
        """Changes a call's memory from `before` to `size` bytes.

        Args:
            client: The client of the call.
            before: Bytes that the call uses now.
            size: Bytes that it needs.
            begun: Whether its work has begun. If it already uses memory, clients that came since
                then do not lower its client's limit.
            full: The error if the call may succeed later.

        Raises:
            InvalidRequestError: It needs more than any client may have.
            MemoryLimitError: Not enough memory is left.
        """
        used = self._used
        if size > before:
            if size > self._limit // 2:
                raise InvalidRequestError.of(
                    full.field,
                    f"must need at most {self._limit // 2} bytes of memory, half of this "
                    f"service's {full.option}, got {size}",
                )
            if used.total() - before + size > self._limit:
                raise full(self._limit)
            others = 0 if begun and before else len(used.keys() - {client})
            limit = self._limit // (others + 2)
            if used[client] - before + size > limit:
                raise full(limit, of_client=True)
        used[client] += size - before
        if not used[client]:
            del used[client]


class Share:
    """The memory of one call."""

    def __init__(self, memory: FairMemory, client: str, full: type[MemoryLimitError]) -> None:
        """Starts with no memory; created by `FairMemory.share`."""
        self._memory, self._client, self._full = memory, client, full
        self._size = 0

    def resize(self, size: int, *, begun: bool = False) -> None:
        """Changes the share to `size` bytes in all.

        Args:
            size: Bytes in all.
            begun: Whether the work of the call has begun; see `FairMemory.change`.

        Raises:
            InvalidRequestError: The call needs more memory than any client may have.
            MemoryLimitError: Not enough memory is left; the share does not change.
        """
        self._memory.change(self._client, self._size, size, begun=begun, full=self._full)
        self._size = size
