"""A router in this process, and stubs to call it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any

import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client import CollectorRegistry

from harness.waiting import TIMEOUT
from shaperouter.v1 import (
    generation_pb2,
    generation_pb2_grpc,
    graph_pb2_grpc,
    inference_pb2,
    inference_pb2_grpc,
    model_pb2_grpc,
)
from shaperouter_service.wire.tensors import tensor_to_message

Scenario = Callable[..., Awaitable[None]]
Play = Callable[..., None]


class Router:
    """A running router, and stubs to call it; `stop` stops it."""

    def __init__(
        self, channel: aio.Channel, registry: CollectorRegistry, stop: asyncio.Event
    ) -> None:
        self.channel = channel
        self.stop = stop
        self.generation = generation_pb2_grpc.GenerationServiceStub(channel)
        self.inference = inference_pb2_grpc.InferenceServiceStub(channel)
        self.models = model_pb2_grpc.ModelServiceStub(channel)
        self.graphs = graph_pb2_grpc.GraphServiceStub(channel)
        self.health = health_pb2_grpc.HealthStub(channel)
        self.registry = registry

    def generate(self, *, timeout: float | None = TIMEOUT, **fields: Any) -> Any:
        """Calls Generate; by default the prompt is one token."""
        return self.generation.Generate(
            generation_pb2.GenerateRequest(**_with_prompt(fields)), timeout=timeout
        )

    def stream(self, *, timeout: float | None = TIMEOUT, **fields: Any) -> Any:
        """Calls GenerateStream; by default the prompt is one token."""
        return self.generation.GenerateStream(
            generation_pb2.GenerateStreamRequest(**_with_prompt(fields)), timeout=timeout
        )

    async def infer(
        self,
        *,
        timeout: float | None = TIMEOUT,  # noqa: ASYNC109 (the call's deadline)
        **fields: Any,
    ) -> inference_pb2.InferResponse:
        """Calls Infer; `inputs` are arrays by name."""
        fields["inputs"] = [tensor_to_message(*item) for item in fields["inputs"].items()]
        request = inference_pb2.InferRequest(**fields)
        response: inference_pb2.InferResponse = await self.inference.Infer(request, timeout=timeout)
        return response

    async def error(self, call: Awaitable[object]) -> aio.AioRpcError:
        """The error of a unary call or of reading a stream."""
        reading = _read(call) if isinstance(call, aio.UnaryStreamCall) else call
        with pytest.raises(aio.AioRpcError) as failure:
            await reading
        return failure.value

    async def health_of(self, service: str) -> int:
        """The health of a service."""
        request = health_pb2.HealthCheckRequest(service=service)
        return (await self.health.Check(request, timeout=TIMEOUT)).status

    async def wait_for_health(self, service: str, status: int) -> None:
        """Waits until a service has this health."""
        request = health_pb2.HealthCheckRequest(service=service)
        async with contextlib.aclosing(_values(self.health.Watch(request))) as responses:
            async for response in responses:
                if response.status == status:
                    return

    @property
    def free_slots(self) -> float:
        """Number of slots of the workers in the router's catalog."""
        return self.metric("slots", state="free")

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's series with these labels; 0 before its first count."""
        return sum(
            sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == f"shaperouter_{name}" and labels.items() <= sample.labels.items()
        )


def _with_prompt(fields: dict[str, Any]) -> dict[str, Any]:
    if "text" in fields or "token_ids" in fields:
        return fields
    return fields | {"token_ids": generation_pb2.TokenIds(ids=[1])}


async def _read(call: aio.UnaryStreamCall[Any, Any]) -> None:
    while await call.read() is not aio.EOF:
        pass


async def _values(call: Any) -> AsyncGenerator[Any, None]:
    try:
        async for value in call:
            yield value
    finally:
        call.cancel()


async def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for a condition by polling."""
    while not condition():  # noqa: ASYNC110 (conditions of other processes have no event)
        await asyncio.sleep(0.005)


async def read_events(
    call: Any,
) -> tuple[list[generation_pb2.GenerateStreamResponse], generation_pb2.StreamCompletion]:
    """The remaining events of a stream, and its completion."""
    events = []
    while (event := await call.read()) is not aio.EOF:
        events.append(event)
    *events, end = events
    return events, end.completion


def deltas(
    events: Iterable[generation_pb2.GenerateStreamResponse], sequence: int = 0
) -> list[generation_pb2.Delta]:
    return [
        event.delta
        for event in events
        if event.HasField("delta") and event.delta.sequence == sequence
    ]


async def agreed(router: Router, **fields: Any) -> generation_pb2.GenerateResponse:
    """The response of Generate, after checking that the stream of the same request agrees."""
    response = await router.generate(**fields)
    events, end = await read_events(router.stream(**fields))
    assert len(end.sequences) == len(response.sequences)
    for index, sequence in enumerate(response.sequences):
        parts, ended = deltas(events, index), end.sequences[index]
        assert "".join(part.text for part in parts) == sequence.text
        assert [token for part in parts for token in part.token_ids] == sequence.token_ids
        assert [each for part in parts for each in part.logprobs] == list(sequence.logprobs)
        assert ended.finish_reason == sequence.finish_reason
        assert ended.HasField("score") == sequence.HasField("score")
        assert ended.score == sequence.score
    scored = [each for event in events for each in event.prompt_logprobs.logprobs]
    assert scored == list(response.prompt_logprobs)
    assert end.completion.usage == response.completion.usage
    assert list(end.completion.graphs) == list(response.completion.graphs)
    return response
