"""How the end of a stream of runs reaches its runs."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from grpc import StatusCode, aio

from shaperouter.v1 import worker_pb2
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
