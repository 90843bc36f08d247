"""The client's types as JSON objects, whose keys are the attributes."""

import dataclasses
import json
import math

import click

from shaperouter._generation import Generation
from shaperouter._graph import Histogram
from shaperouter._transcription import Transcription

# Properties to print in addition to the fields.
_PROPERTIES: dict[type, tuple[str, ...]] = {
    Generation: ("text",),
    Histogram: ("count", "mean"),
    Transcription: ("text",),
}


def print_json(value: object, *, err: bool = False) -> None:
    """Prints a value as one line on stdout or stderr."""
    click.echo(json.dumps(jsonable(value), allow_nan=False), err=err)


def jsonable(value: object) -> object:
    """Converts a value to the types of JSON, which has no NaN and no infinity: they become null."""
    if dataclasses.is_dataclass(value):
        names = [
            *_PROPERTIES.get(type(value), ()),
            *(field.name for field in dataclasses.fields(value)),
        ]
        return {name: jsonable(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
