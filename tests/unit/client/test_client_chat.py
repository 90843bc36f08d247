"""The requests that conversations become."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from shaperouter import AsyncClient, Client, InvalidArgumentError
from shaperouter.v1 import generation_pb2

if TYPE_CHECKING:
    from conftest import FakeShaperouter

USER = {"role": "user", "content": "Add 1 and 2."}
TOOL = {"type": "function", "function": {"name": "add"}}


def test_a_conversation_is_sent_with_tools_and_arguments(
    fake: FakeShaperouter, client: Client
) -> None:
    calls = [{"function": {"name": "add", "arguments": {"b": 1, "a": 2}}}]
    parts = [{"type": "text", "text": "3"}]
    client.chat(
        [USER, {"role": "assistant", "tool_calls": calls}, {"role": "tool", "content": parts}],
        tools=[TOOL],
        chat_template_kwargs={"enable_thinking": False},
        model="demo",
        seed=5,
    )
    message = generation_pb2.ChatMessage
    assert fake.requests == [
        generation_pb2.GenerateRequest(
            model="demo",
            messages=[
                message(role="user", content="Add 1 and 2."),
                message(role="assistant", other_fields=json.dumps({"tool_calls": calls})),
                message(role="tool", other_fields=json.dumps({"content": parts})),
            ],
            tools=[json.dumps(TOOL)],
            chat_template_kwargs='{"enable_thinking": false}',
            options=generation_pb2.GenerationOptions(seed=5),
        )
    ]


def test_an_answer_is_streamed(fake: FakeShaperouter, client: Client) -> None:
    with client.stream_chat([USER]) as stream:
        assert "".join(delta.text for delta in stream) == " a library"
    assert isinstance(fake.requests[0], generation_pb2.GenerateStreamRequest)


def test_the_client_for_asyncio_sends_the_same(fake: FakeShaperouter) -> None:
    async def call() -> None:
        async with AsyncClient(fake.address) as client:
            await client.chat([USER])

    asyncio.run(call())
    assert [each.content for each in fake.requests[0].messages] == ["Add 1 and 2."]


@pytest.mark.parametrize(
    ("messages", "others", "field"),
    [
        ([], {}, "messages"),
        ("hello", {}, "messages"),
        (["hello"], {}, "messages[0]"),
        ([{"role": 1}], {}, "messages[0].role"),
        ([USER, USER | {"extra": object()}], {}, "messages[1]"),
        ([USER], {"tools": ["add"]}, "tools[0]"),
        ([USER], {"chat_template_kwargs": {"x": float("nan")}}, "chat_template_kwargs"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_field(
    client: Client, messages: Any, others: Any, field: str
) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        client.chat(messages, **others)
    assert error.value.violations[0].field == field
