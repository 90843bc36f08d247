"""Compares simulations of 2 and 4 workers with real runs on this machine: `make simulate-reality`.

Simulated workers have cores of their own. Real ones get a part of a core each, so that all of them,
the router and the caller leave cores idle. Costs of such a worker are measured just before, because
a machine's speed changes within minutes.
"""

import argparse
import asyncio
import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .costs import MeasuredCosts
from .fleet import Result, Setting, simulate
from .measure import measure_requests
from .real import Answers, driving
from .traffic import Traffic

RESULT = Path(__file__).with_name("reality.json")
COSTS = Path(__file__).with_name("reality_costs.json")
WORKERS = (2, 4)
# The part of a core that a worker gets.
CORES = 0.25
SECONDS, WARM_UP, MEASURING_SECONDS = 40.0, 4.0, 15.0
TRAFFIC = Traffic(rate=1.0, seconds=SECONDS)
# Callers of the closed loops for each worker: more than slots, so that some requests wait.
CALLERS = 10
# Shares of the rate that a simulated closed loop reaches.
LOADS = (0.4, 0.7)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A figure, simulated and real.

    Attributes:
        workers: Number of workers.
        rate: Requests a second; 0 for callers that ask one after another.
        figure: What was measured.
        simulated: The simulation's prediction.
        real: The measurement.
        others: Cores that other processes used meanwhile, on average; they disturb it.
    """

    workers: int
    rate: float
    figure: str
    simulated: float
    real: float
    others: float

    @property
    def load(self) -> str:
        """What the workers had to do, for people."""
        return f"{self.rate:.1f} requests/s" if self.rate else f"{CALLERS * self.workers} callers"

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.simulated / self.real - 1


def predict(costs: MeasuredCosts, workers: int, rate: float = 0.0) -> Result:
    """Simulates an open loop of a rate, or without one a closed loop.

    Args:
        costs: What was measured with a worker that has a part of a core.
        workers: Number of workers.
        rate: Requests a second; 0 for callers that ask one after another.
    """
    setting = Setting(
        costs=costs,
        workers=workers,
        traffic=dataclasses.replace(TRAFFIC, rate=rate or 1.0),
        callers=0 if rate else CALLERS * workers,
        warm_up=WARM_UP,
    )
    return simulate(setting)


async def compare(costs: MeasuredCosts, workers: int) -> list[Comparison]:
    """Compares a closed loop and two open ones."""
    closed = predict(costs, workers)
    found: list[Comparison] = []
    async with driving(workers, costs.ladders(), CORES) as driver:
        # Each graph is measured before the workers choose among them.
        requests = list(dataclasses.replace(TRAFFIC, rate=1000.0).requests(seed=7))
        await driver.closed(requests, CALLERS * workers, MEASURING_SECONDS)
        answers = await driver.closed(requests, CALLERS * workers, SECONDS)
        found += _figures(costs, workers, 0.0, _after_warm_up(answers))
        for rate in (round(load * closed.rate, 2) for load in LOADS):
            sent = dataclasses.replace(TRAFFIC, rate=rate).requests(closed.setting.seed)
            answers = await driver.open(list(sent))
            found += _figures(costs, workers, rate, _after_warm_up(answers))
    return found


def predict_again(costs: MeasuredCosts) -> list[Comparison]:
    """Repeats the predictions for real runs that were made before."""
    kept = [Comparison(**each) for each in json.loads(RESULT.read_text(encoding="utf-8"))]
    found: list[Comparison] = []
    for workers, rate in dict.fromkeys((each.workers, each.rate) for each in kept):
        same = [each for each in kept if (each.workers, each.rate) == (workers, rate)]
        figures = _simulated(predict(costs, workers, rate))
        found += [dataclasses.replace(each, simulated=figures[each.figure]) for each in same]
    return found


async def _measured_again(costs: MeasuredCosts) -> MeasuredCosts:
    async with driving(1, costs.ladders(), CORES) as driver:
        measured = await measure_requests(driver, MEASURING_SECONDS)
    return dataclasses.replace(costs, **measured)


def _after_warm_up(answers: Answers) -> Answers:
    counted = [answer for answer in answers.answers if answer.sent >= WARM_UP]
    return dataclasses.replace(answers, answers=counted, seconds=SECONDS - WARM_UP)


def _figures(
    costs: MeasuredCosts, workers: int, rate: float, real: Answers
) -> Sequence[Comparison]:
    simulated = predict(costs, workers, rate)
    measured = (
        len(real.answers) / real.seconds,
        real.mean,
        real.first_token(50),
        real.whole(95),
    )
    return [
        Comparison(
            workers=workers,
            rate=rate,
            figure=name,
            simulated=ours,
            real=theirs,
            others=real.others,
        )
        for (name, ours), theirs in zip(_simulated(simulated).items(), measured, strict=True)
    ]


def _simulated(result: Result) -> dict[str, float]:
    return {
        "answers a second": result.rate,
        "mean seconds of a request": result.mean,
        "median seconds to the first token": result.first_token(50),
        "95th percentile of seconds of a request": result.whole(95),
    }


def main() -> None:
    """Compares and writes."""
    parser = argparse.ArgumentParser(prog="make simulate-reality", description=__doc__)
    parser.add_argument(
        "--again", action="store_true", help="repeat only the predictions, e.g. after a change"
    )
    parser.add_argument(
        "--workers", type=int, nargs="+", default=WORKERS, help="numbers of workers (2 4)"
    )
    arguments = parser.parse_args()
    if arguments.again:
        found = predict_again(MeasuredCosts.read(COSTS))
    else:
        costs = asyncio.run(_measured_again(MeasuredCosts.read()))
        costs.write(COSTS)
        found = [
            each for workers in arguments.workers for each in asyncio.run(compare(costs, workers))
        ]
    for each in found:
        print(
            f"{each.workers} workers, {each.load:16} {each.figure:40} "
            f"{each.simulated:8.3f} {each.real:8.3f} {each.error:+.0%}"
            f"  others used {each.others:.2f} cores"
        )
    kept = [dataclasses.asdict(each) for each in found]
    RESULT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
