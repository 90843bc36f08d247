"""The processes, each on its cores."""

import contextlib
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from harness.waiting import TIMEOUT, wait_until

from .answers import MODEL, TOKENIZER
from .proxy import serve_proxy

CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
READY = '"event": "ready"'


@dataclass(frozen=True, kw_only=True)
class Routed:
    """The target of requests.

    Attributes:
        address: Address of its gRPC server.
        pid: Its process id.
        http_port: Its port for HTTP; 0 for none.
    """

    address: str
    pid: int
    http_port: int = 0


@contextlib.contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """Runs processes started inside of the context on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def working(directory: Path) -> Iterator[int]:
    """Runs the worker, and yields its process id."""
    with _spawned(_serve_worker, [directory / "worker"]) as pid:
        yield pid


@contextlib.contextmanager
def proxying(directory: Path, core: int) -> Iterator[Routed]:
    """Runs the proxy on its own core."""
    address = f"unix:{directory / 'proxy'}"
    with contextlib.ExitStack() as stack:
        with pinned({core}):
            pid = stack.enter_context(
                _spawned(serve_proxy, [address, f"unix:{directory / 'worker'}"])
            )
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(TIMEOUT)
        yield Routed(address=address, pid=pid)


@contextlib.contextmanager
def routing(directory: Path, core: int, *, profile: Path | None = None) -> Iterator[Routed]:
    """Runs the router on its own core; with a profile it is slow."""
    profiler = ["-m", "cProfile", "-o", str(profile)] if profile else []
    address, log = f"unix:{directory / 'router'}", directory / "router.log"
    with pinned({core}), log.open("w") as writing:
        process = subprocess.Popen(
            [
                sys.executable,
                *profiler,
                "-m",
                "shaperouter_service",
                "router",
                f"--model={MODEL}={_conversing(directory / 'model')}",
                f"--worker=unix:{directory / 'worker'}",
                f"--listen={address}",
                "--http-listen=127.0.0.1:0",
                "--metrics-listen=127.0.0.1:0",
            ],
            stderr=writing,
            # More requests run than the worker has slots; none of them is refused.
            env=os.environ | {"SHAPEROUTER_MAX_QUEUE_SECONDS": "1000000"},
        )

    def ready() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"the router has ended: {log.read_text()}")
        return READY in log.read_text()

    try:
        wait_until(ready)
        lines = [json.loads(line) for line in log.read_text().splitlines() if "{" in line]
        (port,) = [line["http_port"] for line in lines if line["event"] == "listening"]
        yield Routed(address=address, pid=process.pid, http_port=port)
    finally:
        process.terminate()
        process.wait(TIMEOUT)


def _conversing(directory: Path) -> Path:
    """Copies the tokenizer's checkpoint, and gives it the chat template that it lacks."""
    shutil.copytree(TOKENIZER, directory, dirs_exist_ok=True)
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return directory


def _serve_worker(address: Path) -> None:
    # Imported here, because only the worker's process needs TensorFlow.
    from .worker import serve_worker

    serve_worker(address)


@contextlib.contextmanager
def _spawned(target: Callable[..., None], arguments: Sequence[object]) -> Iterator[int]:
    """Another process of this program; yields its id."""
    process = multiprocessing.get_context("spawn").Process(
        target=target, args=arguments, daemon=True
    )
    process.start()
    assert process.pid
    try:
        yield process.pid
    finally:
        process.terminate()
        process.join()
