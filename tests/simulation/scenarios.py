"""The simulated scenarios, and the question that each answers."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.worker.server import WATCH_INTERVAL

from .costs import MeasuredCosts
from .fleet import Autoscaler, Result, Setting, simulate
from .policies import POLICIES
from .traffic import Traffic

# Graphs of a worker that has traffic of all lengths.
GRAPHS = 40
# Share of a router's core that may be used.
ROUTER_SHARE = 0.7
TRAFFIC = Traffic(rate=1.0, seconds=12.0)
WARM_UP = 2.0
# Workers of a cell: a large fleet is divided into fleets with routers of their own.
CELL = 10
# Messages with tokens after the first one of a request.
CHUNKS = 5


@dataclass(frozen=True, kw_only=True)
class Row:
    """Figures of one simulation, for tables and plots.

    Attributes:
        scenario: What it belongs to.
        names: What distinguishes it in the scenario.
        figures: Its figures.
    """

    scenario: str
    names: dict[str, Any]
    figures: dict[str, Any]


Scenario = Callable[[MeasuredCosts], Iterator[Row]]


def sizes(costs: MeasuredCosts) -> Iterator[Row]:
    """How many workers: seconds to the first token by the load of a worker, for several sizes."""
    for workers, rates, seconds in (
        (1, (4, 6, 8, 10, 11, 12, 13), 60.0),
        (4, (4, 6, 8, 10, 11, 12, 13, 14), 20.0),
        (16, (6, 8, 10, 12, 13, 14), 6.0),
    ):
        for rate in rates:
            traffic = dataclasses.replace(TRAFFIC, rate=rate * workers, seconds=seconds)
            yield _row("sizes", costs, {"workers": workers, "rate": rate}, traffic=traffic)


def scale(costs: MeasuredCosts) -> Iterator[Row]:
    """From 1 to 1,000 workers at 10 requests a second each."""
    for workers, seconds in ((1, 60.0), (10, 12.0), (100, 3.0), (1000, 1.0)):
        cells = max(1, workers // CELL)
        in_cell = workers // cells
        results = [
            simulate(
                Setting(
                    costs=costs,
                    workers=in_cell,
                    routers=routers_for(costs, in_cell, 10.0 * in_cell),
                    traffic=dataclasses.replace(TRAFFIC, rate=10.0 * in_cell, seconds=seconds),
                    warm_up=min(WARM_UP, seconds / 3),
                    seed=1 + cell,
                )
            )
            for cell in range(cells)
        ]
        outcomes = [outcome for result in results for outcome in result.outcomes]
        whole = dataclasses.replace(results[0], outcomes=outcomes)
        names = {
            "workers": workers,
            "cells": cells,
            "routers": cells * results[0].setting.routers,
        }
        yield Row(scenario="scale", names=names, figures=_figures(whole))


def policies(costs: MeasuredCosts) -> Iterator[Row]:
    """The product's decision against others, on hot shapes and on cold ones."""
    for state in ("hot", "cold"):
        for name, policy in POLICIES.items():
            yield _row(
                "policies",
                costs,
                {"shapes": state, "policy": name},
                workers=8,
                policy=policy,
                is_warm=state == "hot",
                traffic=dataclasses.replace(TRAFFIC, rate=72.0, seconds=16.0),
            )


def ladders(costs: MeasuredCosts) -> Iterator[Row]:
    """Which ladder: few rungs pad, many rungs compile."""
    chosen = {
        "one rung": {"prefill_lengths": (512,), "decode_lengths": (512,)},
        "doubling": {"prefill_lengths": _doubling(32), "decode_lengths": _doubling(128)},
        "the default": {},
        "every 16 tokens": {
            "prefill_lengths": (*range(16, 129, 16), 256, 384, 512),
            "decode_lengths": tuple(range(64, 513, 64)),
        },
    }
    for state in ("hot", "cold"):
        for name, lengths in chosen.items():
            built = costs.ladders(**lengths)
            row = _row(
                "ladders",
                costs,
                {"shapes": state, "ladder": name},
                workers=4,
                is_warm=state == "hot",
                ladders=built,
                traffic=dataclasses.replace(TRAFFIC, rate=36.0, seconds=24.0),
            )
            row.figures["rungs"] = _signatures(built, costs)
            yield row


def failures(costs: MeasuredCosts) -> Iterator[Row]:
    """Workers that die: what callers notice, and that no request is lost."""
    for every in (0, 10, 5, 2.5):
        kills = [every * count for count in range(1, int(28 / every))] if every else []
        yield _row(
            "failures",
            costs,
            {"a worker dies every": every, "deaths": len(kills)},
            workers=8,
            kills=kills,
            traffic=dataclasses.replace(TRAFFIC, rate=56.0, seconds=30.0),
        )


def autoscaling(costs: MeasuredCosts) -> Iterator[Row]:
    """Load that becomes four times as much at once, with a fixed fleet and with an autoscaler."""
    traffic = dataclasses.replace(TRAFFIC, rate=(8.0, 32.0, 32.0, 32.0), seconds=120.0)
    for name, workers, autoscaler in (
        ("2 workers", 2, None),
        ("2 workers, scaled to 2 requests each", 2, Autoscaler(target=2.0, most=8)),
        ("2 workers, scaled to 5 requests each", 2, Autoscaler(target=5.0, most=8)),
    ):
        result = simulate(
            Setting(costs=costs, workers=workers, routers=2, traffic=traffic, autoscaler=autoscaler)
        )
        figures = _figures(result) | {
            "timeline": _timeline(result),
            "workers_at": {f"{at:.0f}": count for at, count in result.workers_at.items()},
        }
        yield Row(scenario="autoscaling", names={"fleet": name}, figures=figures)


def routers(costs: MeasuredCosts) -> Iterator[Row]:
    """The limit of one router, and the cost of several that share nothing."""
    for workers in (1, 2, 5, 10, 20, 30, 50, 70, 100, 200, 500, 1000):
        watching, request = _router_costs(costs, workers)
        left = max(0.0, ROUTER_SHARE - watching)
        yield Row(
            scenario="one router",
            names={"workers": workers},
            figures={
                "watching": watching,
                "deciding_ms": 1000 * workers * costs.option_seconds,
                "request_ms": 1000 * request,
                "rate": left / request,
            },
        )
    for count in (1, 2, 4, 8):
        yield _row(
            "several routers",
            costs,
            {"routers": count},
            workers=8,
            routers=count,
            traffic=dataclasses.replace(TRAFFIC, rate=80.0, seconds=10.0),
        )


def routers_for(costs: MeasuredCosts, workers: int, rate: float) -> int:
    """The number of routers that workers and requests a second need.

    Raises:
        ValueError: Watching the workers alone takes more than a router may use.
    """
    watching, request = _router_costs(costs, workers)
    if watching >= ROUTER_SHARE:
        raise ValueError(f"{workers} workers are more than one router can watch")
    return max(1, math.ceil(rate * request / (ROUTER_SHARE - watching)))


def _router_costs(costs: MeasuredCosts, workers: int) -> tuple[float, float]:
    """A router's cores for watching busy workers, and its seconds for a request."""
    watching = workers / WATCH_INTERVAL * GRAPHS * costs.report_seconds
    deciding = workers * costs.option_seconds
    return watching, costs.router_seconds + CHUNKS * costs.chunk_seconds + deciding


SCENARIOS: Sequence[Scenario] = (
    sizes,
    scale,
    policies,
    ladders,
    failures,
    autoscaling,
    routers,
)


def _row(scenario: str, costs: MeasuredCosts, names: dict[str, Any], **settings: Any) -> Row:
    """Simulates; by default a fleet of the number of workers in its name."""
    workers = settings.setdefault("workers", names.get("workers"))
    rate = settings["traffic"].rate
    settings.setdefault("routers", routers_for(costs, workers, rate))
    result = simulate(Setting(costs=costs, **{"warm_up": WARM_UP} | settings))
    return Row(scenario=scenario, names=names, figures=_figures(result))


def _figures(result: Result) -> dict[str, Any]:
    return {
        "requests": len(result.outcomes),
        "refused": result.refused,
        "lost": result.lost,
        "first_p50": result.first_token(50),
        "first_p95": result.first_token(95),
        "first_p99": result.first_token(99),
        "whole_p50": result.whole(50),
        "whole_p95": result.whole(95),
        "whole_p99": result.whole(99),
        "device": result.device_share,
        "router": result.router_share,
        "graphs": result.graphs,
        "padding": result.padding,
        "resumed": sum(outcome.losses for outcome in result.outcomes),
    }


def _timeline(result: Result, step: float = 5.0) -> dict[str, float]:
    """The 95th percentile of seconds to the first token of requests sent in each interval."""
    found = {}
    end = result.setting.traffic.seconds
    for start in (step * index for index in range(int(end / step))):
        sent = [o for o in result.outcomes if start <= o.request.at - 1.0 < start + step]
        if any(outcome.first is not None for outcome in sent):
            found[f"{start:g}"] = dataclasses.replace(result, outcomes=sent).first_token(95)
    return found


def _doubling(first: int) -> tuple[int, ...]:
    return tuple(first * 2**power for power in range(10) if first * 2**power <= 512)


def _signatures(built: Ladders, costs: MeasuredCosts) -> int:
    return sum(
        1
        for signature in built.signatures(costs.model)
        if signature.beams == 1 and signature.kind in ("prefill", "decode")
    )
