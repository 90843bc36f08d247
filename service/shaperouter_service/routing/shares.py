"""Shares of requests: which of several models or revisions a request gets."""

import hashlib
from collections.abc import Sequence
from typing import Protocol, TypeVar


class Shared(Protocol):
    """What a share of requests goes to."""

    @property
    def share(self) -> float:
        """Its share; only the ratio to the shares of others counts."""


S = TypeVar("S", bound=Shared)


def by_share(options: Sequence[S], key: str) -> S:
    """The option that a key gets; the same for the same options and key on all routers.

    If the share of the last option grows, no key that it had goes to another one.

    Args:
        options: At least one.
        key: What identifies the request.
    """
    if len(options) == 1:
        return options[0]
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    left = int.from_bytes(digest) / 2**64 * sum(option.share for option in options)
    for option in options[:-1]:
        if left < option.share:
            return option
        left -= option.share
    return options[-1]
