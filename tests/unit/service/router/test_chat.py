"""Conversations in place of prompts, from the call to the worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from shaperouter.v1 import generation_pb2

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Encode = Callable[[str], Sequence[int]]

HELLO = generation_pb2.ChatMessage(role="user", content="hello")


def chat(*messages: generation_pb2.ChatMessage, **fields: str) -> generation_pb2.GenerateRequest:
    return generation_pb2.GenerateRequest(messages=messages, **fields)


@pytest.fixture
def template(checkpoint: Path) -> Iterator[None]:
    """Gives the model a chat template."""
    path = checkpoint / "chat_template.jinja"
    path.write_text(
        "{% for each in messages %}{{ each.role }}: {{ each.content }}|{% endfor %}"
        "{{ raise_exception('Too sad') if sad }}"
    )
    yield
    path.unlink()


@pytest.mark.usefixtures("template")
def test_a_worker_gets_the_tokens_of_the_rendered_conversation(play: Play, encode: Encode) -> None:
    expected = encode("user: hello|assistant: hi|")

    async def scenario(router: Router, worker: FakeWorker) -> None:
        answer = generation_pb2.ChatMessage(role="assistant", content="hi")
        response = await router.generation.Generate(chat(HELLO, answer))
        assert response.completion.usage.prompt_tokens == len(expected)
        (run,) = worker.requests
        assert list(run.token_ids) == expected

    play(scenario)


@pytest.mark.usefixtures("template")
@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (chat(HELLO, text="x"), "must not be set together with text"),
        (chat(generation_pb2.ChatMessage(content="x")), "messages[0].role: must not be empty"),
        (chat(HELLO, decoder_text="x"), "decoder_text: must not be set"),
        (chat(HELLO, chat_template_kwargs='{"sad": true}'), "cannot render them: Too sad"),
        (
            chat(generation_pb2.ChatMessage(role="user", content="x" * 2**19)),
            "messages: must have at most",
        ),
    ],
)
def test_an_invalid_conversation_is_refused(
    play: Play, request_: generation_pb2.GenerateRequest, told: str
) -> None:
    async def scenario(router: Router, _worker: FakeWorker) -> None:
        error = await router.error(router.generation.Generate(request_))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert told in (error.details() or "")

    play(scenario)


def test_a_model_without_a_template_says_so(play: Play) -> None:
    async def scenario(router: Router, _worker: FakeWorker) -> None:
        error = await router.error(router.generation.Generate(chat(HELLO)))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "messages: model tiny has no chat template" in (error.details() or "")

    play(scenario)
