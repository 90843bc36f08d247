"""Measures what requests cost on this machine, and writes costs.json: `make simulate-costs`."""

import asyncio
import dataclasses
import shutil
import statistics
import time
from collections.abc import Mapping
from typing import Any
from unittest import mock

from shaperouter import Graph
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.costs import Costs
from shaperouter_service.routing.decision import decide
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import Snapshot
from shaperouter_service.wire.snapshots import snapshot_from_message, snapshot_to_message

from . import router
from .contention import measure_contention
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
        measured, base_load = await measure_requests(driver)
    costs = MeasuredCosts(
        **measured,
        contention=await measure_contention(base_load, ladders),
        compile_seconds=statistics.fmean(compiled),
        start_seconds=start_seconds,
        option_seconds=0.0,
        report_seconds=0.0,
    )
    return with_decisions(costs)


async def measure_requests(driver: Driver) -> tuple[dict[str, Any], float]:
    """Measures one worker of one thread, whose router and caller have another core.

    Returns:
        Costs, and the load at which its times of steps were measured; see `Contention`.
    """
    (model,) = await driver.models()
    steps, busy, device_share, calls_share, base_load = await _under_load(driver)
    before = _calls(await driver.graphs(), "decode")
    single = await driver.closed([ONE_TOKEN] * MILLION, 1, SECONDS)
    after = _calls(await driver.graphs(), "decode")
    first_token = (after[0] - before[0]) / (after[1] - before[1])
    call_seconds = await _between_calls(driver, first_token)
    router_seconds = single.router_seconds / len(single.answers)
    chunks = statistics.fmean(answer.chunks for answer in busy.answers)
    in_device = first_token + steps[f"{MODEL} prefill 1x16"] + 2 * call_seconds
    whole = statistics.median(answer.end for answer in single.answers)
    in_turns = device_share + calls_share * call_seconds
    rate = len(busy.answers) / busy.seconds
    per_request = busy.router_seconds / len(busy.answers)
    costs = {
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
        # What its device thread does, in and between calls, is not in it.
        "worker_seconds": max(0.0, busy.worker_seconds / busy.seconds - in_turns) / rate,
        "way_seconds": max(0.0, whole - in_device),
        "caller_seconds": busy.caller_seconds / len(busy.answers),
    }
    return costs, base_load


async def _under_load(driver: Driver):
    """Times of steps, and what was measured with most callers; the mean load.

    Returns:
        The times of steps, the answers with most callers, the device's seconds and calls in each
        second of these, and the mean load.
    """
    traffic = Traffic(rate=1000.0, seconds=10.0, sigma=1.2, longest_prompt=380)
    requests = list(traffic.requests(seed=0))
    readings: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    with_most: tuple[Answers, float, float] | None = None
    loads: list[float] = []

    async def read() -> None:
        while True:
            await asyncio.sleep(READING_INTERVAL)
            for graph in await driver.graphs():
                name, count = str(graph.signature), graph.device_seconds.count
                if count > counts.get(name, 0) and graph.step_seconds > 0:
                    readings.setdefault(name, []).append(graph.step_seconds)
                    counts[name] = count

    for callers in CALLERS:
        before = _calls(await driver.graphs())
        reading, began = asyncio.create_task(read()), time.perf_counter()
        answers = await driver.closed(requests, callers, SECONDS)
        # The last answers may come after the seconds that count for them.
        seconds = time.perf_counter() - began
        reading.cancel()
        device, calls = (a - b for a, b in zip(_calls(await driver.graphs()), before, strict=True))
        loads.append(device / seconds + answers.background + answers.others)
        if callers == max(CALLERS):
            with_most = answers, device / seconds, calls / seconds
    assert with_most
    steps = {name: statistics.median(found) for name, found in readings.items()}
    return _sound(steps), *with_most, statistics.fmean(loads)


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
