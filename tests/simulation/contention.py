"""Measures how workers on this machine slow each other down: `make simulate-contention`."""

import asyncio
import contextlib
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from shaperouter_service.routing.ladders import Ladders

from .costs import Contention, MeasuredCosts
from .real import MODEL, Driver, driving
from .traffic import Request

# Services of one worker each, so that it is known how many workers compute.
SERVICES = 4
# One call after another of a single graph, in requests as long as there are.
LONG = Request(at=0.0, prompt=256, new_tokens=255, makes=255)
GRAPH = f"{MODEL} decode 1x512"
PROBE = Request(at=0.0, prompt=16, new_tokens=1, makes=1)
PROBE_INTERVAL, READING_INTERVAL = 0.03, 0.25
WARM_UP, SECONDS = 1.0, 8.0
QUANTILES = 10


@dataclass
class _Level:
    """What was measured while a number of workers computed."""

    load: float = 0.0
    step_seconds: list[float] = field(default_factory=list)
    ways: list[float] = field(default_factory=list)


async def measure_contention(base_load: float, ladders: Ladders) -> Contention:
    """Lets from none to all of four workers compute, and probes one that does not.

    Args:
        base_load: The load at which times of steps were measured.
        ladders: The ladders of the workers.
    """
    async with contextlib.AsyncExitStack() as stack:
        drivers = [await stack.enter_async_context(driving(1, ladders)) for _ in range(SERVICES)]
        levels = [
            await _measure(drivers[:computing], drivers[computing:])
            for computing in range(SERVICES + 1)
        ]
    shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
    computing, probed = levels[1:], levels[:-1]
    return Contention(
        machine=_machine(),
        base_load=base_load,
        loads=[level.load for level in computing],
        step_seconds=[statistics.fmean(level.step_seconds) for level in computing],
        way_loads=[level.load for level in probed],
        way_seconds=[np.quantile(level.ways, shares).tolist() for level in probed],
    )


async def _measure(computing: Sequence[Driver], idle: Sequence[Driver]) -> _Level:
    """Measures for some seconds, once the callers have begun."""
    level = _Level()
    until = time.perf_counter() + WARM_UP

    async def call(driver: Driver) -> None:
        while time.perf_counter() < until:
            await driver.send(LONG)

    async def probe(driver: Driver) -> None:
        while time.perf_counter() < until:
            level.ways.append((await driver.send(PROBE)).way)
            await asyncio.sleep(PROBE_INTERVAL)

    async def read(driver: Driver) -> None:
        before = None
        while time.perf_counter() < until:
            graphs = await driver.graphs()
            (graph,) = (graph for graph in graphs if str(graph.signature) == GRAPH)
            count = graph.device_seconds.count
            if before is not None and count > before:
                level.step_seconds.append(graph.step_seconds)
            before = count
            await asyncio.sleep(READING_INTERVAL)

    await asyncio.gather(*map(call, computing))
    until = time.perf_counter() + SECONDS
    # Nobody can probe workers that all compute.
    costs = await asyncio.gather(
        *(driver.measured([call(driver), read(driver)]) for driver in computing),
        *(driver.measured([probe(driver)]) for driver in idle[:1]),
    )
    # Each counts the one caller, and takes the others' services for other processes.
    routers = sum(each.router_seconds / each.seconds for each in costs)
    caller = max(each.caller_seconds / each.seconds for each in costs)
    level.load = len(computing) + routers + caller
    return level


def _machine() -> str:
    """The processor and its number of cores, as far as the system tells."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    name = next(names, platform.processor())
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def main() -> None:
    """Measures and writes."""
    costs = MeasuredCosts.read()
    contention = asyncio.run(measure_contention(costs.contention.base_load, costs.ladders()))
    replace(costs, contention=contention).write()
    print(contention)


if __name__ == "__main__":
    main()
