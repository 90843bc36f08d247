"""Contestant's side of the load benchmark: a server, and its answers to the conductor.

::

    <- {"versions": {…}, "address": "127.0.0.1:41234"}                            once it is ready
    -> {"task": "counters"}
    <- {"counters": {"traces": 3}}

Every environment imports this module, so it needs only gRPC and the stubs, and no engine.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import grpc

from common.protocol import converse
from shaperouter.v1 import generation_pb2, generation_pb2_grpc


class Server(ABC):
    """A server that is ready."""

    packages: Sequence[str]  # packages whose versions are reported
    address: str

    @abstractmethod
    def counters(self) -> dict[str, float]:
        """Its counters since its start."""


def serve(loading: AbstractContextManager[Server]) -> None:
    """Starts a server, and answers questions until standard input ends."""
    converse(loading, _answer_to, lambda server: {"address": server.address})


def _answer_to(question: Mapping[str, Any], server: Server) -> Mapping[str, Any]:
    match question["task"]:
        case "counters":
            return {"counters": server.counters()}
        case unknown:
            raise ValueError(f"no task {unknown!r}")


Generate = Callable[[generation_pb2.GenerateRequest, grpc.ServicerContext], Sequence[int]]
Stream = Callable[[generation_pb2.GenerateStreamRequest, grpc.ServicerContext], Iterator[int]]


@contextmanager
def answering(generate: Generate, *, threads: int, stream: Stream | None = None) -> Iterator[str]:
    """Serves Generate and GenerateStream with functions, in a small server as in tutorials.

    Args:
        generate: Returns the new tokens.
        threads: Calls that are answered at a time; others wait, in their order.
        stream: Yields the new tokens. Without it, the server does not stream.

    Yields:
        The address.
    """

    class Servicer(generation_pb2_grpc.GenerationServiceServicer):
        def Generate(  # noqa: N802 (gRPC's name)
            self, request: generation_pb2.GenerateRequest, context: grpc.ServicerContext
        ) -> generation_pb2.GenerateResponse:
            # The caller has stopped waiting.
            if not context.is_active():
                context.abort(grpc.StatusCode.CANCELLED, "the caller is gone")
            sequence = generation_pb2.Sequence(token_ids=generate(request, context))
            return generation_pb2.GenerateResponse(sequences=[sequence])

        def GenerateStream(  # noqa: N802 (gRPC's name)
            self, request: generation_pb2.GenerateStreamRequest, context: grpc.ServicerContext
        ) -> Iterator[generation_pb2.GenerateStreamResponse]:
            if stream is None:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "this server does not stream")
                return
            for token in stream(request, context):
                delta = generation_pb2.Delta(token_ids=[token])
                yield generation_pb2.GenerateStreamResponse(delta=delta)

    server = grpc.server(ThreadPoolExecutor(threads))
    generation_pb2_grpc.add_GenerationServiceServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
