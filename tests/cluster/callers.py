"""Users, who call all day, try again where clients should, and notice every wrong token.

Runs as a process on its own host, and exports metrics of requests as users see them. Each answer is
compared with the first answer that the same revision of the model gave to the same request: greedy,
sampled with its seed, and by beam search.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import Counter, Gauge, start_http_server

from shaperouter import Client, Generation, ShaperouterError

# Number of callers, and maximum seconds between two requests of one of them.
CALLERS = 6
PAUSE = 0.4

# Seconds that a user waits for one answer, also while every worker is lost, and tries again before
# giving up.
TIMEOUT, PATIENCE = 120.0, 30.0
# Seconds until the next try, if the service does not say when.
RETRY = 0.5

# Digits of a revision that tell it from the others, as in the service's own metrics.
DIGITS = 12

REQUESTS = Counter(
    "caller_requests", "Requests of users: answered, failed, or wrong.", ["kind", "result"]
)
ANSWERS = Counter(
    "caller_answers", "Answers by the revision of the model that gave them.", ["revision"]
)
RETRIES = Counter("caller_retries", "Requests that users sent once more, by the reason.", ["code"])
STALLED = Counter("caller_stalled", "Requests that waited for a compilation.", ["kind"])
LONGEST_STALL = Gauge("caller_longest_stall_seconds", "Of all requests so far, in seconds.")
LONGEST_REQUEST = Gauge("caller_longest_request_seconds", "Of all requests so far, in seconds.")


@dataclass(frozen=True, kw_only=True)
class SampleRequest:
    """Something that users ask for again and again.

    Attributes:
        kind: Kind of generation.
        prompt: Its token ids.
        options: Options of the client's methods.
        stream: Whether it is read token by token.
    """

    kind: str
    prompt: tuple[int, ...]
    options: Mapping[str, Any] = field(hash=False)
    stream: bool = True

    def ask(self, client: Client) -> Generation:
        """Asks for it."""
        if not self.stream:
            return client.generate(self.prompt, timeout=TIMEOUT, **self.options)
        with client.stream(self.prompt, timeout=TIMEOUT, **self.options) as stream:
            for _ in stream:
                pass
        return stream.result


# Read by one rung of prompts, and decoded by two, so that there are few graphs to make.
PROMPT, OTHER_PROMPT = tuple(range(1, 9)), tuple(range(20, 35))
SAMPLE_REQUESTS = [
    SampleRequest(kind="greedy", prompt=PROMPT, options={"max_new_tokens": 110}),
    SampleRequest(kind="greedy", prompt=OTHER_PROMPT, options={"max_new_tokens": 40}, stream=False),
    SampleRequest(
        kind="sampled", prompt=PROMPT, options={"max_new_tokens": 100, "top_k": 50, "seed": 7}
    ),
    SampleRequest(kind="sampled", prompt=OTHER_PROMPT, options={"temperature": 1.2, "seed": 8}),
    SampleRequest(kind="beams", prompt=PROMPT, options={"max_new_tokens": 50, "num_beams": 4}),
    SampleRequest(kind="beams", prompt=OTHER_PROMPT, options={"num_beams": 3}, stream=False),
]


class Day:
    """Users that call the service, check the answers and log the results; threads share it."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._expected: dict[tuple[SampleRequest, str], tuple[int, ...]] = {}
        self._longest = {LONGEST_STALL: 0.0, LONGEST_REQUEST: 0.0}
        self._lock = threading.Lock()
        for kind in {sample.kind for sample in SAMPLE_REQUESTS}:
            STALLED.labels(kind)
            for result in ("answered", "failed", "wrong"):
                REQUESTS.labels(kind, result)

    def call(self, sample: SampleRequest, client: Client) -> None:
        """Asks for something until it is answered, and looks at the answer."""
        began = time.monotonic()
        while True:
            try:
                generation = sample.ask(client)
                break
            except ShaperouterError as error:
                code = error.code.name
                tell(
                    "call failed",
                    sample=sample.kind,
                    code=code,
                    error=str(error),
                    id=error.request_id,
                )
                if not error.retriable or time.monotonic() - began > PATIENCE:
                    REQUESTS.labels(sample.kind, "failed").inc()
                    return
                RETRIES.labels(code).inc()
                # As the service asks its callers to.
                time.sleep(error.retry_after or RETRY)
        self._look_at(sample, generation, time.monotonic() - began)

    def _look_at(self, sample: SampleRequest, generation: Generation, seconds: float) -> None:
        stall = generation.timings.stall_seconds
        with self._lock:
            key = sample, generation.revision
            expected = self._expected.setdefault(key, generation.token_ids)
            self._note(LONGEST_REQUEST, seconds)
            self._note(LONGEST_STALL, stall)
        ANSWERS.labels(generation.revision[:DIGITS]).inc()
        if stall:
            STALLED.labels(sample.kind).inc()
            tell("request stalled", sample=sample.kind, seconds=stall, worker=generation.worker)
        if generation.token_ids == expected:
            REQUESTS.labels(sample.kind, "answered").inc()
        else:
            REQUESTS.labels(sample.kind, "wrong").inc()
            tell("wrong answer", sample=sample.kind, got=generation.token_ids, expected=expected)

    def _note(self, longest: Gauge, seconds: float) -> None:
        self._longest[longest] = max(seconds, self._longest[longest])
        longest.set(self._longest[longest])


def tell(event: str, **fields: Any) -> None:
    """Writes a line of the log."""
    print(json.dumps({"time": time.strftime("%H:%M:%S"), "event": event, **fields}), flush=True)


def main() -> None:
    """Calls until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True)
    parser.add_argument("--ca", required=True)
    parser.add_argument("--tokens", type=Path, required=True, help="a file, one a line")
    parser.add_argument("--metrics-port", type=int, required=True)
    given = parser.parse_args()
    tokens = given.tokens.read_text(encoding="utf-8").split()
    start_http_server(given.metrics_port)
    day = Day()

    def caller(number: int) -> None:
        source = random.Random(number)
        token = tokens[number % len(tokens)]
        with Client(given.address, ca=given.ca, token=token) as client:
            while True:
                day.call(source.choice(SAMPLE_REQUESTS), client)
                # Callers must not all try again at the same moment.
                time.sleep(source.uniform(0, PAUSE))

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
