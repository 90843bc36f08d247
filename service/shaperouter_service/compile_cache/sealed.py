"""Sealed files: they tell whether they are whole.

::

    magic | digest of the header | size of the header | header, JSON | payload, compressed

The header has the size and the digest of the payload. A file that was cut short, changed, emptied
or is none of ours is found before anything is made of it.
"""

import contextlib
import hashlib
import json
import os
import struct
import time
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

from shaperouter_service.system.files import open_regular

MAGIC = b"shaperouter\x00\x01"
_PREFIX = struct.Struct(f"<{len(MAGIC)}s32sI")

# Executables become a quarter, which takes a hundredth of what compiling them took.
_COMPRESSION = 1

# What is written has such a name until it is whole.
UNFINISHED = "*.unfinished"


class DamagedFileError(Exception):
    """A file is no whole sealed file."""


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a sealed file says of itself.

    Attributes:
        graph: Name of the graph it belongs to.
        seconds: How long it took to make the payload.
        created: When it was written, in seconds since 1970.
        details: Of the payload, as JSON.
        size: Of the payload in the file, in bytes.
        digest: Of the payload in the file.
    """

    graph: str
    seconds: float
    created: float
    details: Mapping[str, Any]
    size: int
    digest: str

    @classmethod
    def read(cls, file: BinaryIO) -> Self:
        """Reads the beginning of a file.

        Raises:
            DamagedFileError: It is not that of a sealed file.
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
        return cls(**json.loads(text))


@dataclass(frozen=True, kw_only=True)
class Sealed:
    """What was in a sealed file.

    Attributes:
        payload: What was kept.
        seconds: How long it took to make.
        details: What was kept with it.
    """

    payload: bytes
    seconds: float
    details: Mapping[str, Any]


def read_header(path: Path) -> Header:
    """Reads what a record says of itself; whether its payload is whole, only its size tells.

    Raises:
        DamagedFileError: It is none, or has another size than it says.
        FileNotFoundError: There is nothing of the name.
    """
    with _opened(path) as file:
        header = Header.read(file)
        found = os.fstat(file.fileno()).st_size - file.tell()
    if found != header.size:
        raise DamagedFileError(f"its payload must have {header.size} bytes, but has {found}")
    return header


def read(path: Path) -> Sealed:
    """Reads and checks a sealed file.

    Raises:
        DamagedFileError: It is none, or not whole.
        FileNotFoundError: There is nothing of the name.
    """
    with _opened(path) as file:
        header = Header.read(file)
        compressed = file.read()
    if _digest(compressed).hex() != header.digest:
        raise DamagedFileError("its payload was changed or truncated")
    payload = zlib.decompress(compressed)
    return Sealed(payload=payload, seconds=header.seconds, details=header.details)


def write(
    path: Path, payload: bytes, *, graph: str, seconds: float, details: Mapping[str, Any]
) -> None:
    """Writes a sealed file at once: a reader finds all of it, or what was there before.

    Raises:
        OSError: It can't be written; nothing has changed then.
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
    replace(path, _PREFIX.pack(MAGIC, _digest(header), len(header)) + header + compressed)


def replace(path: Path, content: bytes) -> None:
    """Writes a file at once.

    Raises:
        OSError: It can't be written; nothing has changed then.
    """
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}{UNFINISHED.removeprefix('*')}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedFileError(f"it can't be read: {error.strerror}") from error


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32).digest()
