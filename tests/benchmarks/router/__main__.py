"""Measures the router's cost for a request, and reports whether the targets are met."""

import argparse
import multiprocessing
import os
import pstats
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from common.tables import Spread, Table, Target, targets_table
from common.terminal import console

from .client import METHODS, Figures, Load, drive
from .processes import Routed, pinned, proxying, routing, working

CONCURRENCIES = (1, 32, 256)
PROFILED = 32
# Targets.
MOST_CPU_MILLISECONDS, FEWEST_REQUESTS = 1.0, 1000
# Of a core: what takes less waits for others.
BUSY = 0.95
PROFILE_LINES = 25
OWN_CODE = "shaperouter_service"


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A running worker and client.

    Attributes:
        client: Runs `drive` in its process.
        directory: For sockets and logs.
        core: For the router.
        seconds: Of each measurement.
    """

    client: ProcessPoolExecutor
    directory: Path
    core: int
    seconds: float

    def measure(self) -> None:
        """Measures router and proxy, and prints tables."""
        router = self._measured("the router", routing(self.directory, self.core))
        proxy = self._measured("a bare proxy", proxying(self.directory, self.core))
        for table in (_figures(router, proxy), targets_table(list(_targets(router)))):
            table.show(console)

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

    def _measured(
        self, name: str, running: AbstractContextManager[Routed]
    ) -> dict[tuple[str, int], Figures]:
        found = {}
        with running as routed, console.status("") as status:
            for method, concurrency in product(METHODS, CONCURRENCIES):
                status.update(f"{name}: {method}, {concurrency} under way")
                found[method, concurrency] = self._drive(routed, method, concurrency)
        return found

    def _drive(self, routed: Routed, method: str, concurrency: int) -> Figures:
        load = Load(
            address=routed.address,
            router=routed.pid,
            method=method,
            concurrency=concurrency,
            seconds=self.seconds,
        )
        return self.client.submit(drive, load).result()


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="make bench-router", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="seconds of each measurement (default: 10)"
    )
    parser.add_argument("--profile", action="store_true", help="profile the router instead")
    arguments = parser.parse_args()
    with _prepared(arguments.seconds) as benchmark:
        if arguments.profile:
            benchmark.profile()
        else:
            benchmark.measure()


@contextmanager
def _prepared(seconds: float) -> Iterator[Benchmark]:
    """Starts worker and client on all cores except the router's."""
    core, *others = sorted(os.sched_getaffinity(0))
    with (
        tempfile.TemporaryDirectory() as name,
        pinned(set(others) or {core}),
        working(Path(name)),
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as client,
    ):
        yield Benchmark(client=client, directory=Path(name), core=core, seconds=seconds)


def _figures(
    router: dict[tuple[str, int], Figures], proxy: dict[tuple[str, int], Figures]
) -> Table:
    return Table(
        title="The router on one core",
        head=["", "CPU ms", "÷ proxy's", "requests/s", "of the core", "p50 ms", "p99 ms"],
        rows=[
            [
                f"{method}, {concurrency} under way",
                f"{figures.cpu_milliseconds:.2f}",
                f"{figures.cpu_milliseconds / proxy[method, concurrency].cpu_milliseconds:.1f}",
                f"{figures.rate:.0f}",
                f"{figures.core_share:.0%}",
                f"{1e3 * figures.latency(0.5):.1f}",
                f"{1e3 * figures.latency(0.99):.1f}",
            ]
            for (method, concurrency), figures in router.items()
        ],
        note="CPU time of the process for a request. The proxy passes on what the worker says, and "
        f"does nothing else. Where the router takes less than {BUSY:.0%} of its core, worker or "
        "client could not keep it busy.",
    )


def _targets(router: dict[tuple[str, int], Figures]) -> Iterator[Target]:
    for method in METHODS:
        figures = [router[method, concurrency] for concurrency in CONCURRENCIES]
        yield Target(
            text=f"{method}: milliseconds of CPU for a request",
            limit=MOST_CPU_MILLISECONDS,
            figure=Spread.of([each.cpu_milliseconds for each in figures]),
        )
        yield Target(
            text=f"{method}: milliseconds between answers at the highest rate",
            limit=1e3 / FEWEST_REQUESTS,
            figure=Spread.of([1e3 / max(each.rate for each in figures)]),
        )


if __name__ == "__main__":
    main()
