"""Errors for bytes that are not a valid message.

Protobuf only says that parsing failed, and gRPC would answer INTERNAL or UNKNOWN. In practice the
mistake is text that is not UTF-8, from stubs of languages that do not check. So the bytes are
parsed once more with a copy of the schema in which every string is a list of bytes, to name the
field. It is a list because a field may be sent twice, and otherwise only the last value would be
checked.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
from google.protobuf.message import DecodeError, Message

from shaperouter_service.errors import MAX_VIOLATIONS_SHOWN, InvalidRequestError, Violation
from shaperouter_service.rpc.definitions import files_of


def too_large(data: bytes, message_type: type[Message], max_bytes: float) -> InvalidRequestError:
    """The error for a message that is too large to be parsed."""
    return InvalidRequestError.of(
        message_type.DESCRIPTOR.full_name, f"must have at most {max_bytes} bytes, got {len(data)}"
    )


def describe(data: bytes, message_type: type[Message]) -> InvalidRequestError:
    """The error for bytes that cannot be parsed as a message, with the first few violations.

    A list may have hundreds of thousands of bad strings, which do not fit in an error.
    """
    descriptor = message_type.DESCRIPTOR
    file: Any = descriptor.file
    twin = _twin_pool(file).FindMessageTypeByName(descriptor.full_name)
    try:
        message = message_factory.GetMessageClass(twin).FromString(data)
    except DecodeError:
        broken = "the bytes are not a protobuf message of this type"
        return InvalidRequestError.of(descriptor.full_name, broken)
    strings = set(_string_fields(file))
    found = islice(_not_utf8(message, strings, prefix=""), MAX_VIOLATIONS_SHOWN)
    return InvalidRequestError(*found)


def _not_utf8(message: Message, strings: set[str], prefix: str) -> Iterator[Violation]:
    for field, value in message.ListFields():
        for item in value if field.is_repeated else [value]:
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                yield from _not_utf8(item, strings, f"{prefix}{field.name}.")
            elif field.full_name in strings:
                try:
                    item.decode("utf-8")
                except UnicodeDecodeError as error:
                    yield Violation(
                        field=prefix + field.name,
                        description=f"must be UTF-8, got byte 0x{item[error.start]:02x} at offset "
                        f"{error.start}",
                    )


def _with_nested(
    scope: str, messages: Iterable[DescriptorProto]
) -> Iterator[tuple[str, DescriptorProto]]:
    """Messages and those inside them, with their full names."""
    for message in messages:
        name = f"{scope}.{message.name}"
        yield name, message
        yield from _with_nested(name, message.nested_type)


def _string_fields(file: FileDescriptor) -> Iterator[str]:
    for proto in files_of(file):
        for name, message in _with_nested(proto.package, proto.message_type):
            for field in message.field:
                if field.type == FieldDescriptor.TYPE_STRING:
                    yield f"{name}.{field.name}"


@cache
def _twin_pool(file: FileDescriptor) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for proto in files_of(file):
        for _, message in _with_nested(proto.package, proto.message_type):
            del message.oneof_decl[:]
            # The entries of a map are messages; their keys cannot be lists.
            message.options.ClearField("map_entry")
            for field in message.field:
                field.ClearField("oneof_index")
                field.ClearField("proto3_optional")
                if field.type == FieldDescriptor.TYPE_STRING:
                    field.type = FieldDescriptorProto.TYPE_BYTES
                    field.label = FieldDescriptorProto.LABEL_REPEATED
        pool.Add(proto)
    return pool
