"""CTranslate2 behind gRPC, set up like `load.server_ctranslate2`, in int8 and with streams.

The library has no prefix cache but for one prompt that all requests begin with, `static_prompt`.
The option of this server is this prompt: token ids with commas.
"""

import argparse
import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from load.server import Server, answering, serve
from load.server_ctranslate2 import CALLS, CTranslate2Server, waiting_for

from common.protocol import arguments, token_text
from shaperouter.v1 import generation_pb2


class StreamingServer(CTranslate2Server):
    """A model that streams its answers, and remembers the state after a static prompt."""

    compute_type = "int8"

    def __init__(self, model: Path, *, threads: int, static_prompt: Sequence[str]) -> None:
        super().__init__(model, threads=threads)
        self._static_prompt = list(static_prompt)

    def stream(
        self, request: generation_pb2.GenerateStreamRequest, context: grpc.ServicerContext
    ) -> Iterator[int]:
        """Continues a prompt when its turn comes, token by token."""
        tokens: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        answer = self.enqueue(waiting_for(request, context, tokens.put))
        answer.add_done_callback(lambda _: tokens.put(None))
        yield from iter(tokens.get, None)
        # Raises what failed.
        answer.result()

    def call(self, prompts: list[list[str]], limit: int, **options: Any) -> Sequence[Sequence[int]]:
        count = len(self._static_prompt)
        if any(prompt[:count] != self._static_prompt for prompt in prompts):
            raise ValueError("a prompt does not begin with the static prompt")
        return super().call(
            [prompt[count:] for prompt in prompts],
            limit,
            static_prompt=self._static_prompt,
            cache_static_prompt=True,
            **options,
        )


@contextmanager
def load() -> Iterator[Server]:
    """Starts the server."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--option", required=True, help="the static prompt's token ids")
    given = arguments(parser)
    static = [token_text(int(token)) for token in given.option.split(",")]
    server = StreamingServer(given.model, threads=given.threads, static_prompt=static)
    with answering(server.generate, threads=CALLS, stream=server.stream) as server.address:
        yield server


if __name__ == "__main__":
    serve(load())
