"""Thousands of calls at once: each must be answered, or refused with a time to try again.

    make flood

Calls the embedded model through a real service, from several connections, while a probe checks the
service's health. Prints how the calls ended, the probe's longest wait and the router's memory.
Exits with 1 if a call was neither answered nor refused with RetryInfo.
"""

import argparse
import asyncio
import contextlib
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from google.rpc import error_details_pb2
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from rich.console import Console
from rich.table import Table

from harness.service import serving
from shaperouter.v1 import generation_pb2, generation_pb2_grpc

ANSWERED, REFUSED = "answered", "refused, with RetryInfo"
# Otherwise all channels to an address share one connection.
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


def memory_mb(pid: int, field: str) -> float:
    """A memory size of a process from the kernel, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024 / 1e6


def outcome(error: aio.AioRpcError) -> str:
    """The outcome of a call that was not answered."""
    status = rpc_status.from_call(error)
    details = status.details if status else ()
    if any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in details):
        return REFUSED
    return f"{error.code().name}, without RetryInfo: {error.details()}"


@contextlib.asynccontextmanager
async def probing(address: str) -> AsyncIterator[list[float]]:
    """Polls the health service inside of the context; collects the seconds of each answer."""
    waits: list[float] = []

    async def probe() -> None:
        async with aio.insecure_channel(address, OWN_CONNECTION) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            while True:
                began = time.monotonic()
                await stub.Check(health_pb2.HealthCheckRequest(service="liveness"))
                waits.append(time.monotonic() - began)
                await asyncio.sleep(0.05)

    task = asyncio.create_task(probe())
    try:
        yield waits
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def flood(address: str, calls: int, connections: int, tokens: int) -> Counter[str]:
    """Makes all calls at once; returns their outcomes."""
    request = generation_pb2.GenerateRequest(
        token_ids=generation_pb2.TokenIds(ids=[1, 2, 3]),
        options=generation_pb2.GenerationOptions(max_new_tokens=tokens),
    )
    outcomes: Counter[str] = Counter()

    async def call(stub: generation_pb2_grpc.GenerationServiceStub) -> None:
        try:
            await stub.Generate(request)
        except aio.AioRpcError as error:
            outcomes[outcome(error)] += 1
        else:
            outcomes[ANSWERED] += 1

    async with contextlib.AsyncExitStack() as stack:
        stubs = []
        for _ in range(connections):
            channel = aio.insecure_channel(address, OWN_CONNECTION)
            await stack.enter_async_context(channel)
            await channel.channel_ready()
            stubs.append(generation_pb2_grpc.GenerationServiceStub(channel))
        await asyncio.gather(*(call(stubs[index % connections]) for index in range(calls)))
    return outcomes


async def measure(address: str, pid: int, options: argparse.Namespace) -> int:
    """Floods a running service, and prints the outcomes."""
    before = memory_mb(pid, "VmRSS")
    async with probing(address) as waits:
        began = time.monotonic()
        outcomes = await flood(address, options.calls, options.connections, options.tokens)
        seconds = time.monotonic() - began
    table = Table("", "")
    for name, count in outcomes.most_common():
        table.add_row(name, f"{count}")
    table.add_row("seconds", f"{seconds:.1f}")
    table.add_row("longest wait of a health check, seconds", f"{max(waits):.2f}")
    table.add_row("router's memory before, MB", f"{before:.0f}")
    table.add_row("router's memory at most, MB", f"{memory_mb(pid, 'VmHWM'):.0f}")
    Console().print(table)
    return 0 if set(outcomes) <= {ANSWERED, REFUSED} else 1


def main() -> int:
    """Starts a service and floods it."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=8, help="tokens requested by each call")
    options = parser.parse_args()
    with serving() as service:
        return asyncio.run(measure(service.address, service.process.pid, options))


if __name__ == "__main__":
    sys.exit(main())
