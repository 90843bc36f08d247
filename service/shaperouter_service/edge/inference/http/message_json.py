"""Messages of the protocol as JSON."""

from typing import Any

from google.protobuf.message import Message


def json_of(message: Message) -> dict[str, Any]:
    """A message as a JSON object with its names of fields, as Triton writes it.

    Unlike Protobuf's own JSON, integers of 64 bits are numbers, not texts. Fields that tell whether
    they are set are left out if they are not.
    """
    return {
        field.name: _value(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _value(field: Any, value: Any) -> Any:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return {key: _element(entry.fields_by_name["value"], each) for key, each in value.items()}
    if field.is_repeated:
        return [_element(field, each) for each in value]
    return _element(field, value)


def _element(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return json_of(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return value
