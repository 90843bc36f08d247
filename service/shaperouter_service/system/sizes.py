"""Sizes in bytes as people write and read them, and the cap on a worker's memory."""

import re
from dataclasses import dataclass
from typing import Self

import click

from shaperouter_service.system.devices import memory_limit

_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(text: str) -> int:
    """Parses an option's size, e.g. 500MB or 10GiB, in powers of 1000, or of 1024 with an `i`.

    Raises:
        click.BadParameter: It is not a size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(?:([KMGT])(i?))?B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise click.BadParameter(
            f"must be a number of bytes, or one with a unit as in 500MB and 10GiB, got {text!r}"
        )
    number, power, binary = match.groups(default="")
    return int(float(number) * (1024 if binary else 1000) ** _POWERS[power.upper()])


def format_size(size: float) -> str:
    """A size with about three digits, e.g. `12.3 MB`."""
    if size < 1000:
        return f"{size:.0f} B"
    if size < 1e6:
        return f"{size / 1e3:.1f} kB"
    if size < 1e9:
        return f"{size / 1e6:.1f} MB"
    return f"{size / 1e9:.1f} GB"


@dataclass(frozen=True, kw_only=True)
class MemoryCap:
    """The memory above which a worker compiles no more graphs (`--max-memory`).

    Either a number of bytes or a fraction of the container's memory limit.

    Attributes:
        size: Bytes for each worker; 0 means no limit.
        share: A fraction between 0 and 1, which the workers of a container divide among themselves.
            None if the limit is a size.
    """

    size: int = 0
    share: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses a size, such as 8GB, or a fraction, such as 70%.

        Raises:
            click.BadParameter: It is neither.
        """
        if match := re.fullmatch(r"(\d+(?:\.\d+)?) ?%", text.strip()):
            share = float(match[1]) / 100
            if not 0 < share <= 1:
                raise click.BadParameter(f"must be above 0% and at most 100%, got {text!r}")
            return cls(share=share)
        return cls(size=parse_size(text))

    def bytes_for(self, workers: int) -> int:
        """Bytes for each of `workers` workers in this container; 0 means no limit.

        A fraction means no limit if the container has no memory limit.
        """
        if self.share is None:
            return self.size
        return int(self.share * (memory_limit() or 0) / workers)

    def __str__(self) -> str:
        """The text that parses to the same limit."""
        return str(self.size) if self.share is None else f"{100 * self.share:g}%"
