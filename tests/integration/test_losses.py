"""Workers die, freeze, are cut off or are stopped under load: no request fails, none changes."""

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode

from harness.proxy import Proxy
from harness.service import GOLDENS, LOCAL, Daemon, Service, process_exists, serving
from harness.waiting import TIMEOUT, wait_until
from shaperouter import Client, Graph

MODEL = f"--model=endless={GOLDENS / 'gpt2-untied'}"
WORKERS, ROUTERS, STREAMS = 3, 2, 30
# As long as the model lets them be, so as to be met in the middle; it has no end token.
LONG = 120
KINDS: list[dict[str, Any]] = [
    {"max_new_tokens": LONG},
    {"max_new_tokens": LONG, "do_sample": True, "temperature": 1.2, "logprobs": 1},
    {"max_new_tokens": LONG // 2, "num_beams": 4},
]
# Seconds. Every worker compiles what it needs, all on the same few cores.
PATIENCE = 500.0
REASONS = ("lost", "hung", "draining")


class Worker(Daemon):
    """A worker, and the network in front of it."""

    def __init__(self, name: str, directory: Path) -> None:
        path = directory / f"{name}.sock"
        self.name = name
        self.proxy = Proxy(path)
        super().__init__(
            "worker",
            MODEL,
            f"--name={name}",
            f"--listen=unix:{path}",
            "--metrics-listen=off",
            "--slots=2",
        )

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def close(self) -> None:
        self.signal(signal.SIGCONT)
        super().close()
        self.proxy.close()


class Cluster:
    """Workers, routers in front of all of them, and clients of those."""

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
        """Waits until every router uses so many workers."""
        wait_until(
            lambda: all(client.model("endless").ready_workers == count for client in self.clients)
        )

    def resumed(self) -> dict[str, float]:
        """Runs that went on elsewhere, by reason."""
        return {
            reason: sum(
                router.metric("shaperouter_runs_resumed_total", reason=reason)
                for router in self.routers
            )
            for reason in REASONS
        }

    def generate(self, disturb: Callable[[], None] = lambda: None) -> list[tuple[Any, ...]]:
        """Runs many requests at once, disturbs them in the middle, and returns their tokens."""
        flowing = threading.Semaphore(0)

        def stream(index: int) -> tuple[Any, ...]:
            options = KINDS[index % len(KINDS)] | {"seed": index}
            client = self.clients[index % ROUTERS]
            with client.stream([1 + index % 5, 2, 3], timeout=PATIENCE, **options) as deltas:
                for place, delta in enumerate(deltas):
                    if place == 0 and delta.token_ids:
                        flowing.release()
            return tuple(deltas.result.token_ids)

        with ThreadPoolExecutor(STREAMS) as pool:
            calls = [pool.submit(stream, index) for index in range(STREAMS // 2)]
            # Slots are fewer than streams: some run, and some wait.
            for _ in range(STREAMS // 6):
                flowing.acquire()
            disturb()
            # Nobody knows yet, so that these go to every worker.
            calls += [pool.submit(stream, index) for index in range(STREAMS // 2, STREAMS)]
            return [call.result() for call in calls]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        yield Cluster(stack)


def test_routers_that_share_nothing_have_a_graph_made_on_the_same_worker(cluster: Cluster) -> None:
    wanted = [f"endless decode 2x{length}" for length in (64, 128)]

    def warm(client: Client) -> list[Graph]:
        with client.warm_graphs(wanted) as steps:
            *_, graphs = steps
        return graphs

    with ThreadPoolExecutor(ROUTERS) as pool:
        found = list(pool.map(warm, cluster.clients))
    assert [graph.worker for graph in found[0]] == [graph.worker for graph in found[1]]
    made = [graph for graph in cluster.clients[0].graphs() if str(graph.signature) in wanted]
    assert sorted(str(graph.signature) for graph in made) == sorted(wanted)
    assert [graph.compiles for graph in made] == [1, 1]


def test_a_frozen_worker_costs_nobody_a_token_and_is_used_again(cluster: Cluster) -> None:
    frozen = cluster.workers[0]
    tokens = cluster.generate(lambda: frozen.signal(signal.SIGSTOP))
    assert tokens == cluster.expected
    frozen.signal(signal.SIGCONT)
    cluster.wait_for_workers(WORKERS)
    assert cluster.generate() == cluster.expected


def test_a_worker_that_is_cut_off_costs_nobody_a_token_and_is_used_again(cluster: Cluster) -> None:
    cut = cluster.workers[1]
    tokens = cluster.generate(cut.proxy.cut)
    assert tokens == cluster.expected
    cut.proxy.mend()
    cluster.wait_for_workers(WORKERS)
    assert cluster.generate() == cluster.expected


def test_a_worker_that_is_stopped_costs_nobody_a_token(cluster: Cluster) -> None:
    stopped = cluster.workers[2]
    tokens = cluster.generate(lambda: stopped.signal(signal.SIGTERM))
    assert tokens == cluster.expected
    assert stopped.process.wait(TIMEOUT) == 0
    cluster.wait_for_workers(WORKERS - 1)


def test_a_worker_that_is_killed_costs_nobody_a_token(cluster: Cluster) -> None:
    killed = cluster.workers[1]
    tokens = cluster.generate(lambda: killed.signal(signal.SIGKILL))
    assert tokens == cluster.expected
    # Which worker was met in the middle of what, routing decides; some were.
    assert sum(cluster.resumed().values()) > 0
    for router in cluster.routers:
        assert router.metric("shaperouter_requests_total", code="OK") == sum(
            router.metric("shaperouter_requests_total", code=code.name) for code in StatusCode
        )


def test_a_local_worker_that_hangs_is_replaced_and_its_stream_goes_on() -> None:
    with serving(MODEL, "--hang-timeout=4") as service, Client(service.address) as client:
        whole = client.generate([1, 2], **KINDS[0])
        pid = service.worker_pid()
        with client.stream([1, 2], **KINDS[0]) as stream:
            first = next(stream)
            os.kill(pid, signal.SIGSTOP)
            tokens = [*first.token_ids, *(t for delta in stream for t in delta.token_ids)]
        assert tokens == list(whole.token_ids)
        assert service.wait_for_log("worker hung")["worker"] == "worker-0"
        assert not process_exists(pid)
