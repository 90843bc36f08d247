"""Checks of requests about the model repository."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from shaperouter_service.edge.inference.raw_tensors import SHOWN
from shaperouter_service.errors import InvalidRequestError, Violation, shortened

Parameters: TypeAlias = Mapping[str, Any]


def check_repository(name: str) -> None:
    """Refuses any name of a repository, since there is only one.

    Raises:
        InvalidRequestError: A name is given.
    """
    if name:
        raise InvalidRequestError.of(
            "repository_name", f"must be empty, got {shortened(repr(name), SHOWN)}"
        )


def parameters_of(parameters: Parameters, **defaults: Any) -> list[Any]:
    """The values of parameters.

    Args:
        parameters: The parameters of a request, by name.
        **defaults: The known ones, with the values that they have if they are not given.

    Returns:
        One value for each known parameter.

    Raises:
        InvalidRequestError: A parameter is unknown, or of another type than its default.
    """
    violations = []
    for name, value in parameters.items():
        if name not in defaults:
            description = f"is unknown; known parameters: {', '.join(defaults)}"
        elif type(value) is not type(defaults[name]):
            kind = "true or false" if isinstance(defaults[name], bool) else "a text"
            description = f"must be {kind}, got {shortened(repr(value), SHOWN)}"
        else:
            continue
        field = f"parameters.{shortened(name, SHOWN)}"
        violations.append(Violation(field=field, description=description))
    if violations:
        raise InvalidRequestError(*violations)
    return [parameters.get(name, default) for name, default in defaults.items()]
