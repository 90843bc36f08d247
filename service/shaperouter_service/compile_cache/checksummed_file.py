"""Files with checksums, which show whether they are complete and unchanged.

::

    magic | digest of the header | size of the header | header, JSON | payload, compressed

The header has the size and the digest of the payload. Readers detect a truncated, changed, empty or
foreign file before they use it.
"""

import errno
import hashlib
import json
import os
import struct
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

from shaperouter_service.system.files import open_regular, write_atomically

MAGIC = b"shaperouter\x00\x01"
_PREFIX = struct.Struct(f"<{len(MAGIC)}s32sI")

# zlib's fastest level shrinks executables to a quarter, in a hundredth of their compile time.
_COMPRESSION = 1

# What opening a directory, a pipe, a socket or a circle of links fails with. Other errors, such as
# a lack of descriptors or of the network, say nothing about the file.
_FOREIGN = (errno.EINVAL, errno.ENXIO, errno.EISDIR, errno.ELOOP)


class DamagedFileError(Exception):
    """A file is truncated, changed or foreign."""


@dataclass(frozen=True, kw_only=True)
class Header:
    """The header of a file.

    Attributes:
        graph: Name of the graph.
        seconds: Time that making the payload took.
        created: Time of writing, in seconds since 1970.
        details: Further facts about the payload, as JSON.
        size: Bytes of the compressed payload.
        digest: Digest of the compressed payload, in hexadecimal.
    """

    graph: str
    seconds: float
    created: float
    details: Mapping[str, Any]
    size: int
    digest: str

    @classmethod
    def read(cls, file: BinaryIO) -> Self:
        """Reads the header at the beginning of a file.

        Raises:
            DamagedFileError: There is no intact header.
        """
        prefix = file.read(_PREFIX.size)
        if len(prefix) < _PREFIX.size:
            raise DamagedFileError("it is truncated")
        magic, digest, size = _PREFIX.unpack(prefix)
        if magic != MAGIC:
            raise DamagedFileError("it is not a file of the cache")
        text = file.read(size)
        if _digest(text) != digest:
            raise DamagedFileError("its header was changed or truncated")
        try:
            return cls(**json.loads(text))
        # It is intact, so another version has written it.
        except (TypeError, ValueError, RecursionError):
            raise DamagedFileError("its header is not of this version") from None


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The contents of a file.

    Attributes:
        payload: The payload, decompressed.
        seconds: Time that making the payload took.
        details: Further facts about the payload.
    """

    payload: bytes
    seconds: float
    details: Mapping[str, Any]


def read_header(path: Path) -> Header:
    """Reads the header of a file, and checks the payload's size but not its digest.

    Raises:
        DamagedFileError: The header is damaged, or the size is wrong.
        OSError: The file cannot be read now, or there is none.
    """
    with _opened(path) as file:
        header = Header.read(file)
        found = os.fstat(file.fileno()).st_size - file.tell()
    if found != header.size:
        raise DamagedFileError(f"its payload must have {header.size} bytes, but has {found}")
    return header


def read(path: Path) -> Contents:
    """Reads and checks a file.

    Raises:
        DamagedFileError: The file is truncated, changed or foreign.
        OSError: It cannot be read now, or there is none.
    """
    with _opened(path) as file:
        header = Header.read(file)
        compressed = file.read()
    if _digest(compressed).hex() != header.digest:
        raise DamagedFileError("its payload was changed or truncated")
    try:
        payload = zlib.decompress(compressed)
    except zlib.error as error:
        raise DamagedFileError(f"its payload is not compressed: {error}") from None
    return Contents(payload=payload, seconds=header.seconds, details=header.details)


def write(
    path: Path, payload: bytes, *, graph: str, seconds: float, details: Mapping[str, Any]
) -> None:
    """Writes a file atomically: readers find either all of it or the previous file.

    Raises:
        OSError: The file cannot be written; the previous one stays.
    """
    compressed = zlib.compress(payload, _COMPRESSION)
    header = json.dumps(
        {
            "graph": graph,
            "seconds": round(seconds, 3),
            "created": time.time(),
            "details": details,
            "size": len(compressed),
            "digest": _digest(compressed).hex(),
        }
    ).encode()
    write_atomically(path, _PREFIX.pack(MAGIC, _digest(header), len(header)) + header + compressed)


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except OSError as error:
        if error.errno in _FOREIGN:
            raise DamagedFileError(f"it cannot be read: {error.strerror}") from error
        raise


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32).digest()
