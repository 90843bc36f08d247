"""OpenAI's own client, unmodified, calls tools through a router with a scripted worker."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from harness.other_clients import run_with_openai

if TYPE_CHECKING:
    from conftest import Talk

TEXT = '<think>Hm.</think>Let me add. <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
MESSAGE = ["Hm.", "Let me add.", [["add", '{"a": 1}']]]


@pytest.fixture
def found(talk: Any, free_address: str) -> dict[str, Any]:
    """What the calls of `openai_conversations.py` found."""
    result: dict[str, Any] = {}

    async def scenario(talk: Talk) -> None:
        talk.answers(TEXT)
        url = f"http://{free_address}"
        output = await asyncio.to_thread(run_with_openai, "openai_conversations.py", url)
        result.update(json.loads(output))

    talk(scenario, http_listen=free_address, patience=600.0)
    return result


def test_the_client_reads_messages_items_and_events(found: dict[str, Any]) -> None:
    chat, responses = found["chat"], found["responses"]
    for kind in ("whole", "streamed", "again"):
        assert chat[kind] == responses[kind] == MESSAGE
    assert found["asynchronous"] == {"whole": MESSAGE, "streamed": MESSAGE}
    assert chat["finish_reasons"] == ["tool_calls"] * 2
    assert "tool_calls.function.arguments.done" in chat["kinds"]
    assert (responses["status"], responses["text"]) == ("completed", "Let me add.")
    assert responses["last"] == ["response.completed"] * 2
    assert responses["reasoning_tokens"] > 0
    assert found["refused"] == [400, "previous_response_id"]
