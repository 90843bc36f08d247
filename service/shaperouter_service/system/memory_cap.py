"""The memory limit above which a worker makes no more graphs (`--max-memory`)."""

import re
from dataclasses import dataclass
from typing import Self

import click

from shaperouter_service.system.devices import memory_limit
from shaperouter_service.system.sizes import parse_size


@dataclass(frozen=True, kw_only=True)
class MemoryCap:
    """A number of bytes, or a fraction of the container's memory limit.

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
