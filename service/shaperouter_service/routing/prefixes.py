"""Keys of prefixes, by content: workers cache blocks under them, and routers look for them.

A sequence is cut into blocks of `BLOCK` tokens. The key of a block is a hash of its tokens and of
the key of the block before it, so equal keys mean equal sequences up to the end of the block. The
first key also depends on the model and on the scope, which separates clients that must not notice
each other's prompts.
"""

import hashlib
from collections.abc import Collection, Sequence

import numpy as np

# Tokens of a block. Smaller blocks share more of two prompts, larger ones take less bookkeeping.
BLOCK = 16

# Bytes of a key: no two sequences have the same by accident, or by anyone's effort.
_KEY_BYTES = 16

# Bytes of a digest, the part of a key that workers report. If two are equal by accident, a router
# only expects too much of a worker.
_DIGEST_BYTES = 4


def block_keys(model: str, scope: str, token_ids: Sequence[int]) -> list[bytes]:
    """The key of each whole block of a sequence, from the first on.

    Args:
        model: Name of the model.
        scope: Sequences of different scopes have no key in common.
        token_ids: The sequence; the tokens after its last whole block have no key.
    """
    # The length of the name keeps name and scope apart.
    root = f"{len(model)} {model} {scope}".encode(errors="surrogatepass")
    key = hashlib.blake2b(root, digest_size=_KEY_BYTES).digest()
    blocks = len(token_ids) // BLOCK
    content = np.asarray(token_ids[: blocks * BLOCK], "<i4").tobytes()
    size = 4 * BLOCK
    keys = []
    for block in range(blocks):
        tokens = content[block * size : (block + 1) * size]
        key = hashlib.blake2b(key + tokens, digest_size=_KEY_BYTES).digest()
        keys.append(key)
    return keys


def digest(key: bytes) -> int:
    """The short form of a key that workers report: 32 bits."""
    return int.from_bytes(key[:_DIGEST_BYTES], "little")


def shared_tokens(keys: Sequence[bytes], reported: Collection[int]) -> int:
    """Number of tokens of a sequence that a worker has cached, according to its report.

    Args:
        keys: The keys of the sequence.
        reported: Digests of blocks that the worker has cached. It keeps no block without those
            before it, so only the furthest matters.
    """
    for index in range(len(keys) - 1, -1, -1):
        if digest(keys[index]) in reported:
            return (index + 1) * BLOCK
    return 0
