"""Bytes that were something sensible once."""

from __future__ import annotations

import random

# What lengths, counts and tags are at their most dangerous: as varints, and as 8 bytes.
_EXTREMES = [
    b"\x00",
    b"\x7f",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff" * 8,
    (2**63 - 1).to_bytes(8, "little"),
    (2**31).to_bytes(8, "little"),
]


def mutated(data: bytes, source: random.Random) -> bytes:
    """Damages data in one to four places."""
    result = bytearray(data)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(result) + 1)
        length = source.choice((1, 1, 2, 4, 16, 64))
        match source.randrange(6):
            case 0 if result:
                result[at % len(result)] ^= 1 << source.randrange(8)
            case 1:
                result[at : at + length] = source.randbytes(length)
            case 2:
                del result[at : at + length]
            case 3:
                result[at:at] = result[at : at + length] * source.randint(1, 20)
            case 4:
                result[at : at + length] = source.choice(_EXTREMES)
            case _:
                del result[at:]
    return bytes(result)
