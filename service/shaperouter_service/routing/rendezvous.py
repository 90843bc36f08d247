"""Rendezvous hashing: the worker that a shape belongs to.

Every router computes the same answer without asking another. When a worker joins or leaves, only
its own share of the shapes moves.
"""

import hashlib
from collections.abc import Iterable

from shaperouter_service.routing.signatures import Signature


def named(signature: Signature, workers: Iterable[str]) -> str:
    """Name of the worker that a signature belongs to.

    Rows are ignored, because only the worker knows how many requests run together: all signatures
    of a model, length (of a call, all its sizes) and beam width belong to the worker that gets
    requests of that length.

    The result is the same in every process and every version of Python: the worker with the highest
    BLAKE2b digest of its name and the shape's text. If digests are equal, the last worker by name
    wins.

    Args:
        signature: A signature that no worker has yet, or that one worker should have.
        workers: Names of the candidates, in any order.

    Raises:
        ValueError: There are no candidates.
    """
    shape = f"{signature.model} {signature.length_text} beams {signature.beams}"
    return max(workers, key=lambda worker: (_score(worker, shape), worker))


def _score(worker: str, shape: str) -> bytes:
    # No name contains the separator, so different pairs have different texts.
    return hashlib.blake2b(f"{worker}\0{shape}".encode(), digest_size=8).digest()
