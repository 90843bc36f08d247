"""Rendezvous hashing: which worker a shape belongs to.

Every router comes to the same answer without asking another, and a worker that comes or goes moves
no shapes but its own share.
"""

import hashlib
from collections.abc import Iterable

from shaperouter_service.routing.signatures import Signature


def named(signature: Signature, workers: Iterable[str]) -> str:
    """Names the worker that a signature belongs to.

    Rows are left out, since how many requests run together is only known where they run: all
    signatures of a model, length and beam width belong to the worker that requests of that length
    go to.

    The same in every process and every version of Python: it is the worker with the highest BLAKE2b
    digest of its name and the shape's text, and of equal ones the last by name.

    Args:
        signature: That nobody has yet, or that is wanted on one worker.
        workers: Names of the candidates, in any order.

    Raises:
        ValueError: There are none.
    """
    shape = f"{signature.model} {signature.length} beams {signature.beams}"
    return max(workers, key=lambda worker: (_score(worker, shape), worker))


def _score(worker: str, shape: str) -> bytes:
    # No name holds the separator, so that no two pairs are one text.
    return hashlib.blake2b(f"{worker}\0{shape}".encode(), digest_size=8).digest()
