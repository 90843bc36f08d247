"""Sizes in bytes, as people write and read them."""

import re

import click

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
