"""Names that stand for changing addresses, and workers that come and go with them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from harness.fake_worker import FakeWorker
from harness.logs import capture_logs
from harness.waiting import TIMEOUT
from shaperouter_service.errors import StartupError
from shaperouter_service.fleet import Fleet, OverloadGuard, discovered, discovery
from shaperouter_service.generation.resolution import neutral_options
from shaperouter_service.generation.run_events import RunCompletion, RunEvent
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.telemetry.fleet import FleetMetrics

Until = Callable[[Callable[[], bool]], Awaitable[None]]


# Names.


class Dns:
    """A resolver with scripted answers, and a fleet that records its updates."""

    def __init__(self) -> None:
        self.answers: dict[str, Collection[str] | Exception] = {}
        self.asked = 0
        self.told: list[list[str]] = []

    async def resolve(self, host: str) -> Collection[str]:
        self.asked += 1
        answer = self.answers.get(host, socket.gaierror(f"{host} is unknown"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def set_addresses(self, addresses: Collection[str]) -> None:
        self.told.append(list(addresses))

    async def asked_again(self, until: Until) -> None:
        """Waits until the present answer has reached the fleet."""
        asked, told = self.asked, len(self.told)
        await until(lambda: self.asked >= asked + 1 and len(self.told) >= told + 2)


@pytest.fixture
def dns(monkeypatch: pytest.MonkeyPatch) -> Dns:
    monkeypatch.setattr(discovery, "RESOLVE_INTERVAL", 0.005)
    return Dns()


def discover(dns: Dns, *workers: str, scenario: Callable[[], Awaitable[None]]) -> None:
    async def act() -> None:
        async with asyncio.timeout(TIMEOUT), discovered(dns, workers, dns.resolve):
            await scenario()

    asyncio.run(act())


def test_addresses_are_taken_as_they_are_and_once(dns: Dns) -> None:
    addresses = ["unix:/w", "10.0.0.1:1", "[fd00::1]:2", "unix-abstract:w"]

    async def scenario() -> None:
        assert dns.told == [addresses]

    discover(dns, *addresses, scenario=scenario)
    assert dns.asked == 0


def test_a_name_stands_for_all_its_addresses_of_both_versions(dns: Dns, until: Until) -> None:
    dns.answers["workers"] = ["10.0.0.2", "10.0.0.1", "fd00::1"]

    async def scenario() -> None:
        await dns.asked_again(until)
        assert dns.told[-1] == ["unix:/w", "10.0.0.1:7", "10.0.0.2:7", "[fd00::1]:7"]

    discover(dns, "unix:/w", "workers:7", scenario=scenario)


def test_addresses_that_come_and_go_are_told(dns: Dns, until: Until) -> None:
    async def scenario() -> None:
        for answer in (["10.0.0.1"], ["10.0.0.1", "10.0.0.2"], ["10.0.0.2"], []):
            dns.answers["workers"] = answer
            await dns.asked_again(until)
            assert dns.told[-1] == [f"{ip}:7" for ip in answer]

    discover(dns, "workers:7", scenario=scenario)


def test_a_name_that_cannot_be_resolved_at_the_start_is_waited_for(dns: Dns, until: Until) -> None:
    async def scenario() -> None:
        await dns.asked_again(until)
        assert dns.told[-1] == []
        dns.answers["workers"] = ["10.0.0.1"]
        await dns.asked_again(until)
        assert dns.told[-1] == ["10.0.0.1:7"]

    with capture_logs() as lines:
        discover(dns, "workers:7", scenario=scenario)
    assert [(line["event"], line["worker"]) for line in lines] == [
        ("worker not resolved", "workers:7")
    ]


@pytest.mark.parametrize(
    "failure", [socket.gaierror("try again"), UnicodeError("label too long")], ids=type
)
def test_a_name_that_cannot_be_resolved_any_more_keeps_its_addresses(
    dns: Dns, until: Until, failure: Exception
) -> None:
    dns.answers["workers"] = ["10.0.0.1"]

    async def scenario() -> None:
        await dns.asked_again(until)
        dns.answers["workers"] = failure
        await dns.asked_again(until)
        assert dns.told[-1] == ["10.0.0.1:7"]

    discover(dns, "workers:7", scenario=scenario)


def test_an_address_of_two_names_is_told_once(dns: Dns, until: Until) -> None:
    dns.answers |= {"a": ["10.0.0.1"], "b": ["10.0.0.1"]}

    async def scenario() -> None:
        await dns.asked_again(until)
        assert dns.told[-1] == ["10.0.0.1:7"]

    discover(dns, "a:7", "b:7", scenario=scenario)


def test_what_is_no_address_is_refused_by_name(dns: Dns) -> None:
    with pytest.raises(StartupError, match=r"worker: must be HOST:PORT .* got 'workers'"):
        discover(dns, "workers", scenario=lambda: asyncio.sleep(0))


def test_the_system_knows_this_machine() -> None:
    assert "127.0.0.1" in asyncio.run(discovery.resolve("localhost"))


# Workers that come and go.


class Links:
    """A fleet of fake workers, each at an address of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.stack = contextlib.AsyncExitStack()
        self.catalog = Catalog(["tiny"])
        self.fleet = Fleet(
            self.catalog,
            metrics=FleetMetrics(CollectorRegistry()),
            overload=OverloadGuard(30.0),
        )

    async def worker(self, name: str, at: str = "") -> FakeWorker:
        fake = FakeWorker(name, self._directory / (at or name), ["tiny"])
        self.stack.push_async_callback(fake.kill)
        await fake.start()
        return fake

    def names(self) -> list[str]:
        """The workers that answer."""
        return sorted(worker.name for worker in self.catalog.workers("tiny"))

    def generate(self) -> AsyncIterator[tuple[str, RunEvent]]:
        options = neutral_options(max_new_tokens=9)
        return self.fleet.run(RunRequest(model="tiny", token_ids=[1], options=options), None)

    async def worker_of_a_run(self) -> str:
        return [name async for name, _ in self.generate()][-1]


@pytest.fixture
def link(sockets: Path) -> Callable[[Callable[[Links], Awaitable[None]]], None]:
    """Plays a scenario with a fleet."""

    def play(scenario: Callable[[Links], Awaitable[None]]) -> None:
        async def act() -> None:
            links = Links(sockets)
            async with asyncio.timeout(TIMEOUT), links.stack, links.fleet.connected():
                await scenario(links)

        asyncio.run(act())

    return play


Link = Any


def test_a_worker_that_is_added_serves(link: Link, until: Until) -> None:
    async def scenario(links: Links) -> None:
        first, second = await links.worker("a"), await links.worker("b")
        links.fleet.set_addresses([first.address])
        await until(lambda: links.names() == ["a"])
        links.fleet.set_addresses([first.address, second.address])
        await until(lambda: links.names() == ["a", "b"])

    link(scenario)


def test_a_worker_whose_address_vanished_serves_until_it_ends(link: Link, until: Until) -> None:
    async def scenario(links: Links) -> None:
        worker = await links.worker("a")
        links.fleet.set_addresses([worker.address])
        await until(lambda: links.names() == ["a"])
        links.fleet.set_addresses([])
        assert await links.worker_of_a_run() == "a"
        await worker.kill()
        await until(lambda: links.names() == [])
        # Nobody asks there any more.
        told = worker.told
        await worker.start()
        successor = await links.worker("b")
        links.fleet.set_addresses([successor.address])
        await until(lambda: links.names() == ["b"])
        assert worker.told == told

    link(scenario)


def test_a_worker_whose_address_vanished_may_end_its_runs_when_it_drains(
    link: Link, until: Until
) -> None:
    async def scenario(links: Links) -> None:
        worker = await links.worker("a")
        worker.script.insert(1, worker.hold)
        links.fleet.set_addresses([worker.address])
        events = links.generate()
        await anext(events)
        links.fleet.set_addresses([])
        await worker.drain()
        await until(lambda: links.names() == [])
        worker.released.set()
        rest = [event async for _, event in events]
        assert isinstance(rest[-1], RunCompletion)
        assert len(worker.requests) == 1

    link(scenario)


def test_a_worker_whose_address_is_back_before_it_ended_is_kept(link: Link, until: Until) -> None:
    async def scenario(links: Links) -> None:
        worker = await links.worker("a")
        for addresses in ([worker.address], [], [worker.address]):
            links.fleet.set_addresses(addresses)
            await until(lambda: links.names() == ["a"])
        await worker.kill()
        await until(lambda: links.names() == [])
        await worker.start()
        await until(lambda: links.names() == ["a"])

    link(scenario)


def test_a_successor_of_the_same_name_may_stand_beside_a_worker(link: Link, until: Until) -> None:
    async def scenario(links: Links) -> None:
        old, new = await links.worker("a"), await links.worker("a", at="a2")
        links.fleet.set_addresses([old.address, new.address])
        await until(lambda: links.names() == ["a", "a"])
        await old.drain()
        await until(lambda: links.names() == ["a"])
        assert await links.worker_of_a_run() == "a"
        assert (len(old.requests), len(new.requests)) == (0, 1)

    link(scenario)


def test_a_worker_with_two_addresses_is_one_worker(link: Link, until: Until, sockets: Path) -> None:
    async def scenario(links: Links) -> None:
        worker = await links.worker("a")
        other = await worker.also_at(sockets / "other")
        links.fleet.set_addresses([worker.address, other])
        await until(lambda: worker.told >= 2 and links.names())
        assert links.names() == ["a"]
        # Found by either of the two.
        links.fleet.set_addresses([other])
        await worker.change()
        await until(lambda: worker.told >= 4)
        assert links.names() == ["a"]

    link(scenario)
