"""A plain gRPC server of a library, and its callers in another process.

The least that a library needs to serve callers of other processes: a thread joins the texts that
wait. Requests are JSON lists of texts, answers are the bytes of float32 arrays.
"""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np

from .calling import Embed, timed_calls

METHOD = "/functions.Embedder/Embed"
# Texts that are joined at most.
JOINED = 32


@contextmanager
def joining(embed: Embed) -> Iterator[Embed]:
    """Joins the texts of calls that wait; a thread embeds them."""
    waiting: queue.SimpleQueue[tuple[Sequence[str], Future[np.ndarray]] | None] = (
        queue.SimpleQueue()
    )

    def work() -> None:
        while (first := waiting.get()) is not None:
            taken = [first]
            while sum(len(texts) for texts, _ in taken) < JOINED and not waiting.empty():
                if (more := waiting.get()) is None:
                    return
                taken.append(more)
            vectors = embed([text for texts, _ in taken for text in texts])
            start = 0
            for texts, future in taken:
                future.set_result(vectors[start : start + len(texts)])
                start += len(texts)

    def call(texts: Sequence[str]) -> np.ndarray:
        future: Future[np.ndarray] = Future()
        waiting.put((texts, future))
        return future.result()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield call
    finally:
        waiting.put(None)
        thread.join()


def called_by_others(
    embed: Embed, calls: Sequence[Sequence[str]], callers: int
) -> Mapping[str, Any]:
    """Serves the calls of another process; returns its `timed_calls`."""
    with joining(embed) as joined:

        def answer(request: bytes, _: grpc.ServicerContext) -> bytes:
            return joined(json.loads(request)).astype(np.float32).tobytes()

        server = grpc.server(ThreadPoolExecutor(callers))
        handlers = {"Embed": grpc.unary_unary_rpc_method_handler(answer)}
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("functions.Embedder", handlers)]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            ended = subprocess.run(
                [sys.executable, "-m", __spec__.name],
                input=json.dumps({"port": port, "calls": calls, "callers": callers}),
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
        finally:
            server.stop(None).wait()
    found: Mapping[str, Any] = json.loads(ended.stdout)
    return found


def main() -> None:
    """Makes the calls of standard input, and prints what they took."""
    question = json.load(sys.stdin)
    with grpc.insecure_channel(f"127.0.0.1:{question['port']}") as channel:
        grpc.channel_ready_future(channel).result()
        method = channel.unary_unary(METHOD)

        def embed(texts: Sequence[str]) -> np.ndarray:
            answer = method(json.dumps(texts).encode())
            return np.frombuffer(answer, np.float32).reshape(len(texts), -1)

        print(json.dumps(timed_calls(embed, question["calls"], question["callers"])))


if __name__ == "__main__":
    main()
