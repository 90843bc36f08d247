"""Files of recordings: which kind one is, and whether it is whole.

The decoder reads what there is of a file that was cut off; that something is missing is seen here.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from shaperouter_service.audio.violations import CONTENT, check_channels, check_rate, violation
from shaperouter_service.errors import InvalidRequestError


class Container(Enum):
    """Kinds of files; the value is what people call it."""

    WAV = "WAV"
    FLAC = "FLAC"
    OGG = "OGG"
    MP3 = "MP3"


# Sizes that programs write into a WAV whose end they don't know yet.
_UNKNOWN_SIZES = {0, 0x7FFFFFFF, 0x7FFFF000, 0xFFFFFFFE, 0xFFFFFFFF}
# Where the tag of an MP3 that tells its length can be, at most, behind its beginning.
_TAG_WITHIN = 64
# Bits of that tag: its fields.
_HAS_FRAMES, _HAS_BYTES = 1, 2
# Where a page has its flags, and the number of its segments, whose sizes follow.
_FLAGS_AT, _SEGMENTS_AT = 5, 26
# Of the flags: that of a stream's last page.
_LAST_PAGE = 4


def recognise(content: bytes, declared: Container | None) -> Container:
    """Tells the kind of a file by its first bytes.

    Raises:
        InvalidRequestError: It is none of them, or another than was declared.
    """
    found = _found(content)
    names = ", ".join(kind.value for kind in Container)
    begins = content[:8].hex(" ")
    if found is None:
        raise violation(CONTENT, f"must be a file of {names}, got one that begins with {begins}")
    if declared not in (None, found):
        raise violation(
            "audio.format", f"must be what audio.content is, {found.value}, got {declared.value}"
        )
    return found


def _found(content: bytes) -> Container | None:
    if content[:4] in (b"RIFF", b"RF64") and content[8:12] == b"WAVE":
        return Container.WAV
    if content.startswith(b"fLaC"):
        return Container.FLAC
    if content.startswith(b"OggS"):
        return Container.OGG
    # A tag of texts, or the first eleven bits of a frame, all set, of layer III.
    is_frame = content[:1] == b"\xff" and len(content) > 1 and content[1] & 0xE6 == 0xE2
    return Container.MP3 if content.startswith(b"ID3") or is_frame else None


def check_whole(content: bytes, container: Container) -> None:
    """Checks what a file says of itself.

    Raises:
        InvalidRequestError: It was cut off, or its rate or number of channels is over a limit.
    """
    if container is Container.WAV:
        _check_wav(content)
    elif container is Container.OGG:
        _check_ogg(content)
    elif container is Container.MP3:
        _check_mp3(content)


def cut_off(container: Container, detail: str) -> InvalidRequestError:
    """The error about a file that is not whole."""
    return violation(CONTENT, f"must be a whole {container.value} file: {detail}")


@dataclass(frozen=True, kw_only=True)
class _Chunk:
    """Part of a WAV: its name, where its content begins, and how many bytes it claims to have."""

    name: bytes
    start: int
    size: int


def _chunks(content: bytes) -> Iterator[_Chunk]:
    position = 12
    while position + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, position)
        yield _Chunk(name=name, start=position + 8, size=size)
        # Chunks begin at even places.
        position += 8 + size + size % 2


def _check_wav(content: bytes) -> None:
    has_samples = False
    for chunk in _chunks(content):
        there = len(content) - chunk.start
        if chunk.name == b"fmt " and min(chunk.size, there) >= 8:
            channels, rate = struct.unpack_from("<HI", content, chunk.start + 2)
            check_channels(channels, CONTENT)
            check_rate(rate, CONTENT)
        if chunk.name == b"data":
            has_samples = True
            if chunk.size > there and chunk.size not in _UNKNOWN_SIZES:
                raise cut_off(
                    Container.WAV, f"it says it has {chunk.size} bytes of samples, got {there}"
                )
    if not has_samples:
        raise cut_off(Container.WAV, f"it has no samples, got {len(content)} bytes")


def _check_ogg(content: bytes) -> None:
    page = content[content.rfind(b"OggS") :]
    is_last = len(page) > _SEGMENTS_AT and page[_FLAGS_AT] & _LAST_PAGE
    if not is_last:
        raise cut_off(Container.OGG, f"its last page is missing, got {len(content)} bytes")
    body = _SEGMENTS_AT + 1 + page[_SEGMENTS_AT]
    claimed = body + sum(page[_SEGMENTS_AT + 1 : body])
    if len(page) < claimed:
        raise cut_off(Container.OGG, f"its last page has {claimed} bytes, got {len(page)}")


def _check_mp3(content: bytes) -> None:
    """Looks at the tag that encoders put into the first frame (Xing's); some files have none."""
    start = 0
    if content.startswith(b"ID3") and len(content) >= 10:
        # Seven bits of each byte count.
        size = 0
        for byte in content[6:10]:
            size = size << 7 | byte & 0x7F
        start = 10 + size
    beginning = content[start : start + _TAG_WITHIN]
    place = max(beginning.find(b"Xing"), beginning.find(b"Info"))
    if place < 0 or len(beginning) < place + 16:
        return
    flags, *fields = struct.unpack_from(">III", beginning, place + 4)
    if not flags & _HAS_BYTES:
        return
    claimed = fields[1] if flags & _HAS_FRAMES else fields[0]
    there = len(content) - start
    if there < claimed:
        raise cut_off(Container.MP3, f"it says it has {claimed} bytes, got {there}")
