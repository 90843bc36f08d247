"""Pairs of proto and client enum members with the same name."""

import enum
from typing import Any, TypeVar

EnumT = TypeVar("EnumT", bound=enum.Enum)


def by_number(kind: type[EnumT], wire: Any) -> dict[int, EnumT]:
    """The client's enum member for each number of a proto's enum except the unspecified one.

    Args:
        kind: The client's enum, whose members have the proto's names without their prefix.
        wire: The proto's enum, whose zero ends in UNSPECIFIED.

    Raises:
        KeyError: The client's enum lacks a member of the proto's.
    """
    prefix = wire.Name(0).removesuffix("UNSPECIFIED")
    return {number: kind[name.removeprefix(prefix)] for name, number in wire.items() if number}


def by_member(kind: type[EnumT], wire: Any) -> dict[EnumT, Any]:
    """The proto's number for each member of the client's enum that the proto has."""
    return {member: number for number, member in by_number(kind, wire).items()}
