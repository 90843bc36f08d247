"""Opening an MP3 file so that all of it is decoded.

A file may give its length in a Xing tag in its first frame. Without one, libmpg123 estimates it
from the size of the first frames and stops there: from a file of variable bitrate, or several files
in one, it would silently drop the rest. So the frames are counted by their headers, and a new tag
before them gives their number.
"""

import io
import re
import struct
from dataclasses import dataclass
from typing import Self

from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.speech.audio.joined_file import JoinedFile
from shaperouter_service.speech.audio.violations import CONTENT, check_seconds

# Kilobits per second, by index in the header; 0 is unspecified and 15 is unused.
_BITRATES_1 = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_BITRATES_2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_RATES_1 = (44_100, 48_000, 32_000)
# Divisors of the sample rates by version bits in the header: MPEG-1, 2 and 2.5.
_DIVISORS = {3: 1, 2: 2, 0: 4}
_MONO = 3
_HEADER_BYTES = 4
# Header of an ID3 tag, whose last four bytes are the tag's size, and the offset of its flags. A
# flag says that a footer like the header follows the tag, which its size does not count.
_ID3_BYTES, _ID3_FLAGS_AT, _HAS_FOOTER = 10, 5, 16
# Maximum ID3 tags before the first frame. Programs write one or two.
_MAX_TAGS = 100
_SYNC = re.compile(rb"\xff[\xe2\xe3\xf2\xf3\xfa\xfb]")
_TAGS = (b"Xing", b"Info")
# Its name, flags and number of frames.
_TAG = struct.Struct(">4sII")
# Maximum number of offsets to search for a frame: a tenth of a second.
_MAX_SEARCHES = 100_000
# Flag of the Xing tag: it contains the number of frames.
_HAS_FRAMES = 1


def first_frame_offset(content: bytes) -> int:
    """Offset of the first frame of an MP3, after its ID3 tags if it has any."""
    start = 0
    for _ in range(_MAX_TAGS):
        after = _after_tag(content, start)
        if after == start:
            break
        start = after
    return start


def _after_tag(content: bytes, start: int) -> int:
    """Offset after the ID3 tag at an offset; the same offset if there is none."""
    if not content.startswith(b"ID3", start) or len(content) < start + _ID3_BYTES:
        return start
    # Each byte holds seven bits of the size.
    size = 0
    for byte in content[start + 6 : start + _ID3_BYTES]:
        size = size << 7 | byte & 0x7F
    footer = _ID3_BYTES if content[start + _ID3_FLAGS_AT] & _HAS_FOOTER else 0
    return start + _ID3_BYTES + size + footer


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """The properties of a frame from its header.

    Attributes:
        size: Size in bytes, including the header.
        samples: Samples per channel.
        rate: Samples per second.
        tag_at: Offset of a Xing tag in the frame.
    """

    size: int
    samples: int
    rate: int
    tag_at: int

    @classmethod
    def at(cls, content: bytes | bytearray, offset: int) -> Self | None:
        """Reads the header at an offset; None without a layer III header of known size there."""
        if _SYNC.match(content, offset) is None or len(content) < offset + _HEADER_BYTES:
            return None
        version, bits = content[offset + 1] >> 3 & 3, content[offset + 2]
        bitrate, rate, padding = bits >> 4, bits >> 2 & 3, bits >> 1 & 1
        if not 0 < bitrate < len(_BITRATES_1) or rate == len(_RATES_1):
            return None
        is_first, is_mono = _DIVISORS[version] == 1, content[offset + 3] >> 6 == _MONO
        samples = 1152 if is_first else 576
        hertz = _RATES_1[rate] // _DIVISORS[version]
        bits_a_second = 1000 * (_BITRATES_1 if is_first else _BITRATES_2)[bitrate]
        side = (17 if is_mono else 32) if is_first else (9 if is_mono else 17)
        return cls(
            size=samples // 8 * bits_a_second // hertz + padding,
            samples=samples,
            rate=hertz,
            tag_at=_HEADER_BYTES + side,
        )


def open_mp3(content: bytes) -> io.RawIOBase | io.BytesIO:
    """Opens a file at its first frame, with a new tag if its own does not count all frames.

    The decoder would stumble over some ID3 tags.

    Args:
        content: The file.

    Raises:
        InvalidRequestError: The recording, or the data between its frames, is too long.
    """
    start = first_frame_offset(content)
    frame = _Frame.at(content, start)
    if frame is None or _Frame.at(content, start + frame.size) is None:
        # The decoder reports what is wrong with it.
        return io.BytesIO(content)
    tag = content[start + frame.tag_at : start + frame.tag_at + _TAG.size]
    counted, tagged = _count_frames(content, start), 0
    if tag[:4] in _TAGS:
        # The tag's own frame is not part of the recording.
        counted -= 1
        flags, number = struct.unpack(">II", tag[4:].ljust(8, b"\0"))
        tagged = number if flags & _HAS_FRAMES else 0
    frames = memoryview(content)[start:]
    if tagged >= counted:
        return JoinedFile(frames)
    return JoinedFile(
        memoryview(_tag_frame(content[start : start + _HEADER_BYTES], counted)), frames
    )


def _tag_frame(header: bytes, number: int) -> bytearray:
    """A frame with a Xing tag.

    Args:
        header: The header of the first frame, whose format the tag's has.
        number: Number of frames.
    """
    own = bytearray(header)
    # The tag has no checksum.
    own[1] |= 1
    # Frames of 8 kilobits a second have no room for it, and those of the next bitrates do.
    while (frame := _Frame.at(own, 0)) and frame.size < frame.tag_at + _TAG.size:
        own[2] += 1 << 4
    if frame is None:
        raise ValueError(f"no bitrate has room for a tag: {header!r}")
    tag_frame = own.ljust(frame.size, b"\0")
    _TAG.pack_into(tag_frame, frame.tag_at, _TAGS[0], _HAS_FRAMES, number)
    return tag_frame


def _count_frames(content: bytes, start: int) -> int:
    count, seconds, offset = 0, 0.0, start
    searches = 0
    is_aligned = True
    while offset < len(content):
        frame = _Frame.at(content, offset)
        if frame and (is_aligned or _Frame.at(content, offset + frame.size)):
            count += 1
            seconds += frame.samples / frame.rate
            check_seconds(seconds)
            offset += frame.size
            is_aligned = True
            continue
        # Skip other data between frames, up to two frames in a row.
        searches += 1
        if searches > _MAX_SEARCHES:
            raise InvalidRequestError.of(
                CONTENT,
                f"must have at most {_MAX_SEARCHES} places that look like an MP3 frame but are "
                "not, got more",
            )
        is_aligned = False
        if (after := _after_tag(content, offset)) > offset:
            offset = after
            continue
        found = _SYNC.search(content, offset + 1)
        if found is None:
            break
        offset = found.start()
    return count
