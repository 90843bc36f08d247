"""Multipart forms, byte by byte."""

from __future__ import annotations

BOUNDARY = b"-- a boundary"
FORM = {"content-type": f'multipart/form-data; boundary="{BOUNDARY.decode()}"'}
END = b"\r\n--" + BOUNDARY + b"--\r\n"


def part(name: str, content: bytes | str, *headers: str) -> bytes:
    """A part of a form, with the line before it."""
    disposition = f'content-disposition: form-data; name="{name}"'
    if name == "file":
        disposition += '; filename="recording.wav"'
    head = "\r\n".join([disposition, *headers]).encode()
    body = content.encode() if isinstance(content, str) else content
    return b"\r\n--" + BOUNDARY + b"\r\n" + head + b"\r\n\r\n" + body


def form(*fields: tuple[str, bytes | str]) -> bytes:
    """A whole form."""
    return b"".join(part(*field) for field in fields) + END
