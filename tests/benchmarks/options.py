"""Cost of generation options, and a search for options that occupy the device too long.

Uses the embedded models, and validates requests like those over the wire. Measures

- the time of a request by its ``no_repeat_ngram_size``, against the same request without it, in
  turn in one run;
- the longest call of a graph, by a search over all documented options with up to four concurrent
  requests. It fails if a call takes a tenth of the time after which it counts as hung.

Run by ``make search-options``.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import queue
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings, target
from hypothesis import strategies as st

from harness.engine import Bench, Collected, few_rungs
from harness.waiting import wait_until
from shaperouter.v1 import generation_pb2
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.generation import limits
from shaperouter_service.graphs import GraphState
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.serving.generation.preparation import prepare
from shaperouter_service.wire.generation import generation_from_message
from shaperouter_service.worker.config import HANG_TIMEOUT
from shaperouter_service.worker.run import Event
from shaperouter_service.worker.run_requests import check, make_run
from shaperouter_service.worker.watchdog import Watchdog

BUILTIN = Path(limits.__file__).parent / "builtin"
MODELS = {name: BUILTIN / name for name in ("demo", "g2p")}
SLOTS = 4
BEAMS = (1, 2, 4)
INT32_MAX = 2**31 - 1

SIZES = (0, 1, 2, 3, 5, 10, 100, 1000, 10**6, INT32_MAX)
# The second prompt repeats one token, so that all n-grams match.
PROMPTS = {"of 8 tokens": list(range(40, 48)), "of one token, 400 times": [7] * 400}
NEW_TOKENS, ROUNDS = 32, 15

# Settings of the search. Requests generate enough tokens to share a batch.
EXAMPLES, MAX_NEW_TOKENS = 300, 60
# Maximum seconds of a call.
LIMIT = HANG_TIMEOUT / 10

Request = generation_pb2.GenerateRequest


class Stopwatch:
    """Times the calls of graphs.

    Attributes:
        longest: Seconds of the longest call of each graph since `longest` was last cleared.
    """

    def __init__(self) -> None:
        self.longest: dict[Signature, float] = {}

    @contextlib.contextmanager
    def watching(self, signature: Signature) -> Iterator[None]:
        """Replaces `Watchdog.watching`, which watches every call that can hang."""
        started = time.perf_counter()
        yield
        seconds = time.perf_counter() - started
        self.longest[signature] = max(self.longest.get(signature, 0.0), seconds)


def main() -> int:
    """Measures and prints the results; returns 1 if a call exceeded the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="steps of the search")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="number of measurements of each size"
    )
    arguments = parser.parse_args()
    stopwatch = Stopwatch()
    # Patched, to time each call.
    Watchdog.watching = lambda _, signature, __: stopwatch.watching(signature)  # type: ignore[method-assign]
    bench = Bench(MODELS, slots=SLOTS, ladders=few_rungs)
    _make_ready(bench)
    for kind, prompt in PROMPTS.items():
        _print_sizes(bench, kind, prompt, arguments.rounds)
    return _search(bench, stopwatch, arguments.examples)


def _make_ready(bench: Bench) -> None:
    """Compiles the largest decode graph of each lane."""
    table, graphs = bench.parts.graphs, []
    for model, beams in itertools.product(MODELS, BEAMS):
        of_lane = [
            signature
            for signature in bench.parts.ladders[model].signatures(model)
            if signature.kind is GraphKind.DECODE and signature.beams == beams
        ]
        largest = max(of_lane, key=lambda signature: signature.rows)
        graphs.append(table.request_compile(largest, urgent=False))
    wait_until(lambda: all(graph.state is GraphState.READY for graph in graphs), timeout=600)


def _print_sizes(bench: Bench, kind: str, prompt: Sequence[int], rounds: int) -> None:
    """Prints how `no_repeat_ngram_size` changes the time of a request."""
    found: dict[int, list[float]] = {size: [] for size in SIZES}
    # The minimum equals the maximum, so that no request ends early.
    usual = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS}
    for measured in range(rounds + 1):
        for size, times in found.items():
            request = _request("demo", prompt, usual | {"no_repeat_ngram_size": size})
            started = time.perf_counter()
            _run(bench, [request])
            if measured:
                times.append(time.perf_counter() - started)
    plain, fastest_plain = statistics.median(found[0]), min(found[0])
    print(f"\n{NEW_TOKENS} tokens after a prompt {kind}, {rounds} rounds, in ms and to size 0:")
    print(f"{'no_repeat_ngram_size':>20} {'median':>8} {'ratio':>6} {'fastest':>8} {'ratio':>6}")
    for size, times in found.items():
        median, fastest = statistics.median(times), min(times)
        print(
            f"{size:>20} {1000 * median:>8.1f} {median / plain:>6.2f} "
            f"{1000 * fastest:>8.1f} {fastest / fastest_plain:>6.2f}"
        )


def _search(bench: Bench, stopwatch: Stopwatch, examples: int) -> int:
    """Searches for the longest call and prints it; returns 1 if it is too long."""
    plain: dict[Signature, float] = {}
    longest: dict[Signature, tuple[float, list[Request]]] = {}
    refused = 0

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.target),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(_requests(), min_size=1, max_size=SLOTS))
    def search(requests: list[Request]) -> None:
        nonlocal refused
        # The same requests without options, to measure the time of the shapes alone.
        for measured, kept in ((_plain(requests), None), (requests, longest)):
            stopwatch.longest.clear()
            try:
                _run(bench, measured)
            except InvalidRequestError:
                refused += 1
                return
            for signature, seconds in stopwatch.longest.items():
                if kept is None:
                    plain[signature] = max(plain.get(signature, 0.0), seconds)
                elif seconds > longest.get(signature, (0.0, []))[0]:
                    longest[signature] = seconds, requests
        target(max(stopwatch.longest.values()))

    search()
    print(f"\nLongest call of each graph in {examples} searches ({refused} refused), in ms:")
    print(f"{'graph':<32} {'plain':>8} {'options':>8}")
    for signature in sorted(longest, key=str):
        told = f"{1000 * plain.get(signature, 0.0):>8.1f} {1000 * longest[signature][0]:>8.1f}"
        print(f"{signature!s:<32} {told}")
    signature, (seconds, requests) = max(longest.items(), key=lambda item: item[1][0])
    print(f"\nThe longest call took {1000 * seconds:.1f} ms, of {signature}, for these runs:")
    for request in requests:
        options = str(request.options).replace("\n", ", ")
        print(f"- {len(request.token_ids.ids)} tokens to {request.model}: {options[:400]}")
    print(f"The limit is {LIMIT:.0f} s, a tenth of the time after which a call counts as hung.")
    return int(seconds > LIMIT)


@st.composite
def _requests(draw: st.DrawFn) -> Request:
    """Requests whose options are within their limits and rarely contradict each other."""
    model = draw(st.sampled_from(list(MODELS)))
    # Both have more tokens than this, and longer inputs.
    tokens = st.integers(3, 60)
    prompt = draw(
        st.lists(tokens, min_size=1, max_size=20)
        | st.builds(lambda token, count: [token] * count, tokens, st.integers(1, 60))
    )
    if model == "demo":
        prompt *= draw(st.integers(1, 400 // len(prompt)))
    max_new_tokens = draw(st.integers(1, MAX_NEW_TOKENS))
    options: dict[str, Any] = draw(_COMMON) | {
        "max_new_tokens": max_new_tokens,
        "min_new_tokens": draw(st.integers(0, max_new_tokens)),
    }
    options["num_beams"] = num_beams = draw(st.just(1) | st.integers(1, max(BEAMS)))
    sequences = num_beams
    if num_beams > 1:
        options |= draw(_SEARCH)
    else:
        options |= draw(_ALONE)
    if model == "g2p":
        options |= draw(_SOURCE)
    if draw(st.booleans()):
        options |= draw(_SAMPLING) | {"do_sample": True}
        if num_beams == 1:
            sequences = SLOTS
    options["num_return_sequences"] = draw(st.integers(1, sequences))
    return _request(model, prompt, options)


def _share(**limits: Any) -> st.SearchStrategy[float]:
    return st.floats(0.0, 1.0, **limits)


# The smaller vocabulary's.
_TOKENS = st.integers(0, 70)
_COMMON = st.fixed_dictionaries(
    {},
    optional={
        "eos_token_ids": st.lists(_TOKENS, max_size=limits.MAX_EOS_TOKENS),
        "repetition_penalty": st.floats(
            limits.MIN_REPETITION_PENALTY, limits.MAX_REPETITION_PENALTY
        ),
        "no_repeat_ngram_size": st.integers(0, 600) | st.integers(0, INT32_MAX),
        "logit_bias": st.lists(
            st.builds(
                generation_pb2.LogitBias,
                token_id=_TOKENS,
                bias=st.floats(limits.MIN_BIAS, limits.MAX_BIAS),
            ),
            max_size=limits.MAX_BIASES // 4,
            unique_by=lambda entry: entry.token_id,
        ),
        "bad_words_token_ids": st.lists(
            st.builds(
                generation_pb2.TokenIds,
                ids=st.lists(_TOKENS, min_size=1, max_size=limits.MAX_BIAS_TOKENS),
            ),
            max_size=limits.MAX_BIASES // 4,
        ),
        "suppress_tokens": st.lists(_TOKENS, max_size=limits.MAX_BIASES // 4),
        "forced_bos_token_id": _TOKENS,
        "forced_eos_token_id": _TOKENS,
        "echo": st.booleans(),
    },
)
_SOURCE = st.fixed_dictionaries(
    {},
    optional={
        "encoder_repetition_penalty": st.floats(
            limits.MIN_REPETITION_PENALTY, limits.MAX_REPETITION_PENALTY
        ),
        "encoder_no_repeat_ngram_size": st.integers(0, INT32_MAX),
    },
)
_ALONE = st.fixed_dictionaries(
    {},
    optional={
        "logprobs": st.integers(0, limits.MAX_TOP_LOGPROBS),
        "stop": st.lists(
            st.text("abcde ", min_size=1, max_size=limits.MAX_STOP_CHARACTERS),
            max_size=limits.MAX_STOP,
        ),
    },
)
_SEARCH = st.fixed_dictionaries(
    {},
    optional={
        "logprobs": st.just(0),
        "length_penalty": st.floats(limits.MIN_LENGTH_PENALTY, limits.MAX_LENGTH_PENALTY),
        "early_stopping": st.sampled_from(generation_pb2.EarlyStopping.values()[1:]),
        "renormalize_logits": st.booleans(),
    },
)
_SAMPLING = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.integers(0, 2**63 - 1),
        "temperature": st.floats(limits.MIN_TEMPERATURE, limits.MAX_TEMPERATURE),
        "top_k": st.integers(0, 71),
        "top_p": _share(exclude_min=True),
        "min_p": _share(),
        "typical_p": _share(exclude_min=True),
        "epsilon_cutoff": _share(exclude_max=True),
        "eta_cutoff": _share(exclude_max=True),
    },
)


def _plain(requests: Sequence[Request]) -> list[Request]:
    """The same requests with only those options that choose their graphs."""
    return [
        _request(
            request.model,
            request.token_ids.ids,
            {
                "max_new_tokens": request.options.max_new_tokens,
                "num_beams": request.options.num_beams,
            },
        )
        for request in requests
    ]


def _request(model: str, prompt: Sequence[int], options: Mapping[str, Any]) -> Request:
    return Request(
        model=model,
        token_ids=generation_pb2.TokenIds(ids=prompt),
        options=generation_pb2.GenerationOptions(**options),
    )


def _run(bench: Bench, requests: Sequence[Request]) -> None:
    """Runs requests concurrently to their ends.

    Raises:
        InvalidRequestError: One of them is refused; then none has begun.
    """
    runs = []
    for request in requests:
        model = bench.engine.model(request.model)
        # There are no texts to tokenize; only stop strings need a tokenizer, and not yet.
        prepared = asyncio.run(prepare(generation_from_message(request), model, None))
        for message in prepared.runs("search", "search", reads_along=True):
            check(message, model)
            events: queue.SimpleQueue[Event] = queue.SimpleQueue()
            collected = Collected(make_run(message, model, events.put), events)
            runs.append((request.model, collected))
    for name, collected in runs:
        bench.engine.submit(collected.run, name)
    for _, collected in runs:
        collected.wait()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # As in the service: an interpreter may crash if it ends while TensorFlow's threads run.
    os._exit(status)
