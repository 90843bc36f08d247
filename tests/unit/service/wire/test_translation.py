"""Every field of the messages between routers and workers has its value, in both directions."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from shaperouter.v1 import graph_pb2, signature_pb2, worker_pb2
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.warm_request import RequestedGraph
from shaperouter_service.wire.run_events import run_event_from_message, run_event_to_message
from shaperouter_service.wire.run_requests import run_request_from_message, run_request_to_message
from shaperouter_service.wire.snapshots import snapshot_from_message, snapshot_to_message
from shaperouter_service.wire.translation import Translation


def fill(message: Message, numbers: Iterator[int]) -> Message:
    """Gives each field of a message, and of the messages in it, a value of its own."""
    fields = message.DESCRIPTOR.fields
    for field in (field for field in fields if field.containing_oneof in (None, *_optional(field))):
        if field.name == "task_token_ids":
            message.task_token_ids["translate"] = next(numbers)  # type: ignore[attr-defined]  # a Model
        elif field.message_type and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)["en"] = next(numbers)
        elif field.message_type and field.is_repeated:
            fill(getattr(message, field.name).add(), numbers)
        elif field.message_type:
            fill(getattr(message, field.name), numbers)
        elif field.is_repeated:
            getattr(message, field.name).extend(_scalar(field, numbers) for _ in range(2))
        else:
            setattr(message, field.name, _scalar(field, numbers))
    return message


def _optional(field: FieldDescriptor) -> list[Any]:
    """The oneof that makes a single field optional."""
    oneof = field.containing_oneof
    return [oneof] if oneof is not None and len(oneof.fields) == 1 else []


def _scalar(field: FieldDescriptor, numbers: Iterator[int]) -> Any:
    number = next(numbers)
    if field.enum_type:
        return field.enum_type.values[-1].number
    scalars = {
        FieldDescriptor.CPPTYPE_BOOL: True,
        FieldDescriptor.CPPTYPE_STRING: str(number),
        FieldDescriptor.CPPTYPE_DOUBLE: number + 0.5,
        FieldDescriptor.CPPTYPE_FLOAT: number + 0.5,
    }
    if field.type == FieldDescriptor.TYPE_BYTES:
        return bytes([number])
    return scalars.get(field.cpp_type, number)


def filled(message: Any) -> Any:
    return fill(message, itertools.count(1))


def test_all_fields_of_a_snapshot_are_translated() -> None:
    message = filled(worker_pb2.WatchResponse())
    message.ClearField("call_queues")
    message.models[0].ClearField("call")
    assert snapshot_to_message(snapshot_from_message(message)) == message


def test_all_fields_of_a_run_request_are_translated() -> None:
    message = filled(worker_pb2.RunRequest())
    # Its options are resolved from the table, which has tests of its own.
    message.options.ClearField("further")
    assert run_request_to_message(run_request_from_message(message)) == message


@pytest.mark.parametrize("event", worker_pb2.RunResponse.DESCRIPTOR.fields_by_name)
def test_all_fields_of_a_run_event_are_translated(event: str) -> None:
    message = worker_pb2.RunResponse()
    getattr(message, event).SetInParent()
    filled(getattr(message, event))
    value = run_event_from_message(message)
    assert value is not None
    assert run_event_to_message(value) == message


def test_a_field_without_an_attribute_is_refused_at_once() -> None:
    @dataclass
    class Shape:
        model: str
        rows: int

    with pytest.raises(TypeError, match=r"Shape lacks fields of Signature: .*'beams'"):
        Translation(Shape, signature_pb2.Signature)


def test_unknown_numbers_of_enums_stay_where_they_may() -> None:
    requested = Translation(RequestedGraph, signature_pb2.Signature, unused=["further", "exact"])
    # The stubs allow no unknown numbers.
    newer = signature_pb2.Signature(kind=99)  # type: ignore[arg-type]
    assert requested.from_message(newer).kind == 99
    assert requested.from_message(signature_pb2.Signature(kind=1)).kind is GraphKind.PREFILL
    with pytest.raises(KeyError):
        Translation(Signature, signature_pb2.Signature).from_message(newer)


def test_attributes_that_are_computed_are_sent() -> None:
    @dataclass
    class Computed:
        bounds: tuple[float, ...]

        @property
        def counts(self) -> list[int]:
            return [len(self.bounds)]

        @property
        def sum(self) -> float:
            return sum(self.bounds)

    message = Translation(Computed, graph_pb2.Histogram).to_message(Computed((1.0, 2.0)))
    assert message == graph_pb2.Histogram(bounds=[1.0, 2.0], counts=[2], sum=3.0)
