"""A worker with a spent budget is replaced under load; no request fails or changes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from grpc import StatusCode

from harness.service import GOLDENS, kept_compilations, process_exists, serving
from harness.waiting import wait_until
from shaperouter import Client, GraphState

MODEL = f"--model=endless={GOLDENS / 'gpt2-untied'}"
STREAMS = 10
# The model allows 128; it has no end token. The graph that always exists reads prompts of this
# length, so only decode graphs of several rows can be worth compiling.
PROMPT, NEW = 90, 38
# Seconds. Two workers compile, and streams run, on the same few cores.
PATIENCE = 400.0

PAYING = {f"endless decode {rows}x128" for rows in (2, 4, 8)}
IDLE = [f"endless prefill 1x{length}" for length in (32, 48, 64, 88)]
# A graph of prefill, one of score and one of each of the four beam widths always have a place.
MAX_GRAPHS = 6 + len(IDLE)


def options(index: int) -> dict[str, Any]:
    sampled = {"do_sample": True, "temperature": 1.2, "seed": index}
    return {"max_new_tokens": NEW} | (sampled if index % 2 else {})


def prompt(index: int) -> list[int]:
    return [1 + index] * PROMPT


def test_a_worker_with_a_spent_budget_is_replaced_without_a_lost_token() -> None:
    with (
        serving(MODEL, f"--max-graphs={MAX_GRAPHS}", env=kept_compilations()) as service,
        Client(service.address, timeout=PATIENCE) as client,
    ):
        for graphs in client.warm_graphs(IDLE):
            warmed = graphs
        assert [graph.state for graph in warmed] == [GraphState.READY] * len(IDLE)
        # One at a time: nothing is worth compiling yet.
        expected = [client.generate(prompt(i), **options(i)).token_ids for i in range(STREAMS)]
        old = service.worker_pid()
        ended = threading.Event()

        def stream(index: int) -> int:
            """Repeats a stream until the end of the test and once more; returns how often."""
            streams = 0
            while True:
                is_last = ended.is_set()
                with client.stream(prompt(index), **options(index)) as deltas:
                    tokens = [token for delta in deltas for token in delta.token_ids]
                assert tokens == list(expected[index])
                streams += 1
                if is_last:
                    return streams

        with ThreadPoolExecutor(STREAMS) as pool:
            calls = [pool.submit(stream, index) for index in range(STREAMS)]
            try:
                wait_until(
                    lambda: (
                        service.metric("shaperouter_workers_recycled_total", result="replaced")
                        or any(call.done() for call in calls)
                    ),
                    timeout=PATIENCE,
                )
            finally:
                ended.set()
            assert all(call.result() >= 1 for call in calls)

        assert service.metric("shaperouter_workers_recycled_total", result="replaced") == 1
        assert service.metric("shaperouter_workers_recycled_total", result="given_up") == 0
        assert service.metric("shaperouter_requests_total", code="OK") == sum(
            service.metric("shaperouter_requests_total", code=code.name) for code in StatusCode
        )
        assert not process_exists(old)
        ready = {str(each.signature) for each in client.graphs() if each.state is GraphState.READY}
        assert ready & PAYING
        assert not ready & set(IDLE)
        (recycled,) = service.events("worker recycled")
        assert recycled["graphs_left_behind"] == len(IDLE)
        assert not service.events("worker died")
