"""The worker's process: the real front of a worker, on an engine that computes nothing."""

import asyncio
import json
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import cast

from harness.fake_worker import FakeWorker
from shaperouter.v1 import model_pb2, signature_pb2, worker_pb2
from shaperouter_service.errors import UnknownModelError
from shaperouter_service.generation.run_events import FinishReason, NewTokens
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import Snapshot
from shaperouter_service.rpc.server import listen, make_server
from shaperouter_service.system.drain import Drain
from shaperouter_service.wire.snapshots import snapshot_from_message
from shaperouter_service.worker.engine import Engine
from shaperouter_service.worker.repository import ModelRepository
from shaperouter_service.worker.run import Ended, Run
from shaperouter_service.worker.server import SERVICE, Changes, WorkerServicer

from .answers import CHUNK, CHUNKS, MODEL, TOKENIZER, TOKENS, BareAnswers

# Room for the longest answers.
MAX_LENGTH = 512
# Seconds between the chunks of long runs.
_PERIOD = 0.02


class InstantEngine:
    """Answers with always the same tokens, from a thread like the device's.

    Short runs are answered at once. Long runs get their chunks together, one in each period, as
    from a device that advances a batch.
    """

    def __init__(self, changes: Changes) -> None:
        """Has all graphs of its ladders."""
        self._changes = changes
        self._snapshot = _snapshot()
        (self._model,) = self._snapshot.models
        prefill, decode = self._snapshot.graphs[0], self._snapshot.graphs[-1]
        self._graphs = [prefill.signature, decode.signature]
        self._runs: queue.SimpleQueue[Run] = queue.SimpleQueue()
        threading.Thread(target=self._answer, daemon=True).start()

    def model(self, name: str) -> ServedModel:
        """See `Engine`."""
        if name != MODEL:
            raise UnknownModelError(name, [MODEL])
        return self._model

    def submit(self, run: Run, model: str) -> None:
        """See `Engine`."""
        self._runs.put(run)
        self._changes.notify()

    def cancel(self, run: Run, model: str) -> None:
        """See `Engine`; runs end by themselves."""

    def snapshot(self, worker: str, incarnation: str) -> Snapshot:
        """See `Engine`."""
        return self._snapshot

    def request_compile(self, signatures: Iterable[Signature]) -> Mapping[Signature, str]:
        """See `Engine`; all graphs are ready."""
        return {}

    def _answer(self) -> None:
        long: dict[Run, Iterator[list[int]]] = {}
        tick = time.monotonic()
        while True:
            try:
                run = self._runs.get(timeout=max(0, tick - time.monotonic()) if long else None)
            except queue.Empty:
                tick = time.monotonic() + _PERIOD
                for each, chunks in list(long.items()):
                    if tokens := next(chunks, None):
                        each.emit(NewTokens(tokens))
                    else:
                        self._end(each)
                        del long[each]
                continue
            timings = run.timings
            timings.admitted = timings.prefill_started = timings.first_token = time.monotonic()
            chunks = iter(CHUNKS[: run.max_new_tokens // CHUNK])
            if run.max_new_tokens > TOKENS:
                long[run] = chunks
                continue
            for tokens in chunks:
                run.emit(NewTokens(tokens))
            self._end(run)

    def _end(self, run: Run) -> None:
        for graph in self._graphs:
            run.use(graph, graph, 0.001)
        run.timings.ended = time.monotonic()
        run.emit(Ended(FinishReason.LENGTH))


def serve_worker(address: Path) -> None:
    """Runs the worker's process."""
    asyncio.run(_serve(f"unix:{address}"))


async def _serve(address: str) -> None:
    server = make_server([SERVICE])
    changes = Changes(asyncio.get_running_loop())
    engine = cast("Engine", InstantEngine(changes))
    repository = ModelRepository(engine, None, {MODEL: Path()}, changes.notify)
    WorkerServicer(engine, repository, changes, Drain(), "worker-0").add_to(server)
    server.add_generic_rpc_handlers([BareAnswers()])
    listen(server, address)
    await server.start()
    await server.wait_for_termination()


def _snapshot() -> Snapshot:
    """A worker that has all graphs of a model, which has the tokenizer's vocabulary."""
    fake = FakeWorker("worker-0", Path(), [MODEL])
    (model,) = fake.models
    model.vocab_size = json.loads((TOKENIZER / "config.json").read_text())["vocab_size"]
    model.max_length = MAX_LENGTH
    for lane in model.ladders.lanes:
        lane.decode_lengths.append(lane.beams * MAX_LENGTH)
    model.ladders.prefill_lengths.append(MAX_LENGTH)
    message = worker_pb2.WatchResponse(
        worker=fake.name,
        incarnation="1",
        device="CPU:0",
        models=[model],
        graphs=map(fake.graph, _signatures(model.ladders)),
        warm=True,
        budget=fake.budget,
        lanes=[
            worker_pb2.Lane(model=MODEL, beams=lane.beams, total_slots=model.slots)
            for lane in model.ladders.lanes
        ],
    )
    return snapshot_from_message(message)


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
