"""Mutation of bytes, JSON and files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

# The most dangerous values of lengths, counts and tags: as varints, and as 8 bytes.
_EXTREMES = [
    b"\x00",
    b"\x7f",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff" * 8,
    (2**63 - 1).to_bytes(8, "little"),
    (2**31).to_bytes(8, "little"),
]

# Values that are wrong wherever they are put.
_HOSTILE: list[Any] = [
    -1, 0, 1, 3, 2**31, 2**63, 10**30, 1e308, -1e308, 0.5, True, None, "", "x" * 1000, "../../etc",
    [], {}, [[]], [1] * 1000, {"a": 1}, [-1], [2**40], ["x"],
]  # fmt: skip
# Keys that some file has.
_KEYS = (
    "n_embd", "n_layer", "n_head", "n_positions", "vocab_size", "d_model", "d_kv", "num_layers",
    "num_heads", "relative_attention_num_buckets", "relative_attention_max_distance",
    "hidden_size", "ffn_dim", "word_embed_proj_dim", "max_position_embeddings", "eos_token_id",
    "bad_words_ids", "sequence_bias", "suppress_tokens", "num_beams", "max_new_tokens",
    "data_offsets", "shape", "dtype", "__metadata__", "weight_map", "auto_map",
)  # fmt: skip


def mutated(data: bytes, source: random.Random) -> bytes:
    """Damages data in one to four places."""
    result = bytearray(data)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(result) + 1)
        length = source.choice((1, 1, 2, 4, 16, 64))
        match source.randrange(6):
            case 0 if result:
                result[at % len(result)] ^= 1 << source.randrange(8)
            case 1:
                result[at : at + length] = source.randbytes(length)
            case 2:
                del result[at : at + length]
            case 3:
                result[at:at] = result[at : at + length] * source.randint(1, 20)
            case 4:
                result[at : at + length] = source.choice(_EXTREMES)
            case _:
                del result[at:]
    return bytes(result)


def mutated_json(content: Any, source: random.Random) -> Any:
    """Replaces, drops and adds values anywhere in JSON."""
    if isinstance(content, dict) and content and source.random() < 0.9:
        key = source.choice(list(content))
        changed = dict(content)
        match source.randrange(8):
            case 0:
                del changed[key]
            case 1:
                changed[source.choice(_KEYS)] = source.choice(_HOSTILE)
            case _:
                changed[key] = mutated_json(content[key], source)
        return changed
    if isinstance(content, list) and content and source.random() < 0.7:
        at = source.randrange(len(content))
        return [*content[:at], mutated_json(content[at], source), *content[at + 1 :]]
    return source.choice(_HOSTILE)


def mutate_file(path: Path, source: random.Random) -> None:
    """Mutates one file, as JSON or as bytes."""
    data = path.read_bytes()
    if source.random() < 0.3:
        path.write_bytes(mutated(data[:4000], source) + data[4000:])
    elif path.suffix == ".json":
        path.write_text(json.dumps(mutated_json(json.loads(data), source)))
    else:
        # A safetensors file: the header's length in 8 bytes, the header in JSON, the numbers.
        end = 8 + int.from_bytes(data[:8], "little")
        header = json.dumps(mutated_json(json.loads(data[8:end]), source)).encode()
        length = len(header) if source.random() < 0.9 else source.choice((0, 2**62, len(data)))
        rest = data[end:] if source.random() < 0.8 else data[end : end + source.randrange(1000)]
        path.write_bytes(length.to_bytes(8, "little") + header + rest)
