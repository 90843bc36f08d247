"""The answer to every request."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from shaperouter.v1 import generation_pb2

MODEL = "tiny"
# A real tokenizer, because routers tokenize and detokenize.
TOKENIZER = Path(__file__).parents[3] / "service" / "shaperouter_service" / "builtin" / "demo"
CHUNK, TOKENS = 8, 32
# The length of answers whose chunks come one after the other.
LONG = 48 * CHUNK
# The chunks of the longest answer; a shorter one has the first of them.
CHUNKS = [list(range(start, start + CHUNK)) for start in range(300, 300 + LONG, CHUNK)]
UNARY = "/shaperouter.v1.GenerationService/Generate"
STREAM = "/shaperouter.v1.GenerationService/GenerateStream"

_SHORT = CHUNKS[: TOKENS // CHUNK]
_TEXT = "The router sends each request to a worker whose graph covers it, which answers."
_COMPLETION = generation_pb2.Completion(
    request_id=32 * "f",
    model=MODEL,
    seed=2**62,
    usage=generation_pb2.Usage(prompt_tokens=16, padded_prompt_tokens=16, generated_tokens=TOKENS),
    timings=generation_pb2.Timings(prefill_seconds=0.1, decode_seconds=0.1, total_seconds=0.2),
    worker="worker-0",
)
_UNARY = generation_pb2.GenerateResponse(
    sequences=[
        generation_pb2.Sequence(text=_TEXT, token_ids=itertools.chain.from_iterable(_SHORT))
    ],
    completion=_COMPLETION,
).SerializeToString()
_STREAM = [
    *(
        generation_pb2.GenerateStreamResponse(
            delta=generation_pb2.Delta(text=_TEXT[:20], token_ids=tokens)
        ).SerializeToString()
        for tokens in _SHORT
    ),
    generation_pb2.GenerateStreamResponse(
        completion=generation_pb2.StreamCompletion(completion=_COMPLETION)
    ).SerializeToString(),
]


class BareAnswers(grpc.GenericRpcHandler):
    """The minimum cost with gRPC: the same answers as bytes, without a service."""

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """The handler of a method of GenerationService."""
        if details.method == STREAM:
            return grpc.unary_stream_rpc_method_handler(self._stream)
        if details.method == UNARY:
            return grpc.unary_unary_rpc_method_handler(self._unary)
        return None

    async def _unary(self, request: bytes, context: Any) -> bytes:
        return _UNARY

    async def _stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        for message in _STREAM:
            yield message
