"""Cost of texts that are too long, for small requests and for the router's memory.

A service of the demo model answers small requests repeatedly: first alone, then beside a client
that repeatedly sends 24 prompts at once, of 4 MB, of 1 MB, or of the longest size that is still
tokenized (and then refused). The prompts consist of text that is slow to tokenize. The small
requests come first from a separate client, then from the client with the long texts.

Run by ``make bench-texts``.
"""

import argparse
import asyncio
import itertools
import multiprocessing
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event

import grpc
import psutil
from grpc import aio

from common.tables import Table, quantile
from common.terminal import console
from harness.service import Service, kept_compilations, serving
from shaperouter.v1 import generation_pb2, generation_pb2_grpc, model_pb2, model_pb2_grpc

GENERATE = "/shaperouter.v1.GenerationService/Generate"
CLIENT_KEY = "x-client-id"
SMALL, LARGE = "small", "large"
AT_ONCE = 24
# Bytes of texts that are too long. With the rest of a message, these are 4 MiB, which gRPC refuses,
# and 1 MiB, the maximum that the service reads.
LARGEST = "4 MB"
SIZES = {LARGEST: 4 * 2**20 - 256, "1 MB": 2**20 - 256}
SMALL_TEXT, SMALL_TOKENS = "TensorFlow is a library", 8
# The targets: times the usual latency, and times the usual memory.
MAX_RATIO, MAX_MEMORY_RATIO = 1.5, 2.0
SEED = 1
REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)

# Characters of each kind of text. Characters that are tokens, text without spaces, characters of
# several bytes, and characters that a normalizer would drop or compose.
TEXTS: dict[str, Callable[[random.Random], str]] = {
    "spaces": lambda _: " ",
    "one word": lambda _: "a",
    "accents": lambda _: "\N{COMBINING ACUTE ACCENT}",
    "any": lambda source: chr(source.randrange(0x20, 0xD800)),
}


@dataclass(frozen=True, kw_only=True)
class Found:
    """The times of small requests beside long texts.

    Attributes:
        seconds: Latency of each small request.
        peak_bytes: Largest resident memory of the router.
        ended: Requests with long texts that were refused.
    """

    seconds: Sequence[float]
    peak_bytes: int
    ended: int


def main() -> int:
    """Measures and prints the results; returns 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="make bench-texts", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="for each row (default: 5)")
    arguments = parser.parse_args()
    with serving("--model=demo", env=kept_compilations()) as service:
        return _measure(service, arguments.seconds)


def _measure(service: Service, seconds: float) -> int:
    router = psutil.Process(service.process.pid)
    with grpc.insecure_channel(service.address) as channel:
        model = model_pb2_grpc.ModelServiceStub(channel).GetModel(model_pb2.GetModelRequest())
    longest = (model.model.max_length - 1) * model.model.characters_per_token
    _small_requests(service.address, SMALL, seconds)  # warms up
    usual_seconds = statistics.median(_small_requests(service.address, SMALL, seconds))
    usual_bytes = router.memory_info().rss
    rows, missed = [], False
    # The largest come first, because a process may keep memory that it once had.
    for (size, length), (kind, make), client in itertools.product(
        [*SIZES.items(), ("admitted", longest)], TEXTS.items(), (SMALL, LARGE)
    ):
        text = _text(make, length, in_bytes=size in SIZES)
        found = _beside(service.address, router, text, client, seconds)
        ratio = statistics.median(found.seconds) / usual_seconds
        memory = found.peak_bytes / usual_bytes
        # Texts that are read, or even tokenized, take a share of the machine at this rate.
        missed = missed or (size == LARGEST and (ratio > MAX_RATIO or memory > MAX_MEMORY_RATIO))
        rows.append(
            [
                kind,
                size,
                f"{len(text):,}",
                "the same" if client == LARGE else "another",
                f"{ratio:.2f}",
                f"{quantile(found.seconds, 0.95) / usual_seconds:.2f}",
                f"{max(found.seconds) * 1e3:.0f}",
                f"{memory:.2f}",
                f"{found.ended / seconds:.0f}",
            ]
        )
    Table(
        title=f"Small requests beside {AT_ONCE} texts at once; usually "
        f"{usual_seconds * 1e3:.1f} ms, and the router has {usual_bytes / 2**20:.0f} MiB",
        head=["text", "size", "characters", "client", "p50 ratio", "p95 ratio", "longest, ms",
              "memory", "texts per second"],
        rows=rows,
        note=f"Targets beside texts of {LARGEST}: {MAX_RATIO:g} times the latency (median) and "
        f"{MAX_MEMORY_RATIO:g} times the memory.",
    ).show(console)  # fmt: skip
    return int(missed)


def _text(make: Callable[[random.Random], str], length: int, *, in_bytes: bool) -> str:
    source = random.Random(SEED)
    text = "".join(make(source) for _ in range(length))
    if in_bytes:
        text = text.encode()[:length].decode(errors="ignore")
    return text


def _beside(address: str, router: psutil.Process, text: str, client: str, seconds: float) -> Found:
    message = generation_pb2.GenerateRequest(
        text=text, options=generation_pb2.GenerationOptions(max_new_tokens=1)
    ).SerializeToString()
    # A separate process, so that sending texts does not delay the measurements.
    stop, told = multiprocessing.Event(), multiprocessing.SimpleQueue()
    sender = multiprocessing.Process(target=_send, args=(address, message, stop, told))
    with _peak_of(router) as peak:
        sender.start()
        told.get()
        measured = _small_requests(address, client, seconds)
        stop.set()
        ended = told.get()
        sender.join()
    return Found(seconds=measured, peak_bytes=max(peak), ended=ended)


def _small_requests(address: str, client: str, seconds: float) -> list[float]:
    request = generation_pb2.GenerateRequest(
        text=SMALL_TEXT, options=generation_pb2.GenerationOptions(max_new_tokens=SMALL_TOKENS)
    )
    taken = []
    with grpc.insecure_channel(address) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            stub.Generate(request, metadata=((CLIENT_KEY, client),))
            taken.append(time.monotonic() - began)
    return taken


def _send(address: str, message: bytes, stop: Event, told: "SimpleQueue[int]") -> None:
    """Runs the process that sends many long texts at once until it is stopped."""

    async def one(channel: aio.Channel) -> None:
        call = channel.unary_unary(GENERATE)(message, metadata=((CLIENT_KEY, LARGE),))
        code = await call.code()
        assert code in REFUSED, code

    async def send() -> None:
        ended = 0
        async with aio.insecure_channel(address) as channel:
            await channel.channel_ready()
            told.put(ended)
            while not stop.is_set():
                await asyncio.gather(*(one(channel) for _ in range(AT_ONCE)))
                ended += AT_ONCE
        told.put(ended)

    asyncio.run(send())


@contextmanager
def _peak_of(process: psutil.Process) -> Iterator[list[int]]:
    """Samples resident memory, in bytes, inside of the context."""
    samples, ended = [process.memory_info().rss], threading.Event()

    def sample() -> None:
        while not ended.wait(0.01):
            samples.append(process.memory_info().rss)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    # Started afresh: gRPC does not survive a fork.
    multiprocessing.set_start_method("spawn")
    sys.exit(main())
