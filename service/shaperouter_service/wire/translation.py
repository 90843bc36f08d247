"""Translation between dataclasses and messages whose fields have the same names."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from types import NoneType
from typing import (
    Any,
    Generic,
    NamedTuple,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

V = TypeVar("V")
M = TypeVar("M", bound=Message)


class Codec(NamedTuple):
    """How the value of a field is written to a message, and read from it."""

    to_message: Callable[[Any], Any]
    from_message: Callable[[Any], Any]


# Attributes by field of the message.
Names: TypeAlias = Mapping[str, str]
# By the type of an attribute, or by its name.
Codecs: TypeAlias = Mapping[Any, "Codec | Translation[Any, Any]"]


class Translation(Generic[V, M]):
    """Translates a dataclass to the message with the same fields, and back.

    Enums are translated by the names of their members, dataclasses attribute by attribute. If a
    dataclass has no field of its own, its attributes are fields of the same message. An attribute
    that may be None is None if the message does not have it. Attributes without a field are not
    sent.
    """

    def __init__(
        self,
        value: type[V],
        message: type[M],
        *,
        names: Names | None = None,
        codecs: Codecs | None = None,
        unused: Collection[str] = (),
    ) -> None:
        """Derives how each field is translated.

        Args:
            value: The dataclass.
            message: The message.
            names: Attributes by field of the message, where their names differ; here and in the
                dataclasses of attributes.
            codecs: How to translate what differs in more than names, likewise.
            unused: Fields of the message for which the dataclass has no attribute.

        Raises:
            TypeError: The dataclass has no attribute for another field of the message.
        """
        source = _Source(message, names or {}, codecs or {})
        read = source.value(value, "value")
        missing = set(message.DESCRIPTOR.fields_by_name).difference(source.written, unused)
        if missing:
            raise TypeError(f"{value.__name__} lacks fields of {message.__name__}: {missing}")
        written = ", ".join(f"{name}={source.written[name]}" for name in source.written)
        # Compiled, as methods of dataclasses are: snapshots have thousands of fields, and reading
        # them by a loop over descriptions of fields takes 1.6 times as long.
        self.to_message: Callable[[V], M] = eval(  # noqa: S307 (of names in our code)
            f"lambda value: Message({written})", source.scope
        )
        self.from_message: Callable[[M], V] = eval(  # noqa: S307 (likewise)
            f"lambda message: {read}", source.scope
        )


class _Source:
    """The source of the functions of a translation.

    Attributes:
        written: By field of the message, the expression of its value.
        scope: What the expressions refer to.
    """

    def __init__(self, message: type[Message], names: Names, codecs: Codecs) -> None:
        self.written: dict[str, str] = {}
        self.scope: dict[str, Any] = {"Message": message}
        self._names, self._codecs = names, codecs
        self._fields: dict[str, Any] = {
            names.get(field.name, field.name): field for field in message.DESCRIPTOR.fields
        }

    def value(self, value: type, path: str) -> str:
        """Adds a dataclass.

        Args:
            value: The dataclass.
            path: The expression of the value to write.

        Returns:
            The expression that reads it from a message.
        """
        self.scope[value.__name__] = value
        read = {}
        for attribute, hint in get_type_hints(value).items():
            if attribute in self._fields:
                read[attribute] = self._field(attribute, hint, f"{path}.{attribute}")
            elif inlined := self._inlined(hint, f"{path}.{attribute}"):
                read[attribute] = inlined
        for attribute, field in self._fields.items():
            if isinstance(getattr(value, attribute, None), property):
                self.written[field.name] = f"{path}.{attribute}"
        arguments = ", ".join(f"{attribute}={read[attribute]}" for attribute in read)
        return f"{value.__name__}({arguments})"

    def _field(self, attribute: str, hint: Any, path: str) -> str:
        field, required = self._fields[attribute], _required(hint)
        codec = self._codecs.get(attribute) or _codec(required, field, self._names, self._codecs)
        write, read = path, f"message.{field.name}"
        if codec is not _UNCHANGED:
            self.scope[f"write_{field.name}"] = codec.to_message
            self.scope[f"read_{field.name}"] = codec.from_message
            write, read = f"write_{field.name}({write})", f"read_{field.name}({read})"
        if required is not hint:
            write = f"None if {path} is None else {write}"
            if field.has_presence:
                read = f"{read} if message.HasField({field.name!r}) else None"
        self.written[field.name] = write
        return read

    def _inlined(self, hint: Any, path: str) -> str | None:
        required, others = _required(hint), set(self.written)
        if not (isinstance(required, type) and is_dataclass(required)):
            return None
        read = self.value(required, path)
        fields = self.written.keys() - others
        if required is not hint:
            for name in fields:
                self.written[name] = f"None if {path} is None else {self.written[name]}"
            is_present = " or ".join(f"message.{name}" for name in fields)
            read = f"{read} if {is_present} else None"
        return read if fields else None


class EventTranslation(Generic[V, M]):
    """Translates events to messages whose oneof `event` has a field for each type, and back."""

    def __init__(
        self,
        message: type[M],
        types: Mapping[str, type[V]],
        *,
        names: Names | None = None,
        codecs: Codecs | None = None,
    ) -> None:
        """Takes the message, the type of each field, and the rest as `Translation` does."""
        self._message = message
        fields = message.DESCRIPTOR.fields_by_name
        self._codecs = {
            name: _codec(event, fields[name], names or {}, codecs or {})
            for name, event in types.items()
        }
        self._fields = {event: name for name, event in types.items()}

    def to_message(self, event: V) -> M:
        """The message of an event."""
        name = self._fields[type(event)]
        return self._message(**{name: self._codecs[name].to_message(event)})

    def from_message(self, message: M) -> V | None:
        """The event of a message; None for one that only later versions know."""
        name: Any = message.WhichOneof("event")
        return None if name is None else self._codecs[name].from_message(getattr(message, name))


def unchanged(value: Any) -> Any:
    """Returns the value, which is the same in a message."""
    return value


_UNCHANGED = Codec(unchanged, unchanged)


def _required(hint: Any) -> Any:
    """The type of an attribute without None."""
    types = get_args(hint)
    return next(each for each in types if each is not NoneType) if NoneType in types else hint


def _codec(hint: Any, field: Any, names: Names, codecs: Codecs) -> Codec | Translation[Any, Any]:
    """The codec of a type for a field of a message, given by its descriptor."""
    if hint in codecs:
        return codecs[hint]
    if get_origin(hint) in (Sequence, tuple):
        return _each(_codec(get_args(hint)[0], field, names, codecs))
    if isinstance(hint, type) and is_dataclass(hint):
        return Translation(hint, GetMessageClass(field.message_type), names=names, codecs=codecs)
    if field.enum_type is not None:
        return _by_name(hint, field.enum_type)
    return Codec(unchanged, dict) if get_origin(hint) is Mapping else _UNCHANGED


def _each(codec: Codec | Translation[Any, Any]) -> Codec:
    if codec is _UNCHANGED:
        return Codec(unchanged, tuple)
    return Codec(
        lambda values: map(codec.to_message, values),
        lambda messages: tuple(map(codec.from_message, messages)),
    )


def _by_name(hint: Any, enum: Any) -> Codec:
    """The codec of an enum. If its type may also be int, unknown numbers stay."""
    types = get_args(hint) or [hint]
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    (members,) = (each for each in types if issubclass(each, Enum))
    numbers = {member: enum.values_by_name[prefix + member.name].number for member in members}
    known = {number: member for member, number in numbers.items()}
    if int in types:
        return Codec(numbers.__getitem__, lambda number: known.get(number, number))
    return Codec(numbers.__getitem__, known.__getitem__)
