"""Compares simulations of 2 and 4 workers with real runs on this machine: `make simulate-reality`.

The workers share the machine's cores with router and caller, so the simulation shares them, too.
Costs of requests are measured again just before, because a machine's speed changes within minutes.
"""

import argparse
import asyncio
import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .costs import MeasuredCosts
from .fleet import Result, Setting, simulate
from .measure import measure_requests
from .real import Answers, driving
from .traffic import Traffic

RESULT = Path(__file__).with_name("reality.json")
WORKERS = (2, 4)
SECONDS, WARM_UP = 16.0, 3.0
TRAFFIC = Traffic(rate=1.0, seconds=SECONDS)
# Callers of the closed loops for each worker: more than slots, so that some requests wait.
CALLERS = 10
# Shares of the rate that a simulated closed loop reaches.
LOADS = (0.4, 0.7)
# Repetitions with the cores that router and caller use at the simulated rate.
ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A figure, simulated and real.

    Attributes:
        workers: Number of workers.
        rate: Requests a second; 0 for callers that ask one after another.
        figure: What was measured.
        simulated: The simulation's prediction.
        real: The measurement.
    """

    workers: int
    rate: float
    figure: str
    simulated: float
    real: float

    @property
    def load(self) -> str:
        """What the workers had to do, for people."""
        return f"{self.rate:.1f} requests/s" if self.rate else f"{CALLERS * self.workers} callers"

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.simulated / self.real - 1


def predict(costs: MeasuredCosts, workers: int, *, rate: float = 0.0) -> Result:
    """Simulates an open loop of a rate, or without one a closed loop, on this machine's cores."""
    cpu = costs.router_seconds + costs.caller_seconds + costs.worker_seconds
    setting = Setting(
        costs=costs,
        workers=workers,
        traffic=dataclasses.replace(TRAFFIC, rate=rate or 1.0),
        cores=len(os.sched_getaffinity(0)),
        background=rate * cpu,
        callers=0 if rate else CALLERS * workers,
        warm_up=WARM_UP,
    )
    result = simulate(setting)
    for _ in range(0 if rate else ROUNDS):
        # A faster fleet leaves fewer cores to itself.
        background = (setting.background + result.rate * cpu) / 2
        setting = dataclasses.replace(setting, background=background)
        result = simulate(setting)
    return result


async def compare(costs: MeasuredCosts, workers: int) -> list[Comparison]:
    """Compares a closed loop and two open ones."""
    closed = predict(costs, workers)
    found: list[Comparison] = []
    async with driving(workers, costs.ladders()) as driver:
        # Each graph is measured before the workers choose among them.
        requests = list(dataclasses.replace(TRAFFIC, rate=1000.0).requests(seed=7))
        await driver.closed(requests, CALLERS * workers, 2 * WARM_UP)
        answers = await driver.closed(requests, CALLERS * workers, SECONDS)
        found += _figures(closed, 0.0, _measured(_after_warm_up(answers)))
        for rate in (round(load * closed.rate, 2) for load in LOADS):
            simulated = predict(costs, workers, rate=rate)
            sent = dataclasses.replace(TRAFFIC, rate=rate).requests(simulated.setting.seed)
            answers = await driver.open(list(sent))
            found += _figures(simulated, rate, _measured(_after_warm_up(answers)))
    return found


def predict_again(costs: MeasuredCosts) -> list[Comparison]:
    """Repeats the predictions for real runs that were made before."""
    kept = [Comparison(**each) for each in json.loads(RESULT.read_text(encoding="utf-8"))]
    found: list[Comparison] = []
    for workers, rate in dict.fromkeys((each.workers, each.rate) for each in kept):
        real = [each.real for each in kept if (each.workers, each.rate) == (workers, rate)]
        found += _figures(predict(costs, workers, rate=rate), rate, real)
    return found


async def _measured_again(costs: MeasuredCosts) -> MeasuredCosts:
    async with driving(1, costs.ladders()) as driver:
        return dataclasses.replace(costs, **await measure_requests(driver))


def _after_warm_up(answers: Answers) -> Answers:
    counted = [answer for answer in answers.answers if answer.sent >= WARM_UP]
    return dataclasses.replace(answers, answers=counted, seconds=SECONDS - WARM_UP)


def _measured(real: Answers) -> Sequence[float]:
    rate = len(real.answers) / real.seconds
    return rate, real.mean, real.first_token(50), real.whole(95)


def _figures(simulated: Result, rate: float, measured: Sequence[float]) -> Sequence[Comparison]:
    figures = {
        "answers a second": simulated.rate,
        "mean seconds of a request": simulated.mean,
        "median seconds to the first token": simulated.first_token(50),
        "95th percentile of seconds of a request": simulated.whole(95),
    }
    return [
        Comparison(
            workers=simulated.setting.workers, rate=rate, figure=name, simulated=ours, real=real
        )
        for (name, ours), real in zip(figures.items(), measured, strict=True)
    ]


def main() -> None:
    """Compares and writes."""
    parser = argparse.ArgumentParser(prog="make simulate-reality", description=__doc__)
    parser.add_argument(
        "--again", action="store_true", help="repeat only the predictions, e.g. for other costs"
    )
    costs = MeasuredCosts.read()
    if parser.parse_args().again:
        found = predict_again(costs)
    else:
        costs = asyncio.run(_measured_again(costs))
        costs.write()
        found = [each for workers in WORKERS for each in asyncio.run(compare(costs, workers))]
    for each in found:
        print(
            f"{each.workers} workers, {each.load:16} {each.figure:40} "
            f"{each.simulated:8.3f} {each.real:8.3f} {each.error:+.0%}"
        )
    kept = [dataclasses.asdict(each) for each in found]
    RESULT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
