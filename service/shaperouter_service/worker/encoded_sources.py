"""What an encoder made of sources whose runs have ended: other runs may be about the same ones.

A window of a recording is decoded, perhaps again at higher temperatures, and aligned for the times
of its words. Each is a run of its own, and most come to the same worker within milliseconds.
"""

from shaperouter_service.decoding import Caches

# Of one model: some windows of a small Whisper. Of a larger one it is a single window.
KEPT_BYTES = 256 * 2**20


class EncodedSources:
    """Caches of one row, by the key of their source. Only the device thread may use it."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        """Keeps nothing yet.

        Args:
            kept_bytes: Memory beyond which the oldest are forgotten; the newest never is.
        """
        self._kept_bytes = kept_bytes
        self._caches: dict[bytes, Caches] = {}

    @property
    def size(self) -> int:
        """Memory they take, in bytes."""
        return sum(caches.bytes for caches in self._caches.values())

    def keep(self, key: bytes, caches: Caches) -> None:
        """Takes over the caches of a source, which nobody else may use any more."""
        self._caches.pop(key, None)
        self._caches[key] = caches
        while len(self._caches) > 1 and self.size > self._kept_bytes:
            del self._caches[next(iter(self._caches))]

    def take(self, key: bytes) -> Caches | None:
        """Gives away the caches of a source; None if there are none."""
        return self._caches.pop(key, None)
