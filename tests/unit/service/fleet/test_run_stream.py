"""How the end of a stream of runs reaches its runs, and what it leaves behind."""

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from grpc import StatusCode, aio

from harness.router import wait_until
from shaperouter.v1 import worker_pb2, worker_pb2_grpc
from shaperouter_service.errors import Code, RelayedError
from shaperouter_service.fleet.run_stream import RunStream


class EndedCall:
    """A call that sends nothing and ends, with an error if there is one."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def __aiter__(self) -> AsyncIterator[worker_pb2.RunsResponse]:
        for response in ():
            yield response
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        pass


def rpc_error(code: StatusCode) -> aio.AioRpcError:
    return aio.AioRpcError(code, aio.Metadata(), aio.Metadata(), details="why")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, Code.CANCELLED),  # the worker drains
        (rpc_error(StatusCode.CANCELLED), Code.CANCELLED),
        (rpc_error(StatusCode.UNAVAILABLE), Code.UNAVAILABLE),
        # gRPC's own code for a connection that breaks during a write.
        (rpc_error(StatusCode.INTERNAL), Code.UNAVAILABLE),
    ],
    ids=["clean", "cancelled", "unavailable", "broken write"],
)
def test_runs_learn_whether_their_worker_drains_or_is_lost(
    error: Exception | None, code: Code
) -> None:
    async def read() -> None:
        stub: Any = SimpleNamespace(Runs=lambda _: EndedCall(error))
        run = RunStream(stub).start(worker_pb2.RunRequest(), seconds_left=None, trace_context={})
        await run.read()

    with pytest.raises(RelayedError) as caught:
        asyncio.run(read())
    assert caught.value.code is code


class DrainingWorker(worker_pb2_grpc.WorkerServiceServicer):
    """A worker that ends each stream of runs at once."""

    async def Runs(  # noqa: N802 (gRPC's name)
        self, requests: AsyncIterator[worker_pb2.RunsRequest], context: object
    ) -> None:
        pass


def test_python_finds_nothing_that_waits_after_a_worker_has_ended_a_stream(tmp_path: Path) -> None:
    failures: list[dict[str, Any]] = []

    async def begin_and_wait_for_end(channel: aio.Channel) -> None:
        stream = RunStream(worker_pb2_grpc.WorkerServiceStub(channel))
        await asyncio.wait_for(wait_until(lambda: stream.has_ended), 60)

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(what))
        server = aio.server()
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(DrainingWorker(), server)
        server.add_insecure_port(f"unix:{tmp_path / 'worker'}")
        await server.start()
        async with aio.insecure_channel(f"unix:{tmp_path / 'worker'}") as channel:
            await begin_and_wait_for_end(channel)
            # It reports tasks that it collects while they wait.
            gc.collect()
        await server.stop(None)

    asyncio.run(scenario())
    # gRPC's queue may report that the loop of an earlier test is closed.
    assert [failure for failure in failures if failure.keys() & {"task", "asyncgen"}] == []
