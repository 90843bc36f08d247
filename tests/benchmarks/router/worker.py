"""The worker's process."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from harness.fake_worker import FakeWorker
from shaperouter.v1 import model_pb2, signature_pb2, worker_pb2, worker_pb2_grpc
from shaperouter_service.rpc.server import listen, make_server

MODEL = "tiny"
# A real tokenizer: text in and text out is part of what a router does.
TOKENIZER = Path(__file__).parents[3] / "service" / "shaperouter_service" / "builtin" / "demo"
FIRST_TOKEN, TOKENS, CHUNK = 300, 32, 8


class FastWorker(FakeWorker):
    """A fake worker that keeps no requests, behind a plain socket."""

    def __init__(self, address: Path) -> None:
        super().__init__("worker-0", address, [MODEL])
        vocab_size = json.loads((TOKENIZER / "config.json").read_text())["vocab_size"]
        for model in self.models:
            model.vocab_size = vocab_size
            self.graphs += map(self.graph, _signatures(model.ladders))
        tokens = range(FIRST_TOKEN, FIRST_TOKEN + TOKENS)
        self.script = [self.tokens(*tokens[at : at + CHUNK]) for at in range(0, TOKENS, CHUNK)]
        self.script.append(self.completion())
        # What is held back after the first chunk is told with the end.
        self.held_script = [self.script[0], self.tokens(*tokens[CHUNK:]), self.script[-1]]

    async def Run(  # noqa: N802 (gRPC's name)
        self, request: worker_pb2.RunRequest, context: Any
    ) -> AsyncIterator[worker_pb2.RunResponse]:
        """Sends the same response to all requests, in as few messages as possible."""
        for step in self.held_script if request.tokens_interval_seconds else self.script:
            yield step

    async def serve(self) -> None:
        """Serves forever."""
        server = make_server([worker_pb2.DESCRIPTOR.services_by_name["WorkerService"]])
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(self, server)
        listen(server, self.address)
        await server.start()
        await server.wait_for_termination()


def _signatures(ladders: model_pb2.Ladders) -> Iterator[signature_pb2.Signature]:
    """All graphs."""
    for rows, length in product(ladders.prefill_rows, ladders.prefill_lengths):
        yield signature_pb2.Signature(
            model=MODEL,
            kind=signature_pb2.GRAPH_KIND_PREFILL,
            rows=rows,
            length=length,
            beams=1,
        )
    for lane in ladders.lanes:
        for rows, length in product(lane.decode_rows, lane.decode_lengths):
            yield signature_pb2.Signature(
                model=MODEL,
                kind=signature_pb2.GRAPH_KIND_DECODE,
                rows=rows,
                length=length,
                beams=lane.beams,
            )


def serve_worker(address: Path) -> None:
    """Runs the worker's process."""
    asyncio.run(FastWorker(address).serve())
