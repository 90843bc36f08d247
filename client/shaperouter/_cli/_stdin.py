"""Text from stdin, which is UTF-8 whatever the locale says."""

import sys

from shaperouter._errors import InvalidArgumentError


def read_stdin(field: str) -> str:
    """All of stdin.

    Args:
        field: What the text is for.

    Raises:
        InvalidArgumentError: It is not UTF-8.
    """
    return _text(field, sys.stdin.buffer.read())


def read_line(field: str) -> str | None:
    """The next line without its line break; None at the end.

    Args:
        field: What the text is for.

    Raises:
        InvalidArgumentError: It is not UTF-8.
    """
    line = sys.stdin.buffer.readline()
    return _text(field, line).rstrip("\r\n") if line else None


def _text(field: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError.of(
            field, f"stdin is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}"
        ) from None
