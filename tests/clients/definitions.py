"""Compares our definitions of a protocol with those that its own packages register.

`python definitions.py OURS MODULE...` reads a FileDescriptorSet, imports the modules, and prints
each definition of ours that they lack or have otherwise. They may have more.
"""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)
from google.protobuf.descriptor_pool import Default


def differences(ours: FileDescriptorSet) -> Iterator[str]:
    for file in ours.file:
        if file.package == "google.protobuf":
            continue
        for message in file.message_type:
            yield from message_differences(f"{file.package}.{message.name}", message)
        for enum in file.enum_type:
            yield from enum_differences(f"{file.package}.{enum.name}", enum)
        for service in file.service:
            yield from service_differences(f"{file.package}.{service.name}", service)


def message_differences(name: str, ours: DescriptorProto) -> Iterator[str]:
    theirs = proto(DescriptorProto(), Default().FindMessageTypeByName(name))
    known = {field.name: field for field in theirs.field}
    for field in ours.field:
        other = known.get(field.name)
        if other is None:
            yield f"{name} has no {field.name}"
            continue
        facts = ("number", "type", "label", "type_name")
        if any(getattr(field, fact) != getattr(other, fact) for fact in facts):
            yield f"{name}.{field.name} is {other}, not {field}"
        if field.HasField("oneof_index") != other.HasField("oneof_index"):
            yield f"{name}.{field.name} is one of several in one definition only"
    for nested in ours.nested_type:
        yield from message_differences(f"{name}.{nested.name}", nested)
    for enum in ours.enum_type:
        yield from enum_differences(f"{name}.{enum.name}", enum)


def enum_differences(name: str, ours: EnumDescriptorProto) -> Iterator[str]:
    theirs = proto(EnumDescriptorProto(), Default().FindEnumTypeByName(name))
    numbers = {value.name: value.number for value in theirs.value}
    for value in ours.value:
        if numbers.get(value.name) != value.number:
            yield f"{name}.{value.name} is {numbers.get(value.name)}, not {value.number}"


def service_differences(name: str, ours: ServiceDescriptorProto) -> Iterator[str]:
    theirs = proto(ServiceDescriptorProto(), Default().FindServiceByName(name))
    methods = {method.name: method for method in theirs.method}
    facts = ("input_type", "output_type", "client_streaming", "server_streaming")
    for method in ours.method:
        other = methods[method.name]
        if any(getattr(method, fact) != getattr(other, fact) for fact in facts):
            yield f"{name}.{method.name} is {other}, not {method}"


def proto(empty: Any, descriptor: Any) -> Any:
    descriptor.CopyToProto(empty)
    return empty


def main() -> None:
    ours, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    for difference in differences(FileDescriptorSet.FromString(Path(ours).read_bytes())):
        print(difference)


if __name__ == "__main__":
    main()
