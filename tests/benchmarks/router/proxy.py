"""The minimum cost of a router in Python: it only forwards the worker's events."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from grpc import aio

from shaperouter.v1 import generation_pb2, generation_pb2_grpc, worker_pb2, worker_pb2_grpc

from .worker import MODEL

PROMPT_TOKENS = range(16)


class Proxy(generation_pb2_grpc.GenerationServiceServicer):
    """Turns events of a run into events of a generation."""

    def __init__(self, worker: worker_pb2_grpc.WorkerServiceStub) -> None:
        self._worker = worker

    async def Generate(  # noqa: N802 (gRPC's name)
        self, request: generation_pb2.GenerateRequest, context: Any
    ) -> generation_pb2.GenerateResponse:
        sequence = generation_pb2.Sequence()
        async for event in self._run(tokens_interval_seconds=1):
            sequence.token_ids.extend(event.tokens.token_ids)
        return generation_pb2.GenerateResponse(sequences=[sequence])

    async def GenerateStream(  # noqa: N802 (gRPC's name)
        self, request: generation_pb2.GenerateStreamRequest, context: Any
    ) -> AsyncIterator[generation_pb2.GenerateStreamResponse]:
        async for event in self._run():
            delta = generation_pb2.Delta(token_ids=event.tokens.token_ids)
            yield generation_pb2.GenerateStreamResponse(delta=delta)

    def _run(self, **fields: Any) -> Any:
        request = worker_pb2.RunRequest(model=MODEL, token_ids=PROMPT_TOKENS, **fields)
        return self._worker.Run(request)


def serve_proxy(address: str, worker: str) -> None:
    """Runs the proxy's process."""
    asyncio.run(_serve(address, worker))


async def _serve(address: str, worker: str) -> None:
    async with aio.insecure_channel(worker) as channel:
        server = aio.server()
        proxy = Proxy(worker_pb2_grpc.WorkerServiceStub(channel))
        generation_pb2_grpc.add_GenerationServiceServicer_to_server(proxy, server)
        server.add_insecure_port(address)
        await server.start()
        await server.wait_for_termination()
