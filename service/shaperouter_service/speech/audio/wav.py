"""The chunks of a WAV file, and opening a file that does not give its length.

A program that writes a WAV to a pipe does not know the length. Some write 0, for which libsndfile
reads nothing, so such a file is opened with its true length.
"""

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from shaperouter_service.speech.audio.joined_file import JoinedFile

# Name of the chunk of samples.
DATA = b"data"
# Sizes that programs write while the length is unknown; 0 may also be true.
_UNKNOWN_SIZES = {0x7FFFFFFF, 0x7FFFF000, 0xFFFFFFFE, 0xFFFFFFFF}
# The size in place of one that is in the chunk `ds64` of an RF64, and where that chunk has it.
_LONG_SIZE, _LONG_SIZE_AT = 0xFFFFFFFF, 8
# Bytes of the headers of a file and of a chunk. A chunk's ends with its size.
_FILE_HEADER_BYTES, _HEADER_BYTES, _SIZE_BYTES = 12, 8, 4


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A chunk of a WAV.

    Attributes:
        name: Its name.
        start: Where its content begins.
        size: Its declared size in bytes. If that is unknown, it is the rest of the file.
        is_sized: Whether its size is known.
    """

    name: bytes
    start: int
    size: int
    is_sized: bool = True


def chunks(content: bytes) -> Iterator[Chunk]:
    """Yields the chunks of a file in order."""
    long_size: int | None = None
    offset = _FILE_HEADER_BYTES
    while (start := offset + _HEADER_BYTES) <= len(content):
        name, size = struct.unpack_from("<4sI", content, offset)
        chunk = Chunk(name=name, start=start, size=size)
        if name == b"ds64" and content.startswith(b"RF64") and len(content) >= start + 16:
            (long_size,) = struct.unpack_from("<Q", content, start + _LONG_SIZE_AT)
        if name == DATA and size == _LONG_SIZE and long_size is not None:
            chunk = Chunk(name=name, start=start, size=long_size)
        elif name == DATA and _is_unknown(content, chunk):
            chunk = Chunk(name=name, start=start, size=len(content) - start, is_sized=False)
        yield chunk
        # Chunks begin at even offsets.
        offset = start + chunk.size + chunk.size % 2


def open_wav(content: bytes) -> io.RawIOBase | io.BytesIO:
    """Opens a file, with the size of its samples if it does not give it itself."""
    for chunk in chunks(content):
        if not chunk.is_sized:
            whole = memoryview(content)
            size = memoryview(struct.pack("<I", chunk.size))
            return JoinedFile(whole[: chunk.start - _SIZE_BYTES], size, whole[chunk.start :])
    return io.BytesIO(content)


def _is_unknown(content: bytes, samples: Chunk) -> bool:
    if samples.size:
        return samples.size in _UNKNOWN_SIZES
    # A file without samples may have other chunks after them, which its own size counts.
    (size,) = struct.unpack_from("<I", content, 4)
    return size in _UNKNOWN_SIZES or _HEADER_BYTES + size <= samples.start
