"""Measures what router and worker cost for a request, and reports whether the targets are met."""

import argparse
import multiprocessing
import os
import pstats
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TypeAlias

from common.publishing import publish_section
from common.tables import Spread, Table, Target, targets_table
from common.terminal import console

from .answers import TOKENS
from .client import METHODS, STREAM, UNARY, Figures, Load, drive
from .doors import COMPARED, COMPARISONS, door_tables
from .doors import HEADING as DOORS_HEADING
from .doors import INTRODUCTION as DOORS_INTRODUCTION
from .processes import Routed, pinned, proxying, routing, working

CONCURRENCIES = (1, 32, 256)
# The methods that the proxy forwards.
PROXIED = (UNARY, STREAM)
PROFILED = 32
# Targets.
MOST_CPU_MILLISECONDS, MOST_OF_A_PROXY = 1.0, 1.3
PROFILE_LINES = 25
OWN_CODE = "shaperouter_service"
HEADING = "## What a small request costs (`make bench-router`)"
NEXT_HEADING = "## What the design relies on, as tests"
INTRODUCTION = """A router on a core of its own, and the server of a worker whose engine computes
nothing and answers with 32 tokens in chunks of 8. Router and a bare proxy of `grpc.aio` take turns
on the same core."""


Key: TypeAlias = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Router and bare proxy under the same load, one after the other, in several rounds.

    Attributes:
        router: Figures of the router, and of the worker behind it.
        proxy: Figures of the proxy, and of the bare server behind it.
    """

    router: Sequence[Figures]
    proxy: Sequence[Figures]

    def ratio(self, of: Callable[[Figures], float]) -> Spread:
        """A figure of the router divided by that of the proxy."""
        pairs = zip(self.router, self.proxy, strict=True)
        return Spread.of([of(router) / of(proxy) for router, proxy in pairs])

    def median(self, of: Callable[[Figures], float]) -> float:
        """A figure of the router."""
        return statistics.median(map(of, self.router))


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A running worker and client.

    Attributes:
        client: Runs `drive` in its process.
        directory: Directory of sockets and logs.
        core: Core of the router.
        worker: The worker's process id.
        seconds: Length of each measurement.
        rounds: Number of measurements of each load.
    """

    client: ProcessPoolExecutor
    directory: Path
    core: int
    worker: int
    seconds: float
    rounds: int

    def measure(self, *, publish: bool) -> None:
        """Measures router and proxy in turn, and prints tables."""
        found: dict[Key, Pair] = {}
        with (
            routing(self.directory, self.core) as router,
            proxying(self.directory, self.core) as proxy,
            console.status("") as status,
        ):
            for method, concurrency in product(PROXIED, CONCURRENCIES):
                status.update(f"{method}, {concurrency} under way")
                rounds = [
                    (
                        self._drive(router, method, concurrency),
                        self._drive(proxy, method, concurrency),
                    )
                    for _ in range(self.rounds)
                ]
                of_router, of_proxy = zip(*rounds, strict=True)
                found[method, concurrency] = Pair(router=of_router, proxy=of_proxy)
        tables = [_figures(found), targets_table(list(_targets(found)))]
        for table in tables:
            table.show(console)
        if publish:
            text = "\n\n".join([INTRODUCTION, *(table.markdown() for table in tables)])
            publish_section(HEADING, text, before=NEXT_HEADING)

    def compare_doors(self, *, publish: bool) -> None:
        """Measures the doors of the router in turn, and prints tables."""
        found: dict[str, list[list[Figures]]] = {}
        with routing(self.directory, self.core) as router, console.status("") as status:
            for comparison in COMPARISONS:
                status.update(comparison.name)
                found[comparison.name] = [
                    [
                        self._drive(router, method, COMPARED, tokens=comparison.tokens)
                        for method in comparison.methods
                    ]
                    for _ in range(self.rounds)
                ]
        tables = list(door_tables(found))
        for table in tables:
            table.show(console)
        if publish:
            text = "\n\n".join([DOORS_INTRODUCTION, *(table.markdown() for table in tables)])
            publish_section(DOORS_HEADING, text, before=NEXT_HEADING)

    def profile(self) -> None:
        """Prints a profile of the router."""
        for method in METHODS:
            profile = self.directory / f"{method}.profile"
            with routing(self.directory, self.core, profile=profile) as router:
                figures = self._drive(router, method, PROFILED)
            console.print(f"{method}: {figures.requests} requests, and what came before and after")
            stats = pstats.Stats(str(profile), stream=sys.stdout)
            stats.sort_stats("cumulative").print_stats(OWN_CODE, PROFILE_LINES)
            stats.sort_stats("tottime").print_stats(PROFILE_LINES)

    def _drive(
        self, routed: Routed, method: str, concurrency: int, *, tokens: int = TOKENS
    ) -> Figures:
        load = Load(
            address=routed.address,
            http_port=routed.http_port,
            router=routed.pid,
            worker=self.worker,
            method=method,
            concurrency=concurrency,
            seconds=self.seconds,
            tokens=tokens,
        )
        return self.client.submit(drive, load).result()


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="make bench-router", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="seconds of each measurement (default: 5)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="measurements of each load (default: 3)"
    )
    parser.add_argument(
        "--publish", action="store_true", help="write the tables to docs/measurements.md"
    )
    parser.add_argument(
        "--doors", action="store_true", help="compare HTTP with gRPC instead of a proxy"
    )
    parser.add_argument("--profile", action="store_true", help="profile the router instead")
    arguments = parser.parse_args()
    with _prepared(arguments.seconds, arguments.rounds) as benchmark:
        if arguments.profile:
            benchmark.profile()
        elif arguments.doors:
            benchmark.compare_doors(publish=arguments.publish)
        else:
            benchmark.measure(publish=arguments.publish)


@contextmanager
def _prepared(seconds: float, rounds: int) -> Iterator[Benchmark]:
    """Starts worker and client on all cores except the router's."""
    core, *others = sorted(os.sched_getaffinity(0))
    with (
        tempfile.TemporaryDirectory() as name,
        pinned(set(others) or {core}),
        working(Path(name)) as worker,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as client,
    ):
        yield Benchmark(
            client=client,
            directory=Path(name),
            core=core,
            worker=worker,
            seconds=seconds,
            rounds=rounds,
        )


def _figures(found: Mapping[Key, Pair]) -> Table:
    return Table(
        title="CPU time of a small request",
        head=["", "router ms", "÷ proxy", "worker ms", "÷ bare", "requests/s", "p50 ms", "p99 ms"],
        rows=[
            [
                f"{method}, {concurrency} under way",
                f"{pair.median(Figures.router_milliseconds):.2f}",
                pair.ratio(Figures.router_milliseconds).show(".2f"),
                f"{pair.median(Figures.worker_milliseconds):.2f}",
                pair.ratio(Figures.worker_milliseconds).show(".2f"),
                f"{pair.median(Figures.rate):.0f}",
                f"{pair.median(partial(Figures.latency_milliseconds, share=0.5)):.1f}",
                f"{pair.median(partial(Figures.latency_milliseconds, share=0.99)):.1f}",
            ]
            for (method, concurrency), pair in found.items()
        ],
        note="Medians of the rounds; of ratios, with the largest deviation. ÷ proxy: CPU time of "
        "the router, divided by that of a bare grpc.aio proxy that forwards bytes. ÷ bare: CPU "
        "time of the worker's server without computing, divided by that of a bare grpc.aio server "
        "that answers with bytes.",
    )


def _targets(found: Mapping[Key, Pair]) -> Iterator[Target]:
    for method in PROXIED:
        pairs = [found[method, concurrency] for concurrency in CONCURRENCIES]
        yield Target(
            text=f"{method}: milliseconds of the router's CPU for a request",
            limit=MOST_CPU_MILLISECONDS,
            figure=Spread.of([pair.median(Figures.router_milliseconds) for pair in pairs]),
        )
        yield Target(
            text=f"{method}: the router's CPU time as a multiple of a bare proxy's",
            limit=MOST_OF_A_PROXY,
            figure=Spread.of([pair.ratio(Figures.router_milliseconds).median for pair in pairs]),
        )


if __name__ == "__main__":
    main()
