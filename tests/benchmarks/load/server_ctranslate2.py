"""CTranslate2 behind gRPC, with dynamic batching.

It is set up as a competent user would do it:

- Requests wait in a queue. The oldest runs next, together with others that may share its batch: up
  to 8, as the service has 8 slots. An idle server waits 5 ms for more requests to arrive.
- A batch has one set of options, since `generate_batch` takes one: beam width, temperature, top-p
  and repetition penalty must be equal.
- Prompts of a batch differ by at most 16 tokens in length: beyond the shortest prompt, the library
  reads one token per step. The library's own `max_batch_size` also groups by length, by sorting and
  splitting; here, requests that do not fit stay in the queue, so that none waits for all batches.
- `max_length` is the longest of the batch. Without beam search a callback ends each sequence at its
  own length, and its request is answered then. With beam search there is no callback: lengths are
  rounded up to multiples of 16 and the surplus is cut off, because otherwise few requests could
  share a batch. The answer may differ from the requested one; the benchmark compares only time.
- Seeds are ignored: the library has one seed per process.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import ctranslate2
import grpc

from common.protocol import arguments, token_text
from shaperouter.v1 import generation_pb2

from .server import Server, answering, serve

MOST_TOGETHER = 8
GATHERING_SECONDS = 0.005
LENGTH_SPREAD = 16
BEAM_LENGTH_STEP = 16
TOP_K = 50  # as by default everywhere else
# More calls than ever wait at a time, each in a thread.
CALLS = 1024


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A queued request.

    Attributes:
        prompt: Texts of the prompt's tokens.
        new_tokens: Requested number of tokens.
        limit: Maximum number of generated tokens.
        shared: Options that all of a batch have in common.
        context: Context of the call.
        tokens: Tokens generated so far.
        answer: Called with the new tokens.
        arrived: Called with each new token; not with beam search.
    """

    prompt: list[str]
    new_tokens: int
    limit: int
    shared: dict[str, Any]
    context: grpc.ServicerContext
    tokens: list[int] = field(default_factory=list)
    answer: "Future[Sequence[int]]" = field(default_factory=Future)
    arrived: Callable[[int], None] | None = None

    def fits(self, oldest: "Waiting", length_spread: int) -> bool:
        """Whether it may share a batch with the oldest request."""
        return (
            self.shared == oldest.shared
            and abs(len(self.prompt) - len(oldest.prompt)) <= length_spread
        )


class CTranslate2Server(Server):
    """A model that spreads each operation over the cores, and the thread that feeds it.

    Attributes:
        library: The library's class for this kind of model.
        compute_type: Type of its products.
        length_spread: Maximum difference of the lengths of a batch's prompts, in tokens.
    """

    packages = ("ctranslate2", "grpcio")
    library: ClassVar[type] = ctranslate2.Generator
    compute_type = "float32"
    length_spread = LENGTH_SPREAD

    def __init__(self, model: Path, *, threads: int) -> None:
        self._model = self.library(
            str(model), compute_type=self.compute_type, inter_threads=1, intra_threads=threads
        )
        self.address = ""
        self._queue: deque[Waiting] = deque()
        self._arrived = threading.Condition()
        self._batches = self._batched = 0
        threading.Thread(target=self._run, daemon=True).start()

    def generate(
        self, request: generation_pb2.GenerateRequest, context: grpc.ServicerContext
    ) -> Sequence[int]:
        """Continues a prompt when its turn comes."""
        return self.enqueue(waiting_for(request, context)).result()

    def enqueue(self, waiting: Waiting) -> "Future[Sequence[int]]":
        """Adds a request to the queue, and returns its answer to come."""
        with self._arrived:
            self._queue.append(waiting)
            self._arrived.notify()
        return waiting.answer

    def counters(self) -> dict[str, float]:
        return {"batches": self._batches, "requests_in_batches": self._batched}

    def _run(self) -> None:
        while True:
            with self._arrived:
                idle = not self._queue
                self._arrived.wait_for(lambda: self._queue)
            if idle:
                time.sleep(GATHERING_SECONDS)
            if batch := self._take():
                self._batches += 1
                self._batched += len(batch)
                try:
                    self._generate(batch)
                # The callers must get any error.
                except Exception as error:
                    for waiting in batch:
                        if not waiting.answer.done():
                            waiting.answer.set_exception(error)

    def _take(self) -> list[Waiting]:
        """Takes the oldest request and those that may share its batch; drops abandoned ones."""
        with self._arrived:
            for waiting in [each for each in self._queue if not each.context.is_active()]:
                self._queue.remove(waiting)
                waiting.answer.set_result([])
            if not self._queue:
                return []
            oldest = self._queue[0]
            batch = [each for each in self._queue if each.fits(oldest, self.length_spread)]
            batch = batch[:MOST_TOGETHER]
            for waiting in batch:
                self._queue.remove(waiting)
            return batch

    def _generate(self, batch: Sequence[Waiting]) -> None:
        # A translator's steps are of a class of their own.
        def made(step: Any) -> bool:
            waiting = batch[step.batch_id]
            waiting.tokens.append(step.token_id)
            if waiting.arrived:
                waiting.arrived(step.token_id)
            if len(waiting.tokens) == waiting.new_tokens:
                waiting.answer.set_result(waiting.tokens)
            return len(waiting.tokens) >= waiting.new_tokens

        without_beams = batch[0].shared["beam_size"] == 1
        found = self.call(
            [waiting.prompt for waiting in batch],
            max(waiting.limit for waiting in batch),
            callback=made if without_beams else None,
            **batch[0].shared,
        )
        for waiting, token_ids in zip(batch, found, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(token_ids[: waiting.new_tokens])

    def call(self, prompts: list[list[str]], limit: int, **options: Any) -> Sequence[Sequence[int]]:
        """Generates up to this many tokens for a batch; returns those of the best sequences."""
        results = self._model.generate_batch(
            prompts, max_length=limit, include_prompt_in_result=False, **options
        )
        return [result.sequences_ids[0] for result in results]


def waiting_for(
    request: generation_pb2.GenerateRequest | generation_pb2.GenerateStreamRequest,
    context: grpc.ServicerContext,
    arrived: Callable[[int], None] | None = None,
) -> Waiting:
    """A request for the queue; without beam search, `arrived` is called with each new token."""
    options = request.options
    shared: dict[str, Any] = {"beam_size": options.num_beams}
    if options.do_sample:
        shared |= {
            "sampling_topk": TOP_K,
            "sampling_temperature": options.temperature,
            "sampling_topp": options.top_p,
            "repetition_penalty": options.repetition_penalty,
        }
    rounding = -options.max_new_tokens % BEAM_LENGTH_STEP if options.num_beams > 1 else 0
    return Waiting(
        prompt=[token_text(token) for token in request.token_ids.ids],
        new_tokens=options.max_new_tokens,
        limit=options.max_new_tokens + rounding,
        shared=shared,
        context=context,
        arrived=arrived,
    )


@contextmanager
def load(kind: type[CTranslate2Server] = CTranslate2Server) -> Iterator[Server]:
    """Starts a server of this kind."""
    given = arguments()
    server = kind(given.model, threads=given.threads)
    with answering(server.generate, threads=CALLS) as server.address:
        yield server


if __name__ == "__main__":
    serve(load())
