"""Mutation of bytes, messages, JSON and files."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

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

# Values of fields, and names and data types that are right somewhere else.
_NUMBERS: list[Any] = [0, 1, -1, 2, 3, 7, 14, 99, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63)]
_FLOATS = [0.0, -1.5, 1e30, float("nan"), float("inf")]
_NAMES = (
    "", "x" * 300, "BYTES", "BOOL", "INT8", "INT32", "INT64", "UINT64", "FP16", "FP32", "a", "b",
    "flag", "text", "input_ids", "examples", "many", "classify", "regress", "embed", "1", "\0",
)  # fmt: skip
_VALUES: dict[int, Sequence[Any]] = {
    FieldDescriptor.CPPTYPE_STRING: _NAMES,
    FieldDescriptor.CPPTYPE_FLOAT: _FLOATS,
    FieldDescriptor.CPPTYPE_DOUBLE: _FLOATS,
    FieldDescriptor.CPPTYPE_ENUM: [each for each in _NUMBERS if abs(each) < 2**31],
    FieldDescriptor.CPPTYPE_INT32: [each for each in _NUMBERS if abs(each) < 2**31],
    FieldDescriptor.CPPTYPE_INT64: _NUMBERS,
    FieldDescriptor.CPPTYPE_UINT32: [each for each in _NUMBERS if 0 <= each < 2**32],
    FieldDescriptor.CPPTYPE_UINT64: [each for each in _NUMBERS if each >= 0],
}


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


def mutate_message(message: Message, source: random.Random) -> None:
    """Changes a field somewhere in a message, which stays one of its type."""
    given = [field for field, _ in message.ListFields()]
    if not given or source.random() < 0.1:
        given = list(message.DESCRIPTOR.fields)
    if not given:
        return
    field = source.choice(given)
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        _mutate_map(value, field.message_type.fields_by_name["value"], source)
    elif field.is_repeated:
        _mutate_list(value, field, source)
    elif source.random() < 0.1:
        message.ClearField(field.name)
    elif field.message_type is not None:
        value.SetInParent()
        mutate_message(value, source)
    else:
        setattr(message, field.name, _scalar(field, value, source))


def _mutate_map(entries: Any, field: FieldDescriptor, source: random.Random) -> None:
    key = source.choice([*entries, source.choice(_NAMES)])
    other = source.choice([*entries, source.choice(_NAMES)])
    if field.message_type is None:
        entries[other] = _scalar(field, entries.get(key, ""), source)
        return
    match source.randrange(4):
        case 0:
            entries[other].CopyFrom(entries[key])
        case 1:
            entries.pop(key, None)
        case _:
            mutate_message(entries[key], source)


def _mutate_list(values: Any, field: FieldDescriptor, source: random.Random) -> None:
    if not values:
        values.append(_scalar(field, b"", source)) if field.message_type is None else values.add()
        return
    at = source.randrange(len(values))
    match source.randrange(5):
        case 0:
            del values[at]
        case 1:
            del values[at:]
        case 2:
            values.extend([values[at]] * source.choice((1, 1, 3, 100)))
        case _ if field.message_type is None:
            values[at] = _scalar(field, values[at], source)
        case _:
            mutate_message(values[at], source)


def _scalar(field: FieldDescriptor, value: Any, source: random.Random) -> Any:
    """A value of a field's type that is wrong, or at least another one."""
    if field.type == FieldDescriptor.TYPE_BYTES:
        return mutated(value or b"\x03\0\0\0abc", source)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return not value
    return source.choice(_VALUES[field.cpp_type])
