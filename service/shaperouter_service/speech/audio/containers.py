"""File formats of recordings: detection and completeness checks.

The decoder reads a truncated file without an error, so these checks look for missing parts.
"""

import struct
from enum import Enum

from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.speech.audio.mp3 import first_frame_offset
from shaperouter_service.speech.audio.violations import (
    CONTENT,
    check_channels,
    check_rate,
)
from shaperouter_service.speech.audio.wav import DATA, chunks


class Container(Enum):
    """File formats; the value is the usual name."""

    WAV = "WAV"
    FLAC = "FLAC"
    OGG = "OGG"
    MP3 = "MP3"


# Maximum chunks of a WAV. Programs write a dozen; a large file of empty ones has millions.
_MAX_CHUNKS = 1000
# Maximum offset in an MP3 of the tag that gives its length.
_TAG_WITHIN = 64
# Flags of that tag: the fields that it has.
_HAS_FRAMES, _HAS_BYTES = 1, 2
# Offsets in an OGG page: its flags, and the number of its segments, whose sizes follow.
_FLAGS_AT, _SEGMENTS_AT = 5, 26
# Flag of a stream's last page.
_LAST_PAGE = 4
# First bytes of the first and of the last page of a stream.
_FIRST_PAGE_BEGINS, _LAST_PAGE_BEGINS = b"OggS\0\2", b"OggS\0\4"
# First bytes of a FLAC with its first block, which is the last one of a file without texts.
_FLAC_BEGINS = (b"fLaC\0\0\0\x22", b"fLaC\x80\0\0\x22")
# Bytes of the largest page: its header, the segments' sizes, and 255 segments of 255 bytes.
_MAX_PAGE = 27 + 255 + 255 * 255


def detect_container(content: bytes, declared: Container | None) -> Container:
    """Detects a file's format by its first bytes.

    Raises:
        InvalidRequestError: It is not a known format, or not the declared one.
    """
    found = _detect(content)
    if found is None:
        names = ", ".join(kind.value for kind in Container)
        begins = content[:8].hex(" ")
        raise InvalidRequestError.of(
            CONTENT, f"must be in one of the formats {names}, got a file that begins with {begins}"
        )
    if declared not in (None, found):
        raise InvalidRequestError.of(
            "audio.format",
            f"must match audio.content, which is {found.value}; got {declared.value}",
        )
    return found


def _detect(content: bytes) -> Container | None:
    if content[:4] in (b"RIFF", b"RF64") and content[8:12] == b"WAVE":
        return Container.WAV
    if content.startswith(b"fLaC"):
        return Container.FLAC
    if content.startswith(b"OggS"):
        return Container.OGG
    # An ID3 tag, or a frame of layer III, which begins with eleven set bits.
    is_frame = content[:1] == b"\xff" and len(content) > 1 and content[1] & 0xE6 == 0xE2
    return Container.MP3 if content.startswith(b"ID3") or is_frame else None


def check_complete(content: bytes, container: Container) -> None:
    """Checks that a file is complete and within limits, by its own headers.

    Raises:
        InvalidRequestError: It is truncated or has several streams, or its rate or number of
            channels exceeds a limit.
    """
    if container is Container.WAV:
        _check_wav(content)
    elif container is Container.FLAC:
        _check_flac(content)
    elif container is Container.OGG:
        _check_ogg(content)
    elif container is Container.MP3:
        _check_mp3(content)


def truncated(container: Container, detail: str) -> InvalidRequestError:
    """The error for a truncated file."""
    return InvalidRequestError.of(CONTENT, f"must be a complete {container.value} file: {detail}")


def _check_wav(content: bytes) -> None:
    has_samples = False
    for number, chunk in enumerate(chunks(content), 1):
        if number > _MAX_CHUNKS:
            raise InvalidRequestError.of(
                CONTENT, f"must have at most {_MAX_CHUNKS} chunks, got more"
            )
        available = len(content) - chunk.start
        if chunk.name == b"fmt " and min(chunk.size, available) >= 8:
            channels, rate = struct.unpack_from("<HI", content, chunk.start + 2)
            check_channels(channels, CONTENT)
            check_rate(rate, CONTENT)
        if chunk.name == DATA:
            has_samples = True
            if chunk.size > available:
                raise truncated(
                    Container.WAV,
                    f"its header declares {chunk.size} bytes of samples, got {available}",
                )
    if not has_samples:
        raise truncated(Container.WAV, f"it has no samples, got {len(content)} bytes")


def _check_flac(content: bytes) -> None:
    for beginning in _FLAC_BEGINS:
        if (second := content.find(beginning, len(beginning))) >= 0:
            raise _several_streams(Container.FLAC, second)


def _check_ogg(content: bytes) -> None:
    start = content.rfind(b"OggS")
    page = content[start : start + _MAX_PAGE]
    is_last = len(page) > _SEGMENTS_AT and page[_FLAGS_AT] & _LAST_PAGE
    if not is_last:
        raise truncated(Container.OGG, f"its last page is missing, got {len(content)} bytes")
    body = _SEGMENTS_AT + 1 + page[_SEGMENTS_AT]
    declared = body + sum(page[_SEGMENTS_AT + 1 : body])
    if len(page) < declared:
        raise truncated(Container.OGG, f"its last page declares {declared} bytes, got {len(page)}")
    end = content.find(_LAST_PAGE_BEGINS)
    if end >= 0 and (second := content.find(_FIRST_PAGE_BEGINS, end)) >= 0:
        raise _several_streams(Container.OGG, second)


def _several_streams(container: Container, second: int) -> InvalidRequestError:
    """Refuses a file with several streams: the decoder would read only the first."""
    return InvalidRequestError.of(
        CONTENT, f"must have one stream, got another at byte {second} of the {container.value} file"
    )


def _check_mp3(content: bytes) -> None:
    """Checks the Xing tag that encoders put into the first frame; some files have none."""
    start = first_frame_offset(content)
    beginning = content[start : start + _TAG_WITHIN]
    offset = max(beginning.find(b"Xing"), beginning.find(b"Info"))
    if offset < 0 or len(beginning) < offset + 16:
        return
    flags, *fields = struct.unpack_from(">III", beginning, offset + 4)
    if not flags & _HAS_BYTES:
        return
    declared = fields[1] if flags & _HAS_FRAMES else fields[0]
    available = len(content) - start
    if available < declared:
        raise truncated(Container.MP3, f"its header declares {declared} bytes, got {available}")
