"""Rendezvous hashing: which worker compiles a signature that none has.

Every router comes to the same answer without asking another, and a worker that comes or goes moves
no signatures but its own share.
"""

import hashlib
from collections.abc import Iterable

from shaperouter_service.routing.signatures import Signature


def named(signature: Signature, workers: Iterable[str]) -> str:
    """Names the worker that a signature belongs to.

    The same in every process and every version of Python: it is the worker with the highest BLAKE2b
    digest of its name and the signature's text, and of equal ones the last by name.

    Args:
        signature: That nobody has yet, or that is wanted on one worker.
        workers: Names of the candidates, in any order.

    Raises:
        ValueError: There are none.
    """
    return max(workers, key=lambda worker: (_score(worker, signature), worker))


def _score(worker: str, signature: Signature) -> bytes:
    # No name holds the separator, so that no two pairs are one text.
    return hashlib.blake2b(f"{worker}\0{signature}".encode(), digest_size=8).digest()
