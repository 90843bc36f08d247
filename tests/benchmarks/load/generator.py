"""The load generator, which sends requests on time and reports their outcomes.

It runs as a separate process with one asyncio loop, and speaks the line protocol::

    -> {"task": "open", "address": …, "streams": true, "deadline": 60, "requests": [{"at": 0.1, …}]}
    -> {"task": "closed", …, "concurrency": 8, "seconds": 60}
    <- {"outcomes": [{"sent": 0.1, "late": 0.0003, "first": 0.2, "total": 0.9, "end": "completed"}]}

The open loop sends each request at its time, whether or not earlier ones have ended, and reports
outcomes in the order of the requests. The closed loop keeps `concurrency` requests running, starts
none after the given seconds, and reports outcomes in the order in which requests end.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from common.protocol import converse
from shaperouter.v1 import generation_pb2, generation_pb2_grpc

from .outcomes import End, Outcome

LONGEST_REASON = 300  # characters of an error that are kept
# Seconds that a client waits after a refusal without RetryInfo.
RETRY_SECONDS = 1.0


class Generator:
    """Sends requests to one server."""

    packages = ("grpcio",)

    def __init__(self, *, address: str, streams: bool, deadline: float) -> None:
        """Prepares the generator.

        Args:
            address: Address of the server.
            streams: Whether it streams tokens.
            deadline: Maximum seconds of a request.
        """
        self._address = address
        self._streams = streams
        self._deadline = deadline
        self._stubs: dict[str, generation_pb2_grpc.GenerationServiceStub] = {}
        self._channels: list[aio.Channel] = []
        self._start = 0.0

    async def open(self, requests: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        """Sends each request at its time."""
        await self._connect(requests)
        tasks = []
        for request in requests:
            await asyncio.sleep(request["at"] - self._now())
            tasks.append(asyncio.create_task(self._send(request, self._now() - request["at"])))
        outcomes = await asyncio.gather(*tasks)
        await self._close()
        return outcomes

    async def closed(
        self, requests: Sequence[Mapping[str, Any]], concurrency: int, seconds: float
    ) -> list[Outcome]:
        """Sends requests in this many loops; after a refusal, a loop waits as long as it says."""
        await self._connect(requests)
        waiting = enumerate(requests)
        outcomes: list[Outcome] = []

        async def one_after_the_other() -> None:
            for number, request in waiting:
                if self._now() > seconds:
                    return
                outcome = await self._send(request, late=0.0)
                outcome.number = number
                outcomes.append(outcome)
                if outcome.end is End.REFUSED:
                    await asyncio.sleep(outcome.retry_after or RETRY_SECONDS)

        await asyncio.gather(*(one_after_the_other() for _ in range(concurrency)))
        await self._close()
        return outcomes

    async def _connect(self, requests: Iterable[Mapping[str, Any]]) -> None:
        """Opens a connection for each client, like clients on separate machines."""
        for client in sorted({request["client"] for request in requests}):
            channel = aio.insecure_channel(
                self._address,
                [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)],
            )
            self._channels.append(channel)
            self._stubs[client] = generation_pb2_grpc.GenerationServiceStub(channel)
            await channel.channel_ready()
        self._start = asyncio.get_running_loop().time()

    async def _close(self) -> None:
        for channel in self._channels:
            await channel.close()

    def _now(self) -> float:
        """Seconds since the start."""
        return asyncio.get_running_loop().time() - self._start

    async def _send(self, request: Mapping[str, Any], late: float) -> Outcome:
        outcome = Outcome(sent=self._now(), late=late)
        fields: dict[str, Any] = {
            "token_ids": generation_pb2.TokenIds(ids=request["token_ids"]),
            "options": generation_pb2.GenerationOptions(**request["options"]),
        }
        call: Mapping[str, Any] = {
            "timeout": self._deadline,
            "metadata": [("x-client-id", request["client"])],
        }
        stub, asked = self._stubs[request["client"]], request["options"]["max_new_tokens"]
        try:
            if self._streams:
                made = await self._read(
                    stub.GenerateStream(generation_pb2.GenerateStreamRequest(**fields), **call),
                    outcome,
                )
            else:
                response = await stub.Generate(generation_pb2.GenerateRequest(**fields), **call)
                made = len(response.sequences[0].token_ids)
                outcome.first = self._now() - outcome.sent
            if made != asked:
                outcome.end, outcome.reason = End.FAILED, f"made {made} tokens, not {asked}"
        except aio.AioRpcError as error:
            _note(error, outcome)
        outcome.total = self._now() - outcome.sent
        return outcome

    async def _read(self, call: Any, outcome: Outcome) -> int:
        """Reads a stream, and returns its number of tokens."""
        made = 0
        async for event in call:
            match event.WhichOneof("event"):
                case "delta" if event.delta.token_ids:
                    made += len(event.delta.token_ids)
                    if outcome.first is None:
                        outcome.first = self._now() - outcome.sent
                case "completion":
                    graphs = event.completion.completion.graphs
                    outcome.tight = all(use.asked == use.served for use in graphs)
                    timings = event.completion.completion.timings
                    outcome.timings = {
                        field.name: getattr(timings, field.name)
                        for field in timings.DESCRIPTOR.fields
                    }
        return made


def _note(error: aio.AioRpcError, outcome: Outcome) -> None:
    outcome.reason = f"{error.code().name}: {error.details()}"[:LONGEST_REASON]
    match error.code():
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            outcome.end = End.REFUSED
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            outcome.end = End.TIMED_OUT
        case _:
            outcome.end = End.FAILED
    for key, value in error.trailing_metadata():
        if key != "grpc-status-details-bin":
            continue
        info = error_details_pb2.RetryInfo()
        for detail in status_pb2.Status.FromString(value).details:
            if detail.Unpack(info):
                outcome.retry_after = info.retry_delay.ToTimedelta().total_seconds()


def _answer_to(question: Mapping[str, Any], _: object) -> Mapping[str, Any]:
    generator = Generator(
        address=question["address"], streams=question["streams"], deadline=question["deadline"]
    )
    match question["task"]:
        case "open":
            sending = generator.open(question["requests"])
        case "closed":
            sending = generator.closed(
                question["requests"], question["concurrency"], question["seconds"]
            )
        case unknown:
            raise ValueError(f"no task {unknown!r}")
    return {"outcomes": [asdict(outcome) for outcome in asyncio.run(sending)]}


if __name__ == "__main__":
    converse(nullcontext(Generator), _answer_to)
