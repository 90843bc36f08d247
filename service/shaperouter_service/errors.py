"""The service's errors, each with the gRPC status that callers see.

::

    ServiceError
    ├── InvalidRequestError      INVALID_ARGUMENT    api: a field is over its limit
    ├── UnauthenticatedError     UNAUTHENTICATED     access: no token, or one of nobody
    ├── NotOperatorError         PERMISSION_DENIED   access: a client is no operator
    ├── ClientLimitError         RESOURCE_EXHAUSTED  access: a client asks for more than it may
    ├── UnknownModelError        NOT_FOUND           api: no such model
    ├── ModelLoadingError        UNAVAILABLE         api: no worker has loaded it yet
    ├── QueueFullError           RESOURCE_EXHAUSTED  worker: try again later
    ├── StoppingError            UNAVAILABLE         rpc, worker: it is being stopped
    ├── OverloadedError          RESOURCE_EXHAUSTED  fleet: the wait would be too long
    ├── DeadlineTooShortError    DEADLINE_EXCEEDED   fleet: it could not end in time
    ├── WorkerLostError          UNAVAILABLE         fleet: worker after worker died of it
    ├── DeadlinePassedError      DEADLINE_EXCEEDED   fleet: no worker in time
    ├── GraphFailedError         INTERNAL            graphs: a graph could not be compiled
    └── GraphRefusedError        FAILED_PRECONDITION graphs: a graph may not be compiled
    StartupError                 exit code 78        a model, an option or a port is unusable
"""

from dataclasses import dataclass

import grpc

# sysexits.h EX_CONFIG: starting again without a change of configuration cannot help.
EXIT_CONFIG = 78

# Seconds before which no caller should try again.
SHORTEST_RETRY = 0.1

# Violations told in an error's message; its details have all. Both travel in a header of 8 KB.
MOST_IN_A_MESSAGE = 8


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One thing wrong with a request.

    Attributes:
        field: Path of the field in the request message, e.g. `options.temperature`.
        description: The rule and the value received.
    """

    field: str
    description: str


def shortened(text: str, limit: int) -> str:
    """Cuts what callers or compilers wrote to what fits in gRPC's metadata, and says so."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


class ServiceError(Exception):
    """An error with a gRPC status.

    Attributes:
        code: The status code.
        reason: Constant of google.rpc.ErrorInfo, for programs.
        retry_after: Seconds after which trying again is sensible; None when it is not.
        deadly: Whether the request itself may be the cause, so that no program should repeat it
            unasked.
    """

    code: grpc.StatusCode
    reason: str
    retry_after: float | None = None
    deadly = False


class InvalidRequestError(ServiceError):
    """A request breaks a rule; carries every violation found, not only the first."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "INVALID_REQUEST"

    def __init__(self, *violations: Violation) -> None:
        """Takes the violations, at least one."""
        told = [f"{v.field}: {v.description}" for v in violations[:MOST_IN_A_MESSAGE]]
        if len(violations) > len(told):
            told.append(f"and {len(violations) - len(told)} more")
        super().__init__("; ".join(told))
        self.violations = violations


class UnauthenticatedError(ServiceError):
    """A call has no token, or one that is nobody's."""

    code = grpc.StatusCode.UNAUTHENTICATED

    def __init__(self, *, has_token: bool) -> None:
        """Is told whether there was a token, and never which."""
        wrong = "is not known" if has_token else "is missing"
        super().__init__(
            f"authorization: the token {wrong}; a call needs the metadata "
            "'authorization: Bearer TOKEN'"
        )
        self.reason = "UNKNOWN_TOKEN" if has_token else "MISSING_TOKEN"


class NotOperatorError(ServiceError):
    """A client asks for what only operators may."""

    code = grpc.StatusCode.PERMISSION_DENIED
    reason = "NOT_OPERATOR"

    def __init__(self, client: str) -> None:
        """Takes the client's name."""
        super().__init__(f"client {client} is no operator, and may not have graphs made")


class ClientLimitError(ServiceError):
    """A client asks for more than it may."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "CLIENT_LIMIT"

    def __init__(self, client: str, limit: str, *, retry_after: float) -> None:
        """Takes the client's name, the limit, and seconds until it may ask again."""
        super().__init__(f"client {client} is at its limit of {limit}")
        self.retry_after = max(SHORTEST_RETRY, retry_after)


class UnknownModelError(ServiceError):
    """The service has no model of that name."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "UNKNOWN_MODEL"

    def __init__(self, name: str, known: list[str]) -> None:
        """Takes the name asked for and the names there are."""
        super().__init__(
            f"model: no model {shortened(name, 64)!r}; "
            f"this service has {', '.join(known) or 'none'}"
        )


class ModelLoadingError(ServiceError):
    """A model is the service's, but no worker has loaded it yet."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "MODEL_LOADING"
    retry_after = 1.0

    def __init__(self, name: str) -> None:
        """Takes the model's name."""
        super().__init__(f"model: {name} is still being loaded")


class QueueFullError(ServiceError):
    """A lane's queue has no room."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "QUEUE_FULL"
    retry_after = 1.0

    def __init__(self, model: str, limit: int, *, of_client: bool = False) -> None:
        """Takes the model and the limit in requests, of the queue or of one client in it."""
        of = " of one client" if of_client else ""
        super().__init__(f"queue of {model} is full: limit {limit} waiting requests{of}")


class StoppingError(ServiceError):
    """The process is being stopped, and takes nothing new."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "STOPPING"
    # Whoever replaces it, or stands beside it, takes requests already.
    retry_after = 0.5

    def __init__(self) -> None:
        """Needs to be told nothing."""
        super().__init__("the service is being stopped; send the request again")


class OverloadedError(ServiceError):
    """A request would wait longer for a slot than requests may."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "OVERLOADED"

    def __init__(self, model: str, expected: float, limit: float) -> None:
        """Takes the model, and the expected wait and its limit in seconds."""
        super().__init__(
            f"{model} is overloaded: a request would wait {expected:.3g} s for a slot, "
            f"limit {limit:.3g} s"
        )
        # When the wait will have shrunk to what is let in, if nobody else comes.
        self.retry_after = max(SHORTEST_RETRY, expected - limit)


class DeadlineTooShortError(ServiceError):
    """A request cannot end before its deadline."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED
    reason = "DEADLINE_TOO_SHORT"

    def __init__(self, model: str, expected: float, left: float) -> None:
        """Takes the model, and the expected and the remaining time in seconds."""
        super().__init__(
            f"{model} needs {expected:.3g} s for the request at least, and its deadline is in "
            f"{left:.3g} s; nothing was started"
        )


class WorkerLostError(ServiceError):
    """The worker that ran the request is gone, and so are those that were given it before."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "WORKER_LOST"
    retry_after = 0.5
    deadly = True

    def __init__(self, worker: str) -> None:
        """Takes the worker's name."""
        super().__init__(f"{worker} was lost while it ran the request; send the request again")


class DeadlinePassedError(ServiceError):
    """The deadline ended before a worker could take the request."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED
    reason = "NO_WORKER_IN_TIME"

    def __init__(self, model: str) -> None:
        """Takes the model that no worker could serve."""
        super().__init__(f"no worker was ready to serve {model} before the deadline")


class GraphFailedError(ServiceError):
    """A graph that the request cannot do without failed to compile."""

    code = grpc.StatusCode.INTERNAL
    reason = "GRAPH_FAILED"

    def __init__(self, signature: object, error: str) -> None:
        """Takes the signature and what TensorFlow said."""
        super().__init__(f"graph {signature} could not be compiled: {shortened(error, 1000)}")


class GraphRefusedError(ServiceError):
    """A graph that the request cannot do without may not be compiled."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "GRAPH_REFUSED"

    def __init__(self, signature: object, why: str) -> None:
        """Takes the signature and what stands in the way."""
        super().__init__(f"no graph is ready that covers {signature}: {why}")


class StartupError(Exception):
    """The service cannot start as configured; the message says what to change."""
