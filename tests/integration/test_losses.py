"""Workers die, freeze, disconnect or stop under load; no request fails or changes."""

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import StatusCode

from harness.proxy import Proxy
from harness.service import (
    GOLDENS,
    LOCAL,
    Daemon,
    Service,
    kept_compilations,
    process_exists,
    serving,
)
from harness.waiting import wait_until
from shaperouter import Client, Graph
from shaperouter.v1 import worker_pb2, worker_pb2_grpc

MODEL = f"--model=endless={GOLDENS / 'gpt2-untied'}"
WORKERS, ROUTERS = 3, 2
# Streams that run when a worker is disturbed, and streams that arrive before the router notices.
STREAMS, LATECOMERS = 30, 10
# As long as the model allows, so that the disturbance hits them midway; it has no end token.
LONG = 120
KINDS: list[dict[str, Any]] = [
    {"max_new_tokens": LONG},
    {"max_new_tokens": LONG, "do_sample": True, "temperature": 1.2, "logprobs": 1},
    {"max_new_tokens": LONG // 2, "num_beams": 4},
]
# Reasons for which a router may drop a silent worker, whichever it notices first: no messages, or
# no acknowledgement of what it sends.
UNHEARD = ("hung", "lost")
# Seconds. Every worker compiles what it needs, all on the same few cores.
PATIENCE = 500.0


class Worker(Daemon):
    """A worker, and the network in front of it."""

    def __init__(self, name: str, directory: Path) -> None:
        path = directory / f"{name}.sock"
        self.name = name
        self.proxy = Proxy(path)
        self._socket = f"unix:{path}"
        super().__init__(
            "worker",
            MODEL,
            f"--name={name}",
            f"--listen=unix:{path}",
            "--metrics-listen=off",
            "--slots=2",
            env=kept_compilations(),
        )

    def queued(self) -> int:
        """Number of runs that wait for a slot, as the worker reports it."""
        with grpc.insecure_channel(self._socket) as channel:
            stub = worker_pb2_grpc.WorkerServiceStub(channel)
            snapshot = next(stub.Watch(worker_pb2.WatchRequest()))
        return sum(lane.queued for lane in snapshot.lanes)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def close(self) -> None:
        self.signal(signal.SIGCONT)
        super().close()
        self.proxy.close()


class Cluster:
    """Workers, routers in front of them, and clients of the routers."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.workers = [Worker(f"w{index}", directory) for index in range(WORKERS)]
        for worker in self.workers:
            stack.callback(worker.close)
        # By name and by address.
        self.routers = []
        for host in ("localhost", "127.0.0.1"):
            addresses = [f"--worker={host}:{worker.proxy.port}" for worker in self.workers]
            router = Service(
                "router", MODEL, *addresses, f"--listen={LOCAL}", f"--metrics-listen={LOCAL}"
            )
            stack.callback(router.close)
            router.wait_until_ready()
            self.routers.append(router)
        self.clients = [stack.enter_context(Client(router.address)) for router in self.routers]
        self.wait_for_workers(WORKERS)
        self.expected = self.generate()

    def wait_for_workers(self, count: int) -> None:
        """Waits until every router uses this many workers."""
        wait_until(
            lambda: all(client.model("endless").ready_workers == count for client in self.clients)
        )

    def resumed(self, *reasons: str) -> float:
        """Number of runs so far that continued elsewhere for one of these reasons."""
        return sum(
            router.metric("shaperouter_runs_resumed_total", reason=reason)
            for router in self.routers
            for reason in reasons
        )

    def running(self) -> list[Worker]:
        """The workers whose processes are alive."""
        return [worker for worker in self.workers if worker.process.poll() is None]

    def generate(self, disturb: Callable[[Worker], None] | None = None) -> list[tuple[Any, ...]]:
        """Runs many requests at once, disturbs a busy worker, and returns the requests' tokens.

        Args:
            disturb: Disturbs the worker, which has runs with a slot and runs without.
        """
        flowing = threading.Semaphore(0)

        def stream(index: int) -> tuple[Any, ...]:
            options = KINDS[index % len(KINDS)] | {"seed": index}
            client = self.clients[index % ROUTERS]
            with client.stream([1 + index % 5, 2, 3], timeout=PATIENCE, **options) as deltas:
                for place, delta in enumerate(deltas):
                    if place == 0 and delta.token_ids:
                        flowing.release()
            return tuple(deltas.result.token_ids)

        with ThreadPoolExecutor(STREAMS + LATECOMERS) as pool:
            calls = [pool.submit(stream, index) for index in range(STREAMS)]
            for _ in range(WORKERS):
                flowing.acquire()
            if disturb:
                disturb(self._busiest())
            # No router has noticed yet, so these go to every worker.
            calls += [pool.submit(stream, STREAMS + index) for index in range(LATECOMERS)]
            return [call.result() for call in calls]

    def _busiest(self) -> Worker:
        """The worker with the longest queue; waits until there is a queue."""
        queued: dict[Worker, int] = {}

        def waiting() -> bool:
            queued.update({worker: worker.queued() for worker in self.running()})
            return any(queued.values())

        wait_until(waiting)
        return max(queued, key=lambda worker: queued[worker])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        yield Cluster(stack)


def test_independent_routers_request_a_graph_on_the_same_worker(cluster: Cluster) -> None:
    wanted = [f"endless decode 2x{length}" for length in (64, 128)]

    def warm(client: Client) -> list[Graph]:
        with client.warm_graphs(wanted) as steps:
            *_, graphs = steps
        return graphs

    with ThreadPoolExecutor(ROUTERS) as pool:
        found = list(pool.map(warm, cluster.clients))
    assert [graph.worker for graph in found[0]] == [graph.worker for graph in found[1]]

    def made() -> list[Graph]:
        graphs = cluster.clients[0].graphs()
        # Cold ones would have served requests on other workers.
        asked = [graph for graph in graphs if str(graph.signature) in wanted]
        return [graph for graph in asked if graph.state != "cold"]

    # A router that does not hear from a busy worker for a while ends its part of the warm-up; the
    # worker still makes the graph.
    wait_until(lambda: [graph.state for graph in made()] == ["ready"] * len(wanted))
    assert sorted(str(graph.signature) for graph in made()) == sorted(wanted)
    assert [graph.compiles + graph.loads for graph in made()] == [1, 1]


def test_a_frozen_worker_loses_no_token_and_is_used_again(cluster: Cluster) -> None:
    before = cluster.resumed(*UNHEARD)
    try:
        assert cluster.generate(lambda worker: worker.signal(signal.SIGSTOP)) == cluster.expected
    finally:
        for worker in cluster.workers:
            worker.signal(signal.SIGCONT)
    assert cluster.resumed(*UNHEARD) > before
    cluster.wait_for_workers(WORKERS)
    assert cluster.generate() == cluster.expected


def test_a_disconnected_worker_loses_no_token_and_is_used_again(cluster: Cluster) -> None:
    before = cluster.resumed(*UNHEARD)
    try:
        assert cluster.generate(lambda worker: worker.proxy.cut()) == cluster.expected
    finally:
        for worker in cluster.workers:
            worker.proxy.mend()
    assert cluster.resumed(*UNHEARD) > before
    cluster.wait_for_workers(WORKERS)
    assert cluster.generate() == cluster.expected


def test_a_stopped_worker_loses_no_token(cluster: Cluster) -> None:
    before = cluster.resumed("draining")
    assert cluster.generate(lambda worker: worker.signal(signal.SIGTERM)) == cluster.expected
    assert cluster.resumed("draining") > before
    cluster.wait_for_workers(WORKERS - 1)
    wait_until(lambda: len(cluster.running()) == WORKERS - 1)
    (stopped,) = set(cluster.workers) - set(cluster.running())
    assert stopped.process.returncode == 0


def test_a_killed_worker_loses_no_token(cluster: Cluster) -> None:
    before = cluster.resumed("lost")
    assert cluster.generate(lambda worker: worker.signal(signal.SIGKILL)) == cluster.expected
    assert cluster.resumed("lost") > before
    for router in cluster.routers:
        assert router.metric("shaperouter_requests_total", code="OK") == sum(
            router.metric("shaperouter_requests_total", code=code.name) for code in StatusCode
        )


def test_a_local_worker_that_hangs_is_replaced_and_its_stream_continues() -> None:
    with (
        serving(MODEL, "--hang-timeout=4", env=kept_compilations()) as service,
        Client(service.address) as client,
    ):
        whole = client.generate([1, 2], **KINDS[0])
        with client.stream([1, 2], **KINDS[0]) as stream:
            first = next(stream)
            pid = service.worker_pid()
            os.kill(pid, signal.SIGSTOP)
            tokens = [*first.token_ids, *(t for delta in stream for t in delta.token_ids)]
        assert tokens == list(whole.token_ids)
        assert service.wait_for_log("worker hung")["worker"] == "worker-0"
        wait_until(lambda: not process_exists(pid))


@pytest.mark.parametrize("family", ["qwen3", "marian"])
def test_runs_of_a_family_continue_in_a_new_worker(family: str) -> None:
    """With rotary positions and grouped queries; with an encoder."""
    limits = {"max_new_tokens": LONG // 2, "min_new_tokens": LONG // 2}

    def stream(client: Client, index: int, flowing: threading.Event) -> tuple[int, ...]:
        # Without beam searches, which start again.
        options = KINDS[index % 2] | limits | {"seed": index}
        with client.stream([2 + index % 5, 7, 3], timeout=PATIENCE, **options) as deltas:
            for delta in deltas:
                if delta.token_ids:
                    flowing.set()
        return tuple(deltas.result.token_ids)

    def streams(client: Client, disturb: Callable[[], None] | None = None) -> list[Any]:
        flowing = threading.Event()
        with ThreadPoolExecutor(LATECOMERS) as pool:
            calls = [pool.submit(stream, client, index, flowing) for index in range(LATECOMERS)]
            assert flowing.wait(PATIENCE)
            if disturb:
                disturb()
            return [call.result() for call in calls]

    with (
        serving(
            f"--model={family}={GOLDENS / family}", "--slots=2", env=kept_compilations()
        ) as service,
        Client(service.address) as client,
    ):
        expected = streams(client)
        for answers in service.losing_worker(partial(streams, client)):
            assert answers == expected
