"""Serving the calls of routers on the engine, up to the results that routers get."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import assert_never

from shaperouter_service.errors import (
    DeadlinePassedError,
    InvalidRequestError,
    Violation,
)
from shaperouter_service.functions import common_inputs
from shaperouter_service.inference.calls import WorkerCall, WorkerResult
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.rpc.deadlines import WORKER_MARGINS, seconds_to_wait
from shaperouter_service.tensors.checking import Sizes, sizes_of
from shaperouter_service.tensors.specs import CallSpec
from shaperouter_service.worker.call import Begun, Call, CallEvent, CallFailed
from shaperouter_service.worker.engine import Engine


class CallRunner:
    """Serves calls on an engine. Only the event loop may use it."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        """Takes the engine, and the loop that its events go to."""
        self._engine = engine
        self._loop = loop

    async def call(
        self,
        request: WorkerCall,
        seconds_left: float | None,
        on_begin: Callable[[], Awaitable[None]],
    ) -> WorkerResult:
        """Computes a call; cancelling this drops it unless it is being computed.

        Args:
            request: The call.
            seconds_left: Seconds until the deadline, if there is one.
            on_begin: Called right before a suspect is computed.

        Raises:
            DeadlinePassedError: The deadline is about to pass.
            ServiceError: The call is refused, or has failed.
        """
        engine = self._engine
        scheduler = engine.call_scheduler(request.model)
        sizes = check(request, scheduler.model.spec, scheduler.covers.ladders)
        events: asyncio.Queue[CallEvent] = asyncio.Queue()

        def emit(event: CallEvent) -> None:
            # The loop has ended if the worker is being stopped, and so has the caller.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(events.put_nowait, event)

        call = Call(
            request_id=request.request_id,
            client=request.client,
            inputs=request.inputs,
            sizes=sizes,
            common=common_inputs(request.inputs, scheduler.model.spec),
            outputs=request.outputs,
            emit=emit,
            arrived=time.monotonic(),
            suspect=request.suspect,
        )
        until = None
        if seconds_left is not None:
            until = self._loop.time() + seconds_to_wait(seconds_left, WORKER_MARGINS)
        engine.submit_call(call, request.model)
        is_done = False
        try:
            async with asyncio.timeout_at(until):
                while True:
                    event = await events.get()
                    match event:
                        case Begun():
                            await on_begin()
                        case CallFailed(error):
                            is_done = True
                            raise error
                        case WorkerResult():
                            is_done = True
                            return event
                        case _:
                            assert_never(event)
        except TimeoutError:
            raise DeadlinePassedError(request.model, engine.call_waited_for(call)) from None
        finally:
            if not is_done:
                engine.cancel_call(call, request.model)


def check(request: WorkerCall, spec: CallSpec, ladders: CallLadders) -> Sizes:
    """Refuses calls that would break the device thread, and with it all others.

    Routers check the same and more, but with the ladders that another worker may have reported.

    Raises:
        InvalidRequestError: The call does not fit this worker's model.
    """
    sizes = sizes_of(request.inputs, spec)
    violations = [
        Violation(
            field="inputs",
            description=f"axis {axis.name} must be at most {axis.ladder.maximum}, got {size}",
        )
        for axis, size in zip(ladders.axes, sizes.axes, strict=True)
        if axis.ladder is not None and size > axis.ladder.maximum
    ]
    known = {each.name for each in spec.outputs}
    unknown = [name for name in request.outputs if name not in known]
    if unknown or not request.outputs:
        description = f"must name some of {', '.join(sorted(known))}, got {unknown}"
        violations.append(Violation(field="outputs", description=description))
    if violations:
        raise InvalidRequestError(*violations)
    return sizes
