"""Callers: each repeats requests drawn from a seed, and collects what it saw."""

from __future__ import annotations

import contextlib
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import grpc
import httpx2 as httpx

from chaos.judge import Outcome, Refusal
from chaos.samples import SAMPLES, HttpStatusError, Line, Sample
from chaos.stage import ROUTERS, Stage
from harness.certificates import HOST
from shaperouter import DeadlineError, ShaperouterError, UnavailableError

T = TypeVar("T", bound=threading.Thread)

# Enough to fill the workers' batches while some wait for a silent connection.
CALLERS = 48
# Maximum seconds between two requests of a caller, and seconds after an error that does not say
# when to try again.
PAUSE, RETRY = 0.05, 0.5

# gRPC's names of what HTTP statuses stand for, or of codes at the end of a stream of events.
_STATUSES = {429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
_DEADLY = "workers died or hung"

Report = Callable[[Sample, Outcome], None]


class Lines:
    """A caller's connections to all routers, opened again when the token is renewed."""

    def __init__(self, stage: Stage, stack: contextlib.ExitStack) -> None:
        """Connects to nothing yet."""
        self._stage, self._stack = stage, stack
        self._token = ""
        self._lines: list[Line] = []
        self._context = ssl.create_default_context(cafile=stage.ca)

    def line(self, router: int) -> Line:
        """The connections to a router, with nothing received yet."""
        if self._token != self._stage.token:
            self._stack.close()
            self._token = self._stage.token
            self._lines = [self._connect(each) for each in range(ROUTERS)]
        line = self._lines[router]
        line.part = []
        return line

    def _connect(self, router: int) -> Line:
        bearer = f"Bearer {self._token}"
        enter = self._stack.enter_context
        credentials = grpc.ssl_channel_credentials(self._stage.ca.read_bytes())
        port = self._stage.caller_links[router][0].port
        return Line(
            client=enter(self._stage.client(router)),
            http=enter(
                httpx.Client(
                    base_url=self._stage.http_url(router),
                    headers={"authorization": bearer},
                    verify=self._context,
                )
            ),
            channel=enter(grpc.secure_channel(f"{HOST}:{port}", credentials)),
            metadata=(("authorization", bearer),),
        )


def attempt(sample: Sample, line: Line, clock: Callable[[], float]) -> Outcome:
    """Sends a request once."""
    began = clock()
    answer, refusal, request_id = None, None, ""
    try:
        answer = sample.send(line)
    except ShaperouterError as error:
        request_id = error.request_id
        refusal = _refusal_of(error)
    except HttpStatusError as error:
        code = error.code.upper() if error.status in (0, 500) else _STATUSES.get(error.status, "")
        if error.status == 0 and error.retry_after is not None:
            # The end of a stream has no status.
            code = "UNAVAILABLE"
        refusal = Refusal(
            code=code or f"HTTP {error.status}", reason=str(error), retry_after=error.retry_after
        )
    except httpx.TimeoutException as error:
        refusal = Refusal(code="DEADLINE_EXCEEDED", reason=repr(error))
    except httpx.TransportError as error:
        refusal = Refusal(code="UNAVAILABLE", reason=repr(error), connection=True)
    except grpc.RpcError as error:
        refusal = _refusal_of_status(error)
    return Outcome(
        sample=sample.name,
        began=began,
        ended=clock(),
        answer=answer,
        part=tuple(line.part) if answer is None else (),
        refusal=refusal,
        request_id=request_id,
    )


def _refusal_of(error: ShaperouterError) -> Refusal:
    code = error.code.name
    if _DEADLY in str(error):
        code = "DEADLY_REQUEST"
    after = getattr(error, "retry_after", None)
    connection = isinstance(error, UnavailableError) and after is None
    # A deadline that the service has not explained.
    silent = isinstance(error, DeadlineError) and not str(error)
    return Refusal(
        code=code, reason="" if silent else str(error), retry_after=after, connection=connection
    )


def _refusal_of_status(error: grpc.RpcError) -> Refusal:
    pushback = dict(error.trailing_metadata() or ()).get("grpc-retry-pushback-ms")
    after = None if pushback is None else int(pushback) / 1000
    code = error.code().name
    # gRPC's answer to calls that reach a server at the moment it stops.
    connection = code in ("UNAVAILABLE", "CANCELLED") and after is None
    return Refusal(code=code, reason=error.details(), retry_after=after, connection=connection)


class Caller(threading.Thread):
    """Repeats requests until it is stopped; each until it is answered.

    Attributes:
        sending: Name of the last request that it has sent.
    """

    def __init__(
        self,
        stage: Stage,
        seed: str,
        stopping: threading.Event,
        report: Report,
        clock: Callable[[], float],
    ) -> None:
        """Draws its requests from a seed.

        Args:
            stage: The service.
            seed: The seed.
            stopping: When it is set, the request in progress is the last.
            report: Called with each attempt.
            clock: The campaign's clock.
        """
        # A call that hangs must not keep the campaign from ending.
        super().__init__(name=f"caller {seed}", daemon=True)
        self._stage, self._stopping, self._report, self._clock = stage, stopping, report, clock
        self._source = random.Random(seed)
        self.sending = ""

    def run(self) -> None:
        """Calls."""
        with contextlib.ExitStack() as stack:
            lines = Lines(self._stage, stack)
            for sample in self._samples():
                while not self._answered(sample, lines):
                    pass
                self._stopping.wait(self._source.uniform(0, PAUSE))

    def _samples(self) -> Iterator[Sample]:
        weights = [sample.weight for sample in SAMPLES]
        while not self._stopping.is_set():
            yield self._source.choices(SAMPLES, weights)[0]

    def _answered(self, sample: Sample, lines: Lines) -> bool:
        """Sends a request to any router; false if it was refused and should be sent again."""
        line = lines.line(random.randrange(ROUTERS))
        self.sending = sample.name
        outcome = attempt(sample, line, self._clock)
        self._report(sample, outcome)
        if outcome.refusal is None or sample.deadline is not None:
            return True
        self._stopping.wait(outcome.refusal.retry_after or RETRY)
        return False


def hanging(callers: Sequence[T], seconds: float) -> list[T]:
    """Waits for callers that were stopped, for some seconds in all; returns those that go on."""
    latest = time.monotonic() + seconds
    for caller in callers:
        caller.join(max(0.0, latest - time.monotonic()))
    return [caller for caller in callers if caller.is_alive()]
