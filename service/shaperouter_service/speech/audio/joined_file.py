"""A file made of parts in memory."""

import io


class JoinedFile(io.RawIOBase):
    """A file made of parts, without copying them."""

    def __init__(self, *parts: memoryview) -> None:
        """Joins the parts."""
        self._parts = parts
        self._size = sum(map(len, parts))
        self._at = 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves to a position; see `io.IOBase.seek`."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        """The position."""
        return self._at

    # Narrower than the base's type, because `io`, its only caller, passes no other buffers.
    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Reads into a buffer and returns the number of bytes; 0 at the end."""
        at, read = self._at, 0
        for part in self._parts:
            piece = part[at : at + len(buffer) - read]
            buffer[read : read + len(piece)] = piece
            read += len(piece)
            at = max(0, at - len(part))
        self._at += read
        return read
