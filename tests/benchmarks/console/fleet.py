"""The workers' process: their reports, which keep changing."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

from harness.fake_worker import FakeWorker
from shaperouter.v1 import model_pb2, signature_pb2

MODELS, WORKERS = 20, 64
# Shapes of each model.
ROWS = (1, 2, 4, 8)
PREFILL_LENGTHS = tuple(range(32, 32 * 16, 32))
DECODE_LENGTHS = tuple(range(64, 64 * 11, 64))
SIGNATURES = MODELS * len(ROWS) * (len(PREFILL_LENGTHS) + len(DECODE_LENGTHS))
# Graphs of a worker that change at a time, and seconds until the next ones do.
CHANGED, PAUSE = 10, 0.5

NAMES = [f"model-{index}" for index in range(MODELS)]


def addresses(directory: Path) -> list[Path]:
    """Where the workers serve."""
    return [directory / f"w{index}" for index in range(WORKERS)]


def serve_fleet(directory: Path) -> None:
    """Runs the workers' process."""
    asyncio.run(_serve(directory))


async def _serve(directory: Path) -> None:
    models = itertools.cycle(NAMES)
    async with contextlib.AsyncExitStack() as stack:
        workers = []
        for index, (address, model) in enumerate(zip(addresses(directory), models, strict=False)):
            worker = FakeWorker(f"worker-{index}", address, [model])
            _give_graphs(worker)
            await worker.start()
            stack.push_async_callback(worker.kill)
            workers.append(worker)
        rng = random.Random(0)
        while True:
            for worker in workers:
                for graph in rng.sample(worker.graphs, CHANGED):
                    graph.device_seconds.sum += rng.random()
                    graph.device_seconds.counts[0] += 1
                await worker.change()
            await asyncio.sleep(PAUSE)


def _give_graphs(worker: FakeWorker) -> None:
    (model,) = worker.models
    length = max(PREFILL_LENGTHS[-1], DECODE_LENGTHS[-1])
    model.max_length = length
    model.vocab_size = 8192
    model.ladders.CopyFrom(
        model_pb2.Ladders(
            prefill_lengths=PREFILL_LENGTHS,
            prefill_rows=ROWS,
            prefill_batch_tokens=ROWS[-1] * length,
            prefill_piece=length,
            lanes=[model_pb2.LaneLadders(beams=1, decode_rows=ROWS, decode_lengths=DECODE_LENGTHS)],
        )
    )
    worker.graphs = [worker.graph(signature) for signature in _signatures(model.name)]


def _signatures(model: str) -> Iterator[signature_pb2.Signature]:
    kinds = (
        (signature_pb2.GRAPH_KIND_PREFILL, PREFILL_LENGTHS),
        (signature_pb2.GRAPH_KIND_DECODE, DECODE_LENGTHS),
    )
    for kind, lengths in kinds:
        for rows, length in itertools.product(ROWS, lengths):
            yield signature_pb2.Signature(model=model, kind=kind, rows=rows, length=length, beams=1)
