"""The service's errors, each with the gRPC status that callers see.

::

    ServiceError
    ├── InvalidRequestError      INVALID_ARGUMENT     a field violates its rule
    ├── UnauthenticatedError     UNAUTHENTICATED      the token is missing or unknown
    ├── NotOperatorError         PERMISSION_DENIED    the client is not an operator
    ├── ClientLimitError         RESOURCE_EXHAUSTED   the client is at its limit
    ├── TooManyCallsError        RESOURCE_EXHAUSTED   too many calls are in progress
    ├── UnknownModelError        NOT_FOUND            no model has this name
    ├── UnknownVersionError      NOT_FOUND            the model has no such version
    ├── FixedModelsError         FAILED_PRECONDITION  models are set when the service starts
    ├── ModelNotLoadedError      FAILED_PRECONDITION  a worker could not load a further model
    │   └── LostWhileLoadingError                     a worker was lost meanwhile
    ├── OtherChangeError         ABORTED              another call changed the model meanwhile
    ├── OtherRevisionError       FAILED_PRECONDITION  a run began with other files of its model
    ├── RevisionGoneError        UNAVAILABLE          no worker has the files that a run began with
    ├── ModelLoadingError        UNAVAILABLE          no worker has loaded the model yet
    ├── ModelUnloadingError      RESOURCE_EXHAUSTED   the worker is about to free the model
    ├── QueueFullError           RESOURCE_EXHAUSTED   the queue of a worker's lane is full
    ├── TextQueueFullError       RESOURCE_EXHAUSTED   too much text waits to be tokenized
    ├── MemoryLimitError         RESOURCE_EXHAUSTED   calls take too much memory
    │   ├── RecordingMemoryError                      those with recordings
    │   ├── TensorMemoryError                         those with tensors
    │   └── LogprobMemoryError                        those with log-probabilities
    ├── ExhaustedError           RESOURCE_EXHAUSTED   the process has no memory or files left
    ├── StoppingError            UNAVAILABLE          the process is stopping
    ├── OverloadedError          RESOURCE_EXHAUSTED   the request would wait too long
    ├── DeadlineTooShortError    DEADLINE_EXCEEDED    the request cannot finish in time
    ├── WorkerLostError          UNAVAILABLE          the worker that was called is gone
    ├── DeadlyRequestError       INTERNAL             the request kills workers
    ├── NoWorkerInTimeError      DEADLINE_EXCEEDED    the deadline passed without a worker
    ├── StillLoadingError        DEADLINE_EXCEEDED    a model was not loaded on demand in time
    ├── DeadlinePassedError      DEADLINE_EXCEEDED    the deadline passed on a worker
    ├── GraphFailedError         INTERNAL             a graph could not be compiled
    ├── GraphRefusedError        FAILED_PRECONDITION  a graph may not be compiled
    ├── CallFailedError          INTERNAL             a function or encoder failed
    └── RelayedError             any                  a worker answered with it
    StartupError                 exit code 78         a model, an option or a port is unusable
"""

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

# Minimum seconds before a caller should try again.
SHORTEST_RETRY = 0.1

# Maximum violations in an error's message; its details contain more. Both share a header of 8 KB.
MAX_VIOLATIONS_SHOWN = 8
# Maximum violations that are looked for. A request of a megabyte can have a hundred thousand, and
# the router answers nothing else while it words them.
MAX_VIOLATIONS = 64

# Callers get this text when the service has a defect. Only the log has the details.
DEFECT = "internal error; see the service's log"

# Characters of a list of names in a message.
MAX_NAMES_SHOWN = 500


class Code(IntEnum):
    """The status codes of gRPC, with its numbers, without importing it."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One violation of a rule by a request.

    Attributes:
        field: Path of the field in the request message, e.g. `options.temperature`.
        description: The rule and the value received.
        reason: A constant for programs, if there is one for this rule.
    """

    field: str
    description: str
    reason: str = ""


def shortened(text: str, limit: int) -> str:
    """Cuts text from callers or compilers to a length that fits gRPC's metadata, and says so."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


class ServiceError(Exception):
    """An error with a status, which each door translates to its protocol.

    Attributes:
        code: The status code.
        reason: A constant for programs, such as `QUEUE_FULL`.
        violations: The rules that a request violates; empty for other errors.
        retry_after: Seconds after which the call may be sent again; None if that would not help.
        deadly: Whether the request itself is the cause, so that programs should not retry it.
    """

    code: Code
    reason: str
    violations: Sequence[Violation] = ()
    retry_after: float | None = None
    deadly = False


class InvalidRequestError(ServiceError):
    """A request breaks a rule. Contains all violations that were found, not only the first."""

    code = Code.INVALID_ARGUMENT
    reason = "INVALID_REQUEST"

    def __init__(self, *violations: Violation) -> None:
        """Takes the violations, at least one."""
        shown = [f"{v.field}: {v.description}" for v in violations[:MAX_VIOLATIONS_SHOWN]]
        if len(violations) > len(shown):
            shown.append(f"and {len(violations) - len(shown)} more")
        super().__init__("; ".join(shown))
        self.violations = violations

    @classmethod
    def of(cls, field: str, description: str) -> Self:
        """The error about one field; see `Violation`."""
        return cls(Violation(field=field, description=description))


class Violations(list[Violation]):
    """What is wrong with a request, as it is found."""

    def add(self, field: str, description: str) -> None:
        """Adds a violation; see `Violation`.

        Raises:
            InvalidRequestError: There are `MAX_VIOLATIONS`, so nothing more is looked for.
        """
        self.append(Violation(field=field, description=description))
        if len(self) >= MAX_VIOLATIONS:
            self.refuse_any()

    def refuse_any(self) -> None:
        """Ends the request if anything is wrong.

        Raises:
            InvalidRequestError: Something is.
        """
        if self:
            raise InvalidRequestError(*self)


class UnauthenticatedError(ServiceError):
    """A call has no token, or an unknown one."""

    code = Code.UNAUTHENTICATED

    def __init__(self, *, has_token: bool) -> None:
        """Takes whether there was a token; the token itself is never shown."""
        wrong = "is not known" if has_token else "is missing"
        super().__init__(
            f"authorization: the token {wrong}; a call needs 'authorization: Bearer TOKEN' as "
            "metadata, or as a header over HTTP"
        )
        self.reason = "UNKNOWN_TOKEN" if has_token else "MISSING_TOKEN"


class NotOperatorError(ServiceError):
    """A client requests something that only operators may."""

    code = Code.PERMISSION_DENIED
    reason = "NOT_OPERATOR"

    def __init__(self, client: str) -> None:
        """Takes the client's name."""
        super().__init__(
            f"client {client} is not an operator, so it is not allowed to warm graphs, or to load "
            "and unload models"
        )


class ClientLimitError(ServiceError):
    """A client requests more than its limit."""

    code = Code.RESOURCE_EXHAUSTED
    reason = "CLIENT_LIMIT"

    def __init__(self, client: str, limit: str, *, retry_after: float) -> None:
        """Takes the client's name, the limit, and seconds until it may try again."""
        super().__init__(f"client {client} is at its limit of {limit}")
        self.retry_after = max(SHORTEST_RETRY, retry_after)


class TooManyCallsError(ServiceError):
    """The router, or one client, has its maximum number of calls in progress."""

    code = Code.RESOURCE_EXHAUSTED
    reason = "TOO_MANY_CALLS"
    # A running call has to end first, and nobody knows when.
    retry_after = 1.0

    def __init__(self, limit: int, *, of_client: bool = False) -> None:
        """Takes the limit in calls, of the router or of one client."""
        of = " of one client" if of_client else ""
        super().__init__(
            f"too many calls at once: limit {limit} calls{of}; send the request again later"
        )


class UnknownModelError(ServiceError):
    """The service has no model of that name."""

    code = Code.NOT_FOUND
    reason = "UNKNOWN_MODEL"

    def __init__(self, name: str, known: list[str]) -> None:
        """Takes the requested name and the known names."""
        super().__init__(
            f"model: no model {shortened(name, 64)!r}; "
            f"this service has {shortened(', '.join(known), MAX_NAMES_SHOWN) or 'none'}"
        )


class UnknownVersionError(ServiceError):
    """A protocol with versions of models asks for one that does not exist."""

    code = Code.NOT_FOUND
    reason = "UNKNOWN_VERSION"

    def __init__(self, model: str, version: str) -> None:
        """Takes the model and the requested version."""
        super().__init__(
            f"version: {shortened(model, 64)} has only version 1, got {shortened(version, 64)!r}"
        )


class FixedModelsError(ServiceError):
    """A caller wants to load or unload a model, but the service has no model repository."""

    code = Code.FAILED_PRECONDITION
    reason = "FIXED_MODELS"

    def __init__(self) -> None:
        """Takes no arguments."""
        super().__init__(
            "models cannot be loaded or unloaded while the service runs: start it with "
            "--model-repository, or set --model and restart it"
        )


class ModelNotLoadedError(ServiceError):
    """A model could not be loaded while the service runs; the old revision keeps serving."""

    code = Code.FAILED_PRECONDITION
    reason = "MODEL_NOT_LOADED"

    def __init__(self, name: str, why: str) -> None:
        """Takes the model's name and the reason."""
        super().__init__(f"{name} was not loaded, and nothing has changed: {shortened(why, 1000)}")


class LostWhileLoadingError(ModelNotLoadedError):
    """A worker was lost while it loaded a model, perhaps because of it."""

    def __init__(self, name: str, worker: str) -> None:
        """Takes the model's name and the worker's."""
        super().__init__(name, f"{worker} was lost while it loaded it")


class StillLoadingError(ServiceError):
    """The deadline passed before a model that a request named was loaded on demand."""

    code = Code.DEADLINE_EXCEEDED
    reason = "MODEL_STILL_LOADING"

    def __init__(self, name: str, progress: str) -> None:
        """Takes the model's name and what its load waits for."""
        super().__init__(f"{name} was not loaded before the deadline: {progress}")


class OtherChangeError(ServiceError):
    """Another call has changed a model's deployment meanwhile."""

    code = Code.ABORTED
    reason = "OTHER_CHANGE"

    def __init__(self, name: str) -> None:
        """Takes the model's name."""
        super().__init__(f"{name} was loaded or unloaded by another call at the same time")


class OtherRevisionError(ServiceError):
    """A worker has loaded other files than those with which a run began."""

    code = Code.FAILED_PRECONDITION
    reason = "OTHER_REVISION"

    def __init__(self, model: str, began: str, loaded: str) -> None:
        """Takes the model, and the digests of the run's first files and of the loaded files."""
        super().__init__(
            f"{model} began with the files of digest {began}, but the worker has those of {loaded}"
        )


class RevisionGoneError(ServiceError):
    """No worker has the revision any more with which a request began."""

    code = Code.UNAVAILABLE
    reason = "REVISION_GONE"
    retry_after = 0.5

    def __init__(self, model: str) -> None:
        """Takes the model."""
        super().__init__(
            f"the request began with a revision of {model} that no worker has any more; another "
            "revision must not continue it, so send the request again"
        )


class ModelLoadingError(ServiceError):
    """The model is configured, but no worker has loaded it yet."""

    code = Code.UNAVAILABLE
    reason = "MODEL_LOADING"
    retry_after = 1.0

    def __init__(self, name: str) -> None:
        """Takes the model's name."""
        super().__init__(f"model: {name} is still being loaded")


class ModelUnloadingError(ServiceError):
    """A worker takes no more requests for a model, because it frees the model.

    It has the code of a full queue, so that routers try other workers and keep this one.
    """

    code = Code.RESOURCE_EXHAUSTED
    reason = "MODEL_UNLOADING"
    retry_after = 1.0

    def __init__(self, model: str) -> None:
        """Takes the name of the model."""
        super().__init__(f"model {model} is being unloaded; send the request again")


class QueueFullError(ServiceError):
    """A lane's queue is full."""

    code = Code.RESOURCE_EXHAUSTED
    reason = "QUEUE_FULL"
    retry_after = 1.0

    def __init__(self, model: str, limit: int, *, of_client: bool = False) -> None:
        """Takes the model and the limit in requests, of the queue or of one client in it."""
        of = " of one client" if of_client else ""
        super().__init__(f"queue of {model} is full: limit {limit} waiting requests{of}")


class TextQueueFullError(ServiceError):
    """Too much text is waiting to be tokenized."""

    code = Code.RESOURCE_EXHAUSTED
    reason = "TEXT_QUEUE_FULL"
    retry_after = 1.0

    def __init__(self, limit: int, *, of_client: bool = False) -> None:
        """Takes the limit in characters, of all waiting texts or of one client's."""
        of = " of one client" if of_client else ""
        super().__init__(
            f"too much text waits to be tokenized: limit {limit} characters{of}; "
            "send the request again later"
        )


class MemoryLimitError(ServiceError):
    """Calls use their maximum of memory, or one client's maximum.

    Attributes:
        what: What takes the memory.
        field: The field of requests that has it.
        option: The option that sets the limit.
    """

    code = Code.RESOURCE_EXHAUSTED
    # Another call has to end first, and nobody knows when.
    retry_after = 1.0
    what: str
    field: str
    option: str

    def __init__(self, limit: int, *, of_client: bool = False) -> None:
        """Takes the limit in bytes, of all calls or of one client's."""
        of = " of one client" if of_client else ""
        super().__init__(
            f"{self.what} take too much memory: limit {limit} bytes{of}; "
            "send the request again later"
        )


class RecordingMemoryError(MemoryLimitError):
    """Recordings use their maximum of memory, or one client's maximum."""

    reason = "RECORDING_MEMORY_FULL"
    what = "recordings"
    field = "audio.content"
    option = "--max-recording-memory"


class TensorMemoryError(MemoryLimitError):
    """Tensors use their maximum of memory, or one client's maximum."""

    reason = "TENSOR_MEMORY_FULL"
    what = "tensors"
    field = "inputs"
    option = "--max-tensor-memory"


class LogprobMemoryError(MemoryLimitError):
    """Log-probabilities of answers use their maximum of memory, or one client's maximum."""

    reason = "LOGPROB_MEMORY_FULL"
    what = "log-probabilities of answers"
    field = "options.logprobs"
    option = "--max-tensor-memory"


class ExhaustedError(ServiceError):
    """The process lacks memory or file descriptors, which are free again when other work ends."""

    code = Code.RESOURCE_EXHAUSTED
    reason = "PROCESS_EXHAUSTED"
    retry_after = 1.0

    def __init__(self, what: str) -> None:
        """Takes what is used up."""
        self.what = what
        super().__init__(f"the service has no {what} left; send the request again later")

    @classmethod
    def of(cls, error: BaseException | None) -> Self | None:
        """The error for one of Python, the system or TensorFlow; None if it has another cause."""
        # The loader of shared libraries tells a lack of memory only in words.
        unmapped = isinstance(error, ImportError) and "failed to map segment" in str(error)
        # So does Python when it cannot start a thread.
        unstarted = isinstance(error, RuntimeError) and "start new thread" in str(error)
        # Errors of TensorFlow have the codes of gRPC.
        unallocated = getattr(error, "error_code", None) == Code.RESOURCE_EXHAUSTED
        if unmapped or unstarted or unallocated or isinstance(error, MemoryError):
            return cls("memory")
        what = _EXHAUSTED.get(error.errno or 0) if isinstance(error, OSError) else None
        return None if what is None else cls(what)


_EXHAUSTED = {
    errno.EMFILE: "file descriptors",
    errno.ENFILE: "file descriptors",
    errno.ENOMEM: "memory",
}


class StoppingError(ServiceError):
    """The process is stopping and takes no new work."""

    code = Code.UNAVAILABLE
    reason = "STOPPING"
    # Its replacement, or another router, already takes requests.
    retry_after = 0.5

    def __init__(self) -> None:
        """Takes no arguments."""
        super().__init__("the service is being stopped; send the request again")


class OverloadedError(ServiceError):
    """A request would wait for a slot longer than the limit."""

    code = Code.RESOURCE_EXHAUSTED
    reason = "OVERLOADED"

    def __init__(self, model: str, expected: float, limit: float) -> None:
        """Takes the model, and the expected wait and its limit in seconds."""
        super().__init__(
            f"{model} is overloaded: a request would wait {expected:.3g} s for a slot, "
            f"limit {limit:.3g} s"
        )
        # The time until the wait has shrunk to the limit, if no other requests come.
        self.retry_after = max(SHORTEST_RETRY, expected - limit)


class DeadlineTooShortError(ServiceError):
    """A request cannot finish before its deadline."""

    code = Code.DEADLINE_EXCEEDED
    reason = "DEADLINE_TOO_SHORT"

    def __init__(
        self, model: str, *, queue: float, compilation: float, device: float, left: float
    ) -> None:
        """Takes the model, what it is expected to wait for, and the time left, in seconds."""
        super().__init__(
            f"{model} needs at least {queue + compilation + device:.3g} s for the request (queue "
            f"{queue:.3g} s, compilation {compilation:.3g} s, device {device:.3g} s), but its "
            f"deadline is in {left:.3g} s; nothing was started"
        )


class WorkerLostError(ServiceError):
    """The worker that was called is gone."""

    code = Code.UNAVAILABLE
    reason = "WORKER_LOST"
    retry_after = 0.5

    def __init__(self, worker: str) -> None:
        """Takes the worker's name."""
        super().__init__(f"{worker} was lost before it answered; send the request again")


class DeadlyRequestError(ServiceError):
    """The request kills workers; sent again, it would kill another one."""

    code = Code.INTERNAL
    reason = "DEADLY_REQUEST"
    deadly = True

    def __init__(self, request_id: str, *, lost: int, isolated: int) -> None:
        """Takes the request's id, and how many workers were lost with it, in all and alone."""
        super().__init__(
            f"request {request_id}: {lost} workers died or hung at the same point of this "
            f"request, the last {isolated} while running nothing else; do not send it again, but "
            "report it with its input and the log of the workers"
        )


class NoWorkerInTimeError(ServiceError):
    """The deadline passed before a worker could take the request."""

    code = Code.DEADLINE_EXCEEDED
    reason = "NO_WORKER_IN_TIME"

    def __init__(self, model: str, *, was_loaded: bool) -> None:
        """Takes the model, and whether a worker has ever loaded it."""
        why = (
            "the workers that had loaded it were lost, and none has replaced them yet"
            if was_loaded
            else "the service is starting, and no worker has loaded it yet"
        )
        super().__init__(f"no worker could serve {model} before the deadline: {why}")


class DeadlinePassedError(ServiceError):
    """The deadline passed while a worker had the request."""

    code = Code.DEADLINE_EXCEEDED
    reason = "DEADLINE_PASSED"

    def __init__(self, model: str, waited_for: str) -> None:
        """Takes the model, and what the request waited for, as in "it waited …"."""
        super().__init__(
            f"the deadline passed before {model} answered: the request waited {waited_for}"
        )


class GraphFailedError(ServiceError):
    """A graph that the request needs failed to compile."""

    code = Code.INTERNAL
    reason = "GRAPH_FAILED"

    def __init__(self, signature: object, error: str) -> None:
        """Takes the signature and TensorFlow's error."""
        super().__init__(f"graph {signature} could not be compiled: {shortened(error, 1000)}")


class GraphRefusedError(ServiceError):
    """A graph that the request needs may not be compiled."""

    code = Code.FAILED_PRECONDITION
    reason = "GRAPH_REFUSED"

    def __init__(self, signature: object, why: str) -> None:
        """Takes the signature and the reason."""
        super().__init__(f"no ready graph covers {signature}: {why}")


class CallFailedError(ServiceError):
    """A model that is called once failed while it computed a call."""

    code = Code.INTERNAL
    reason = "CALL_FAILED"

    def __init__(self, model: str, error: str) -> None:
        """Takes the model and TensorFlow's error."""
        super().__init__(f"{model} failed: {shortened(error, 500)}")


class RelayedError(ServiceError):
    """An error that a worker answered with, passed on as it came."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        reason: str = "",
        violations: Sequence[Violation] = (),
        retry_after: float | None = None,
    ) -> None:
        """Takes the parts of the worker's error."""
        super().__init__(message)
        self.code, self.reason = code, reason
        self.violations, self.retry_after = violations, retry_after


class StartupError(Exception):
    """The service cannot start as configured; the message says what to change."""
