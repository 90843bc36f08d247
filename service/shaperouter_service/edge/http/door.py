"""The interface of a door on the HTTP port, beside OpenAI's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shaperouter_service.edge.http.calls import Answer
from shaperouter_service.edge.http.errors import ErrorBody
from shaperouter_service.serving.core import Core
from shaperouter_service.serving.gate import Gate


@dataclass(frozen=True, kw_only=True)
class Path:
    """A path of a door.

    Attributes:
        path: The path, with parameters as Starlette has them, e.g. `/v2/models/{model}`.
        method: The method of its requests.
        answer: Answers a request.
        is_work: Whether calls count against limits, and whether a drain waits for them.
        is_open: Whether calls need no token: they tell only whether the service is ready, or what
            everybody may have, such as the code of the console.
        for_operators: Whether only operators may call.
    """

    path: str
    method: str
    answer: Answer
    is_work: bool = False
    is_open: bool = False
    for_operators: bool = False


@dataclass(frozen=True, kw_only=True)
class HttpDoor:
    """One protocol's paths on the HTTP port.

    Attributes:
        prefix: What its paths begin with.
        error_body: The bodies of its errors.
        paths: Makes its paths from the core and the gate.
    """

    prefix: str
    error_body: ErrorBody
    paths: Callable[[Core, Gate], Sequence[Path]]
