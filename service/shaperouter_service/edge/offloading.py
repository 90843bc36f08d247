"""Translation of large requests and answers beside other calls."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

# Maximum bytes to translate on the event loop: a few milliseconds at the slowest, which are
# elements of type BYTES.
MAX_BYTES_AT_ONCE = 2**16


async def translated(size: int, translate: Callable[..., T], *arguments: Any) -> T:
    """Calls a translation: in a thread if it is large, so that other calls continue meanwhile.

    Args:
        size: Size of the message, body or tensor to translate, in bytes.
        translate: The translation.
        arguments: Its arguments.
    """
    if size <= MAX_BYTES_AT_ONCE:
        return translate(*arguments)
    return await asyncio.to_thread(translate, *arguments)
