"""Finds a short list that still fails: delta debugging, as Zeller and Hildebrandt describe it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrink(items: Sequence[T], fails: Callable[[Sequence[T]], bool], *, trials: int) -> list[T]:
    """Leaves items out as long as the rest still fails.

    Args:
        items: A list that fails.
        fails: Whether a shorter list fails, too.
        trials: Maximum number of calls of `fails`.

    Returns:
        A part of `items`, in their order. If the trials suffice, it fails, and it no longer fails
        without any one of its items.
    """
    left = list(items)
    parts = 2
    while len(left) > 1:
        size = -(-len(left) // parts)
        for start in range(0, len(left), size):
            rest = left[:start] + left[start + size :]
            if not trials:
                return left
            trials -= 1
            if fails(rest):
                left, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(left), 2 * parts)
    return left
