"""The callers, who hold conversations with one server.

They run as a separate process with one asyncio loop, and speak the line protocol::

    -> {"address": …, "door": "grpc", "deadline": 60, "plans": [[{"number": 1, …}, …], …]}
    <- {"turns": [{"number": 2, "prompt": 431, "first": 0.04, …}, …]}

There is a plan for each caller. Only turns that count are reported.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any, Protocol

from grpc import aio

from common.protocol import converse
from shaperouter.v1 import generation_pb2, generation_pb2_grpc

from .contestants import Door
from .figures import Answered
from .script import ANSWER_TOKENS

# Longest line of llama.cpp's server, in bytes: its last one repeats the prompt.
MAX_LINE = 2**20


class Asking(Protocol):
    """A connection of a caller to a server."""

    def ask(self, prompt: Sequence[int]) -> AsyncIterator[tuple[list[int], int | None]]:
        """Sends a prompt, and yields the answer's tokens as they come.

        Beside the last ones is the number of the prompt's tokens that the server did not read, if
        it says so; there may be no tokens beside it.
        """

    async def close(self) -> None:
        """Ends the connection."""


class GrpcAsking:
    """A connection to a server with the service's API."""

    def __init__(self, address: str, deadline: float) -> None:
        self._deadline = deadline
        self._channel = aio.insecure_channel(
            address, [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        )
        self._stub = generation_pb2_grpc.GenerationServiceStub(self._channel)

    async def ask(self, prompt: Sequence[int]) -> AsyncIterator[tuple[list[int], int | None]]:
        request = generation_pb2.GenerateStreamRequest(
            token_ids=generation_pb2.TokenIds(ids=prompt),
            options=generation_pb2.GenerationOptions(max_new_tokens=ANSWER_TOKENS, num_beams=1),
        )
        async for event in self._stub.GenerateStream(request, timeout=self._deadline):
            match event.WhichOneof("event"):
                case "delta":
                    yield list(event.delta.token_ids), None
                case "completion":
                    yield [], event.completion.completion.usage.cached_prompt_tokens

    async def close(self) -> None:
        await self._channel.close()


class HttpAsking:
    """Connections to llama.cpp's server, a new one for each request."""

    def __init__(self, address: str, deadline: float) -> None:
        self._host, _, self._port = address.partition(":")
        self._deadline = deadline

    async def ask(self, prompt: Sequence[int]) -> AsyncIterator[tuple[list[int], int | None]]:
        # One sampler, which takes the likeliest token.
        asked = {"n_predict": ANSWER_TOKENS, "samplers": ["top_k"], "top_k": 1, "stream": True}
        body = json.dumps({"prompt": prompt, **asked}).encode()
        head = (
            f"POST /completion HTTP/1.1\r\nHost: {self._host}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        async with asyncio.timeout(self._deadline):
            reader, writer = await asyncio.open_connection(self._host, self._port, limit=MAX_LINE)
            try:
                writer.write(head.encode() + body)
                status = await reader.readline()
                if b" 200 " not in status:
                    raise ValueError(f"llama.cpp's server answered {status!r}")
                async for line in reader:
                    if line.startswith(b"data: {"):
                        event = json.loads(line.removeprefix(b"data: "))
                        cached = event["timings"]["cache_n"] if event["stop"] else None
                        yield event["tokens"], cached
            finally:
                writer.close()

    async def close(self) -> None:
        pass


DOORS: Mapping[Door, type[GrpcAsking] | type[HttpAsking]] = {
    Door.GRPC: GrpcAsking,
    Door.HTTP: HttpAsking,
}


async def hold(
    plans: Sequence[Sequence[Mapping[str, Any]]], *, door: Door, address: str, deadline: float
) -> list[Answered]:
    """Holds the conversations of all callers at the same time.

    Raises:
        ExceptionGroup: A turn fails, or its answer has another length.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    found: list[Answered] = []

    async def call(turns: Sequence[Mapping[str, Any]]) -> None:
        asking: Asking = DOORS[door](address, deadline)
        history: list[int] = []
        for turn in turns:
            await asyncio.sleep(turn["think"])
            history = [*(turn["opening"] or history), *turn["user"]]
            sent, first, answer, cached = loop.time(), None, [], None
            async for tokens, read in asking.ask(history):
                if tokens and first is None:
                    first = loop.time() - sent
                answer += tokens
                cached = cached if read is None else read
            total = loop.time() - sent
            if first is None or len(answer) != ANSWER_TOKENS:
                raise ValueError(f"made {len(answer)} tokens, not {ANSWER_TOKENS}")
            if turn["counts"]:
                found.append(
                    Answered(
                        number=turn["number"],
                        prompt=len(history),
                        tokens=len(answer),
                        sent=sent - started,
                        first=first,
                        total=total,
                        cached=cached,
                    )
                )
            history += answer
        await asking.close()

    async with asyncio.TaskGroup() as group:
        for turns in plans:
            group.create_task(call(turns))
    return found


class Callers:
    """What the process reports about itself."""

    packages = ("grpcio",)


def _answer_to(question: Mapping[str, Any], _: object) -> Mapping[str, Any]:
    holding = hold(
        question["plans"],
        door=Door(question["door"]),
        address=question["address"],
        deadline=question["deadline"],
    )
    return {"turns": [asdict(turn) for turn in asyncio.run(holding)]}


if __name__ == "__main__":
    converse(nullcontext(Callers()), _answer_to)
