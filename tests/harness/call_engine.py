"""An engine with functions in this process, and calls of it, for tests below gRPC."""

import os
import queue
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.engine import TIMEOUT
from harness.waiting import wait_until
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.functions import common_inputs
from shaperouter_service.functions.trial import input_shape
from shaperouter_service.inference.calls import WorkerResult
from shaperouter_service.tensors.checking import Sizes, sizes_of
from shaperouter_service.tensors.specs import CallSpec
from shaperouter_service.worker.call import Call, CallEvent, CallFailed
from shaperouter_service.worker.call_scheduler import CallScheduler
from shaperouter_service.worker.config import EngineConfig
from shaperouter_service.worker.engine import Engine

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

Arrays = Mapping[str, np.ndarray]


@dataclass
class CollectedCall:
    """A call and its events as they arrive."""

    call: Call
    events: "queue.SimpleQueue[CallEvent]"
    seen: list[CallEvent] = field(default_factory=list)

    def wait(self) -> WorkerResult:
        """Waits for the result; raises the call's error."""
        while True:
            event = self.events.get(timeout=TIMEOUT)
            self.seen.append(event)
            if isinstance(event, CallFailed):
                raise event.error
            if isinstance(event, WorkerResult):
                return event


class CallBench:
    """An engine, and shorthands for calls."""

    def __init__(
        self, models: Mapping[str, Path], cache: CompileCache | None = None, **options: Any
    ) -> None:
        self.defects: list[str] = []
        settings: dict[str, Any] = {
            "queue_limit": 4000,
            "compile_threads": 2,
            "max_graphs": 1000,
            "dtype": "auto",
            "slots": 4,
        } | options
        self.engine = Engine(
            EngineConfig(models=models, **settings),
            on_change=lambda: None,
            on_warm=lambda: None,
            on_defect=lambda: self.defects.append("defect"),
            compile_cache=cache,
        )
        self.graphs = self.engine.parts.graphs

    def scheduler(self, model: str) -> CallScheduler:
        return self.engine.call_scheduler(model)

    def submit(
        self, model: str, inputs: Arrays, *, client: str = "test", **options: Any
    ) -> CollectedCall:
        """Calls a function; all outputs are returned."""
        spec = self.scheduler(model).model.spec
        events: queue.SimpleQueue[CallEvent] = queue.SimpleQueue()
        call = Call(
            request_id="test",
            client=client,
            inputs=inputs,
            sizes=sizes_of(inputs, spec),
            common=common_inputs(inputs, spec),
            outputs=[each.name for each in spec.outputs],
            emit=events.put,
            arrived=time.monotonic(),
            **options,
        )
        self.engine.submit_call(call, model)
        return CollectedCall(call, events)

    @contextmanager
    def held(self, model: str) -> Iterator[None]:
        """Keeps the calls of a model in its queue; they are computed at the end."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.scheduler(model), "compute", lambda: False)
            yield
        self.engine.parts.device.wake()

    def wait_until_ready(self) -> None:
        wait_until(lambda: self.engine.warm, timeout=TIMEOUT)

    def stop_compiling(self) -> None:
        """Drops queued compilations and waits for running ones."""
        self.graphs.stop()


def random_inputs(spec: CallSpec, rng: random.Random) -> dict[str, Any]:
    """Inputs of random sizes, some of more rows than any graph has."""
    sizes = Sizes(
        rows=rng.choice((1, 1, 2, 3, 9)), axes=tuple(rng.randint(1, 16) for _ in spec.axes)
    )
    numbers = np.random.default_rng(rng.randrange(2**32))
    inputs = {}
    for each in spec.inputs:
        shape, dtype = input_shape(each, spec, sizes), each.dtype.numpy
        if dtype.kind == "O":
            values = numbers.choice(np.array([b"a", b"b,c,d", b"e@f.org"], dtype=object), shape)
        elif dtype.kind in "bi":
            values = numbers.integers(0, 2, shape)
            if shape:
                values[..., 0] = 1
        else:
            values = numbers.standard_normal(shape)
        inputs[each.name] = values.astype(dtype)
    return inputs
