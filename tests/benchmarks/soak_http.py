"""Sends mutated requests to all doors of the HTTP port, and reports the router's memory.

    make soak-http

The requests are those of the fuzz tests (JSON, forms, Open Inference), some of them in chunks, some
slowly, all beside a thousand idle connections, and go to a real service with a text model, a
Whisper and a function. The first thousand are a warm-up. Exits with 1 if an answer has the status
500, or if the service does not answer afterwards.
"""

import argparse
import asyncio
import collections
import contextlib
import gc
import multiprocessing
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

import shaperouter_service
from harness.http_mutation import WHOLE, chunked, request_of, status_of
from harness.http_requests import TEMPLATE, mutated_form, mutated_inference, mutated_json
from harness.service import LOCAL, Service, kept_compilations
from harness.whispers import with_tokenizer

DEMO = Path(shaperouter_service.__file__).parent / "builtin" / "demo"
IDLE, CALLERS, ROUND = 1000, 8, 1000
# Seconds to wait for an answer, which an incomplete request does not get.
PATIENCE = 0.3
console = Console()


def main() -> int:
    """Sends rounds of requests, and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of 1,000 after the warm-up")
    parser.add_argument("--seed", type=int, default=0, help="seed of the requests (default: 0)")
    arguments = parser.parse_args()
    with _serving() as (service, path):
        return asyncio.run(_soak(service, path, arguments.rounds, arguments.seed))


async def _soak(service: Service, path: Path, rounds: int, seed: int) -> int:
    source = random.Random(seed)
    table = Table("requests", "router MiB", "statuses (0: none in time)")
    failed = False
    with contextlib.ExitStack() as stack:
        for _ in range(IDLE):
            _, writer = await asyncio.open_unix_connection(path)
            stack.callback(writer.close)
        for index in range(rounds + 1):
            found = await _round(path, source)
            failed |= found[500] > 0
            body = b'{"model": "tiny", "prompt": "a"}'
            whole = request_of("/v1/completions", body, headers=[b"content-type: application/json"])
            failed |= await status_of(path, whole, patience=WHOLE) != 200
            statuses = ", ".join(f"{status}: {count}" for status, count in sorted(found.items()))
            name = f"{ROUND * index:,} and {ROUND:,} to warm up" if index else "warm-up"
            table.add_row(name, f"{_resident_bytes(service.process.pid) / 2**20:.1f}", statuses)
    console.print(table)
    return int(failed)


async def _round(path: Path, source: random.Random) -> collections.Counter[int]:
    """Sends a round of requests, several at a time; returns the numbers of their statuses."""
    found: collections.Counter[int] = collections.Counter()
    requests = iter([_request(source) for _ in range(ROUND)])

    async def call() -> None:
        for request, pauses in requests:
            found[await status_of(path, request, patience=PATIENCE, pauses=pauses)] += 1

    await asyncio.gather(*(call() for _ in range(CALLERS)))
    gc.collect()
    return found


def _request(source: random.Random) -> tuple[bytes, int]:
    """A request, and the number of pauses that its sender makes."""
    kind = source.randrange(4)
    if kind == 0:
        model = source.choice(["tiny", "hearing"])
        request = mutated_form(source, model=model)
    else:
        request = mutated_inference(source) if kind == 1 else mutated_json(source)
    if source.random() < 0.2:
        request = chunked(source, request)
    return request, source.choice([0] * 9 + [3])


@contextlib.contextmanager
def _serving() -> Iterator[tuple[Service, Path]]:
    """A service that listens to HTTP on a socket."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        tiny = shutil.copytree(DEMO, directory / "tiny")
        (tiny / "chat_template.jinja").write_text(TEMPLATE)
        saving = multiprocessing.get_context("spawn").Process(
            target=_save_function, args=[directory / "double"]
        )
        saving.start()
        saving.join()
        service = Service(
            "serve",
            f"--model=tiny={tiny}",
            f"--model=hearing={with_tokenizer(directory)}",
            f"--model=double={directory / 'double'}",
            f"--listen={LOCAL}",
            f"--metrics-listen={LOCAL}",
            f"--http-listen=unix:{directory / 'http'}",
            env=kept_compilations(),
        )
        try:
            service.wait_until_ready()
            yield service, directory / "http"
        finally:
            service.close()


def _save_function(directory: Path) -> None:
    # Imported here, because only this process needs TensorFlow.
    import tensorflow as tf

    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")], autograph=False)
    def double(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": 2 * x}

    tf.saved_model.save(module, str(directory), signatures=double)


def _resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    sys.exit(main())
