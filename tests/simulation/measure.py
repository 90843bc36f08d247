"""Measures what requests cost on this machine, and writes costs.json: `make simulate-costs`."""

import asyncio
import dataclasses
import shutil
import statistics
import time
from collections.abc import Mapping
from typing import Any
from unittest import mock

import numpy as np

from shaperouter import Graph
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.costs import Costs
from shaperouter_service.routing.decision import decide
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import Snapshot
from shaperouter_service.wire.snapshots import snapshot_from_message, snapshot_to_message

from . import router
from .costs import MeasuredCosts
from .fleet import Setting, simulate
from .real import CACHE, MODEL, SLOTS, Answers, Driver, driving
from .traffic import Request, Traffic

MAX_LENGTH = 512
ONE_TOKEN = Request(at=0.0, prompt=16, new_tokens=1, makes=1)
# Its worker makes one call after another.
LONG = Request(at=0.0, prompt=16, new_tokens=480, makes=480)
# Numbers of callers one after another, so that graphs of all rows are called.
CALLERS = (1, 2, 3, 4, 6, 8, 16)
QUANTILES = 20
SECONDS, READING_INTERVAL, LONG_REQUESTS = 6.0, 0.25, 6
MILLION = 1_000_000


async def measure() -> MeasuredCosts:
    """Measures everything, from an empty compile cache on."""
    shutil.rmtree(CACHE, ignore_errors=True)
    ladders = Ladders.default(max_length=MAX_LENGTH, slots=SLOTS)
    async with driving(1, ladders) as driver:
        compiled = [
            graph.trace_seconds + (graph.compile_seconds.mean or 0.0)
            for graph in await driver.graphs()
        ]
    started = time.perf_counter()
    async with driving(1, ladders) as driver:
        start_seconds = time.perf_counter() - started
        measured = await measure_requests(driver)
    costs = MeasuredCosts(
        **measured,
        compile_seconds=statistics.fmean(compiled),
        start_seconds=start_seconds,
        option_seconds=0.0,
        report_seconds=0.0,
    )
    return with_decisions(costs)


async def measure_requests(driver: Driver, seconds: float = SECONDS) -> dict[str, Any]:
    """Measures one worker of one thread, whose router and caller have another core.

    Args:
        driver: A service of one worker.
        seconds: How long each number of callers sends requests.

    Returns:
        Fields of `MeasuredCosts`.
    """
    (model,) = await driver.models()
    steps, alone, busy = await _under_load(driver, seconds)
    before = _calls(await driver.graphs(), "decode")
    single = await driver.closed([ONE_TOKEN] * MILLION, 1, seconds)
    after = _calls(await driver.graphs(), "decode")
    first_token = (after[0] - before[0]) / (after[1] - before[1])
    call_seconds = await _between_calls(driver, first_token)
    router_seconds = single.router_seconds / len(single.answers)
    chunks = statistics.fmean(answer.chunks for answer in busy.answers)
    per_request = busy.router_seconds / len(busy.answers)
    shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
    return {
        "model": MODEL,
        "max_length": MAX_LENGTH,
        "slots": SLOTS,
        "weight_bytes": model.weight_bytes,
        "cache_bytes_per_token": model.kv_cache_bytes_per_token,
        "step_seconds": steps,
        "first_token_seconds": first_token,
        "call_seconds": call_seconds,
        "router_seconds": router_seconds,
        "chunk_seconds": max(0.0, (per_request - router_seconds) / (chunks - 1)),
        # Of requests that wait for no others in their worker, which the simulation adds itself.
        "way_seconds": np.quantile([answer.way for answer in alone.answers], shares).tolist(),
    }


async def _under_load(driver: Driver, seconds: float) -> tuple[dict[str, float], Answers, Answers]:
    """Times of steps, and the answers to one caller and to as many as there are slots."""
    traffic = Traffic(rate=1000.0, seconds=10.0, sigma=1.2, longest_prompt=380)
    requests = list(traffic.requests(seed=0))
    readings: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    found: dict[int, Answers] = {}

    async def read() -> None:
        while True:
            await asyncio.sleep(READING_INTERVAL)
            for graph in await driver.graphs():
                name, count = str(graph.signature), graph.device_seconds.count
                if count > counts.get(name, 0) and graph.step_seconds > 0:
                    readings.setdefault(name, []).append(graph.step_seconds)
                    counts[name] = count

    for callers in CALLERS:
        reading = asyncio.create_task(read())
        found[callers] = await driver.closed(requests, callers, seconds)
        reading.cancel()
    steps = {name: statistics.median(times) for name, times in readings.items()}
    return _sound(steps), found[1], found[SLOTS]


async def _between_calls(driver: Driver, first_token: float) -> float:
    """The seconds between two calls of a worker that has one long request after another.

    Args:
        driver: A service of one worker.
        first_token: Seconds of the call that chooses a first token, after which decoding counts.
    """
    before = _calls(await driver.graphs(), "decode")
    answers = [await driver.send(LONG) for _ in range(LONG_REQUESTS)]
    device, calls = (
        after - earlier
        for after, earlier in zip(_calls(await driver.graphs(), "decode"), before, strict=True)
    )
    decode = sum(answer.decode for answer in answers)
    return max(0.0, decode - device + len(answers) * first_token) / (calls - len(answers))


def _sound(steps: Mapping[str, float]) -> dict[str, float]:
    """Times of steps, none longer than that of a larger graph: what is left of noise."""
    found: dict[str, float] = {}
    signatures = {Signature.parse(text): seconds for text, seconds in steps.items()}
    for kind in {signature.lattice for signature in signatures}:
        costs = Costs({})
        of_kind = [signature for signature in signatures if signature.lattice == kind]
        for signature in of_kind:
            costs.measured(signature, signatures[signature])
        found |= {str(signature): seconds for signature, seconds in costs.sound(of_kind).items()}
    return found


def _calls(graphs: list[Graph], kind: str = "") -> tuple[float, int]:
    """Device time and number of all calls so far."""
    of_kind = [graph for graph in graphs if str(graph.signature.kind).endswith(kind)]
    return (
        sum(graph.device_seconds.sum for graph in of_kind),
        sum(graph.device_seconds.count for graph in of_kind),
    )


def with_decisions(costs: MeasuredCosts, *, workers: int = 16) -> MeasuredCosts:
    """The costs with those of decisions and snapshots, measured in a simulated fleet."""
    seconds = {"decide": 0.0, "report": 0.0}
    counts = {"decide": 0, "report": 0}

    def timed_decide(shape, views, now):
        views = list(views)
        started = time.perf_counter()
        decision = decide(shape, views, now)
        seconds["decide"] += time.perf_counter() - started
        counts["decide"] += len(views)
        return decision

    class TimedCatalog(Catalog):
        def update(self, snapshot: Snapshot) -> None:
            raw = snapshot_to_message(snapshot).SerializeToString()
            message = type(snapshot_to_message(snapshot))
            started = time.perf_counter()
            super().update(snapshot_from_message(message.FromString(raw)))
            seconds["report"] += time.perf_counter() - started
            counts["report"] += len(snapshot.graphs)

    with (
        mock.patch.object(router, "decide", timed_decide),
        mock.patch.object(router, "Catalog", TimedCatalog),
    ):
        traffic = Traffic(rate=6.0 * workers, seconds=8.0)
        simulate(Setting(costs=costs, workers=workers, traffic=traffic))
    return dataclasses.replace(
        costs,
        option_seconds=seconds["decide"] / counts["decide"],
        report_seconds=seconds["report"] / counts["report"],
    )


def main() -> None:
    """Measures and writes."""
    costs = asyncio.run(measure())
    costs.write()
    print(costs)


if __name__ == "__main__":
    main()
