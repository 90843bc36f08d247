"""The built-in model as users see it: text in, text out, equal to the reference."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.service import GOLDENS, Service
from harness.waiting import wait_until
from shaperouter import Client, DeadlineError, FinishReason

EXPECTED = json.loads((GOLDENS / "demo.json").read_text(encoding="utf-8"))
# Long enough to be caught in the middle, and with an end token that does not come up.
ENDLESS = {"max_new_tokens": 500, "eos_token_ids": [EXPECTED["vocab_size"] - 1]}


@pytest.fixture(scope="module")
def demo_client(demo: Service) -> Iterator[Client]:
    with Client(demo.address) as client:
        yield client


@pytest.mark.parametrize("case", EXPECTED["cases"], ids=lambda case: case["name"])
def test_text_equals_the_reference_whole_and_streamed(
    demo_client: Client, case: dict[str, Any]
) -> None:
    limit = case["max_new_tokens"]
    whole = demo_client.generate(case["prompt_text"], max_new_tokens=limit)
    with demo_client.stream(case["prompt_text"], max_new_tokens=limit) as stream:
        pieces = [delta.text for delta in stream]
    assert whole.usage.prompt_tokens == len(case["prompt_token_ids"])
    assert list(whole.token_ids) == case["token_ids"]
    assert whole.text == "".join(pieces) == case["text"]


STOPPED = [case for case in EXPECTED["option_cases"] if "stop" in case["options"]]


@pytest.mark.parametrize("case", STOPPED, ids=lambda case: case["name"])
def test_stop_strings_end_hypotheses_as_in_the_reference(
    demo_client: Client, case: dict[str, Any]
) -> None:
    options = dict(case["options"])
    stop = options["stop"]
    if options.get("early_stopping") == "first":
        options["early_stopping"] = True
    whole = demo_client.generate(case["prompt_text"], **options)
    assert len(whole.sequences) == len(case["sequences"])
    for sequence, expected in zip(whole.sequences, case["sequences"], strict=True):
        assert list(sequence.token_ids) == expected["token_ids"]
        assert sequence.score == pytest.approx(expected["score"], rel=1e-4)
        assert sequence.finish_reason is FinishReason[expected["finish_reason"].upper()]
        assert not any(string in sequence.text for string in stop)
        assert expected["text"].startswith(sequence.text)
        left = expected["text"][len(sequence.text) :]
        is_stopped = sequence.finish_reason is FinishReason.STOP
        assert left.startswith(tuple(stop)) if is_stopped else not left
    with demo_client.stream(case["prompt_text"], **options) as stream:
        for _ in stream:
            pass
    assert stream.result.sequences == whole.sequences


def test_a_stopped_text_counts_its_prompt_as_a_whole_one_does(demo_client: Client) -> None:
    prompt = "TensorFlow is a library for numbers. " * 8
    options = {"max_new_tokens": 24, "do_sample": False}
    # What a request read is cached after its end.
    wait_until(lambda: demo_client.generate(prompt, **options).usage.cached_prompt_tokens)
    whole = demo_client.generate(prompt, **options)
    stopped = demo_client.generate(prompt, stop=[whole.text[8:12]], **options)
    assert stopped.finish_reason is FinishReason.STOP
    for name in ("cached_prompt_tokens", "padded_prompt_tokens", "padded_source_tokens"):
        assert getattr(stopped.usage, name) == getattr(whole.usage, name)


def test_a_worker_killed_in_mid_stream_is_restarted_and_costs_a_pause(
    demo: Service, demo_client: Client
) -> None:
    whole = demo_client.generate("TensorFlow is", **ENDLESS)
    made, resumed = demo.metric("shaperouter_graph_compiles_total"), demo.resumed()

    def streamed(kill: Callable[[], None]) -> tuple[list[int], str]:
        with demo_client.stream("TensorFlow is", **ENDLESS) as stream:
            tokens = list(next(stream).token_ids)
            kill()
            for delta in stream:
                tokens += delta.token_ids
        return tokens, stream.result.text

    for answer in demo.losing_worker(streamed):
        assert answer == (list(whole.token_ids), whole.text)
    assert demo.resumed() == resumed + 1
    assert demo.wait_for_log("worker died")["reason"] == "SIGKILL"
    # What the dead worker counted stays counted.
    wait_until(lambda: demo.metric("shaperouter_graph_compiles_total") >= made + 2)


def test_a_stream_closed_early_frees_its_slot(demo: Service, demo_client: Client) -> None:
    before = demo.metric("shaperouter_requests_total", code="CANCELLED")

    def is_cancelled() -> bool:
        with demo_client.stream("TensorFlow is", **ENDLESS) as stream:
            next(stream)
        wait_until(lambda: demo.metric("shaperouter_slots", state="active") == 0)
        return demo.metric("shaperouter_requests_total", code="CANCELLED") > before

    # If this process is starved, the stream ends before it can be closed.
    wait_until(is_cancelled)


def test_a_deadline_in_mid_stream_frees_its_slot(demo: Service, demo_client: Client) -> None:
    before = demo.metric("shaperouter_requests_total", code="DEADLINE_EXCEEDED")

    def is_cut_off() -> bool:
        with pytest.raises(DeadlineError):
            demo_client.generate("TensorFlow is", timeout=0.05, **ENDLESS)
        return demo.metric("shaperouter_requests_total", code="DEADLINE_EXCEEDED") > before

    demo_client.generate("TensorFlow is", max_new_tokens=500)
    # A router that is starved sees a call only after its deadline, and counts nothing.
    wait_until(is_cut_off)
    wait_until(lambda: demo.metric("shaperouter_slots", state="active") == 0)
