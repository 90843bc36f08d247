"""The memory that a router's recordings may use."""

import contextlib
from collections import Counter
from collections.abc import Iterator

from shaperouter_service.errors import InvalidRequestError, RecordingMemoryError
from shaperouter_service.speech.audio.violations import CONTENT


class RecordingMemory:
    """Memory for recordings, shared fairly between clients. Only the event loop may use it.

    A single client may use half of it, two a third each, and so on. So there is always room for one
    more.
    """

    def __init__(self, limit: int) -> None:
        """Starts empty.

        Args:
            limit: Maximum bytes that all recordings may use at a time.
        """
        self._limit = limit
        self._used: Counter[str] = Counter()

    @contextlib.contextmanager
    def share(self, client: str) -> Iterator["Share"]:
        """Gives one recording of a client a share of the memory, inside the context."""
        share = Share(self, client)
        try:
            yield share
        finally:
            share.resize(0)

    def change(self, client: str, before: int, size: int, *, begun: bool) -> None:
        """Changes a recording's memory from `before` to `size` bytes.

        Args:
            client: The client of the recording.
            before: Bytes that the recording uses now.
            size: Bytes that it needs.
            begun: Whether it is being transcribed. If it already uses memory, clients that came
                since then do not lower its client's limit.

        Raises:
            InvalidRequestError: It needs more than any client may have.
            RecordingMemoryError: Not enough memory is left.
        """
        used = self._used
        if size > before:
            if size > self._limit // 2:
                raise InvalidRequestError.of(
                    CONTENT,
                    f"must need at most {self._limit // 2} bytes of memory, half of this "
                    f"service's --max-recording-memory, got {size}",
                )
            if used.total() - before + size > self._limit:
                raise RecordingMemoryError(self._limit)
            others = 0 if begun and before else len(used.keys() - {client})
            limit = self._limit // (others + 2)
            if used[client] - before + size > limit:
                raise RecordingMemoryError(limit, of_client=True)
        used[client] += size - before
        if not used[client]:
            del used[client]


class Share:
    """The memory of one recording."""

    def __init__(self, memory: RecordingMemory, client: str) -> None:
        """Starts with no memory; created by `RecordingMemory.share`."""
        self._memory, self._client = memory, client
        self._size = 0

    def resize(self, size: int, *, begun: bool = False) -> None:
        """Changes the share to `size` bytes in all.

        Args:
            size: Bytes in all.
            begun: Whether the recording is being transcribed; see `RecordingMemory.change`.

        Raises:
            InvalidRequestError: The recording needs more memory than any recording may have.
            RecordingMemoryError: Not enough memory is left; the share does not change.
        """
        self._memory.change(self._client, self._size, size, begun=begun)
        self._size = size
