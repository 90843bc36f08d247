"""Several prompts in one call, with both clients."""

from __future__ import annotations

import asyncio
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo

from harness.waiting import TIMEOUT, wait_until
from shaperouter import (
    AsyncClient,
    CallCancelledError,
    Client,
    DeadlineError,
    Generation,
    InternalError,
    InvalidArgumentError,
    PromptsError,
)
from shaperouter._connection import Calls
from shaperouter.v1 import generation_pb2

if TYPE_CHECKING:
    from conftest import FakeShaperouter

Generate = Callable[..., Any]


def blocking(address: str, *arguments: Any, **settings: Any) -> Any:
    with Client(address, timeout=TIMEOUT) as client:
        return client.generate(*arguments, **settings)


def asynchronous(address: str, *arguments: Any, **settings: Any) -> Any:
    async def call() -> Any:
        async with AsyncClient(address, timeout=TIMEOUT) as client:
            return await client.generate(*arguments, **settings)

    return asyncio.run(call())


both = pytest.mark.parametrize("generate", [blocking, asynchronous])


def echoing(fake: FakeShaperouter) -> None:
    """Makes the fake answer each prompt with its own text."""
    template = fake.response

    def answer(request: generation_pb2.GenerateRequest) -> generation_pb2.GenerateResponse:
        made = generation_pb2.GenerateResponse()
        made.CopyFrom(template)
        made.sequences[0].text = request.text or str(list(request.token_ids.ids))
        return made

    fake.answer = answer


@both
def test_generations_have_the_order_of_their_prompts(
    fake: FakeShaperouter, generate: Generate
) -> None:
    echoing(fake)
    prompts = [f"prompt {i}" for i in range(30)]
    assert [made.text for made in generate(fake.address, prompts)] == prompts


@both
def test_prompts_can_be_token_ids(fake: FakeShaperouter, generate: Generate) -> None:
    echoing(fake)
    assert [made.text for made in generate(fake.address, [[1, 2], (3,)])] == ["[1, 2]", "[3]"]


@both
def test_one_list_of_token_ids_is_one_prompt(fake: FakeShaperouter, generate: Generate) -> None:
    assert isinstance(generate(fake.address, [1, 2]), Generation)
    assert len(fake.requests) == 1


@both
def test_every_prompt_is_sent_with_the_options(fake: FakeShaperouter, generate: Generate) -> None:
    generate(fake.address, ["a", "b"], model="demo", seed=4)
    for request in fake.requests:
        assert isinstance(request, generation_pb2.GenerateRequest)
        assert (request.model, request.options.seed) == ("demo", 4)


@both
def test_failed_prompt_does_not_affect_the_others(
    fake: FakeShaperouter, generate: Generate
) -> None:
    echoing(fake)
    answer = fake.answer

    def fail_b(request: generation_pb2.GenerateRequest) -> generation_pb2.GenerateResponse:
        if request.text == "b":
            raise ZeroDivisionError("in the service")
        return answer(request)

    fake.answer = fail_b
    with pytest.raises(PromptsError) as caught:
        generate(fake.address, ["a", "b", "c", "\udc80"])
    first, second, third, fourth = caught.value.results
    assert (str(first), str(third)) == ("a", "c")
    assert isinstance(second, InternalError)
    assert isinstance(fourth, InvalidArgumentError)
    assert str(caught.value).startswith("2 of 4 prompts failed: prompt[1]: ")
    assert str(caught.value).endswith(", and 1 more")
    assert caught.value.code is second.code


@both
def test_max_concurrency_limits_the_prompts_in_progress(
    fake: FakeShaperouter, generate: Generate
) -> None:
    lock, under_way, most = threading.Lock(), 0, 0
    all_there = threading.Barrier(3)

    def meet(context: grpc.ServicerContext) -> None:
        nonlocal under_way, most
        del context
        with lock:
            under_way += 1
            most = max(most, under_way)
        all_there.wait(TIMEOUT)
        with lock:
            under_way -= 1

    fake.before_answer = meet
    generate(fake.address, ["x"] * 9, max_concurrency=3)
    assert most <= 3


@both
def test_prompts_share_the_deadline(fake: FakeShaperouter, generate: Generate) -> None:
    fake.before_answer = fake.hold
    with pytest.raises(PromptsError) as caught:
        generate(fake.address, ["x"] * 3, max_concurrency=1, timeout=0.3)
    assert all(isinstance(result, DeadlineError) for result in caught.value.results)
    assert "before this prompt was sent" in str(caught.value.results[-1])


@both
def test_errors_name_the_whole_timeout(fake: FakeShaperouter, generate: Generate) -> None:
    fake.before_answer = fake.hold
    with pytest.raises(PromptsError) as caught:
        generate(fake.address, ["x"] * 2, timeout=0.3)
    # On a busy machine the time may end before a prompt is sent. That error names it, too.
    messages = [str(result) for result in caught.value.results]
    assert [message for message in messages if "the timeout of 0.3 s" not in message] == []


@both
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_invalid_max_concurrency_is_refused(
    fake: FakeShaperouter, generate: Generate, value: Any
) -> None:
    with pytest.raises(InvalidArgumentError, match="max_concurrency: must be"):
        generate(fake.address, ["x", "y"], max_concurrency=value)
    assert not fake.requests


@both
def test_unknown_option_is_a_type_error(fake: FakeShaperouter, generate: Generate) -> None:
    with pytest.raises(TypeError, match="unknown option 'sead'"):
        generate(fake.address, ["x", "y"], sead=1)


def test_closing_the_client_cancels_all_prompts(fake: FakeShaperouter) -> None:
    fake.before_answer = fake.hold
    client = Client(fake.address)
    failures: list[PromptsError] = []

    def call() -> None:
        try:
            client.generate(["x"] * 20, max_concurrency=2)
        except PromptsError as error:
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert fake.entered.wait(TIMEOUT)
    client.close()
    thread.join(TIMEOUT)
    (error,) = failures
    assert all(isinstance(result, CallCancelledError) for result in error.results)


def test_closing_the_asyncio_client_cancels_all_prompts(fake: FakeShaperouter) -> None:
    fake.before_answer = fake.hold

    async def scenario() -> PromptsError:
        client = AsyncClient(fake.address)
        call = asyncio.ensure_future(client.generate(["x"] * 20, max_concurrency=2))
        await asyncio.to_thread(fake.entered.wait, TIMEOUT)
        await client.close()
        with pytest.raises(PromptsError) as raised:
            await asyncio.wait_for(call, TIMEOUT)
        return raised.value

    results = asyncio.run(scenario()).results
    assert [type(result) for result in results] == [CallCancelledError] * 20


def test_closing_the_client_does_not_wait_for_retries(fake: FakeShaperouter) -> None:
    fake.before_answer = fake.fail(
        grpc.StatusCode.UNAVAILABLE, "later", RetryInfo(retry_delay={"seconds": 60})
    )
    client = Client(fake.address, timeout=TIMEOUT * 100)
    failures: list[PromptsError] = []

    def call() -> None:
        try:
            client.generate(["x", "y"])
        except PromptsError as error:
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    wait_until(lambda: len(fake.requests) == 2)
    client.close()
    thread.join(TIMEOUT)
    assert not thread.is_alive()
    assert [type(result) for result in failures[0].results] == [CallCancelledError] * 2


def test_interruption_cancels_all_prompts(fake: FakeShaperouter) -> None:
    fake.before_answer = fake.hold
    code = (
        "import signal, sys, shaperouter\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"shaperouter.Client({fake.address!r}).generate(['x'] * 20, max_concurrency=2)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as process:
        assert fake.entered.wait(TIMEOUT)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT)
    assert errors.decode().rstrip().endswith("KeyboardInterrupt")
    assert fake.cancelled.wait(TIMEOUT)
    assert len(fake.requests) <= 2


def test_prompts_that_waited_are_not_sent_after_an_interruption() -> None:
    calls, method = Calls(), Mock()
    calls.cancel()
    with pytest.raises(CallCancelledError):
        calls.send(method, None, None)
    assert not method.mock_calls


def test_cancelling_the_task_cancels_all_prompts(fake: FakeShaperouter) -> None:
    fake.before_answer = fake.hold

    async def scenario() -> None:
        async with AsyncClient(fake.address) as client:
            task = asyncio.create_task(client.generate(["x"] * 20, max_concurrency=2))
            assert await asyncio.to_thread(fake.entered.wait, TIMEOUT)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(fake.cancelled.wait, TIMEOUT)

    asyncio.run(scenario())
    assert len(fake.requests) <= 2


def test_the_error_survives_pickling() -> None:
    error = PromptsError.of([InternalError("broken")])
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), str(copy.results[0])) == (str(error), "broken")
