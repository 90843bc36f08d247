"""Tables in plain text."""

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], *, texts: Collection[int]) -> list[str]:
    """The lines of a table.

    Args:
        rows: The cells of each row, the first one with the titles.
        texts: Columns of texts, which are aligned to the left; numbers are aligned to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(width) if column in texts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return [line.rstrip() for line in lines]
