"""OpenAI's Responses over HTTP, without state."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from shaperouter.v1 import generation_pb2
from shaperouter_service.edge.http import event_stream
from shaperouter_service.errors import DeadlyRequestError, OverloadedError

if TYPE_CHECKING:
    from conftest import Talk

RESPONSES = "/v1/responses"
ASKED: dict[str, Any] = {"model": "tiny", "input": "hello", "temperature": 0}
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}
CALL = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'


async def response_to(talk: Talk, **asked: Any) -> dict[str, Any]:
    response = await talk.client.post(RESPONSES, json=ASKED | asked)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


async def events_of(talk: Talk, **asked: Any) -> list[dict[str, Any]]:
    """The events of a stream, each of which has its type as its name."""
    async with talk.client.stream(
        "POST", RESPONSES, json=ASKED | asked | {"stream": True}
    ) as response:
        lines = [line async for line in response.aiter_lines() if line and line[0] != ":"]
    names = [line.removeprefix("event: ") for line in lines[::2]]
    events = [json.loads(line.removeprefix("data: ")) for line in lines[1::2]]
    assert names == [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def without_ids(value: Any) -> Any:
    """A response without what differs between two of them."""
    if isinstance(value, dict):
        changing = {"id", "call_id", "created_at", "completed_at"}
        return {name: without_ids(each) for name, each in value.items() if name not in changing}
    return list(map(without_ids, value)) if isinstance(value, list) else value


def test_a_response_has_a_message(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        talk.answers("Yes.")
        body = await response_to(talk, instructions="Be brief", max_output_tokens=9)
        assert (body["object"], body["status"], body["error"]) == ("response", "completed", None)
        (message,) = body["output"]
        assert (message["role"], message["status"]) == ("assistant", "completed")
        assert message["content"] == [
            {"type": "output_text", "text": "Yes.", "annotations": [], "logprobs": []}
        ]
        assert (body["instructions"], body["store"]) == ("Be brief", False)
        usage = body["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        assert talk.prompt == "system:Be brief|user:hello|"
        assert talk.worker.requests[-1].options.max_new_tokens == 9

    talk(scenario)


def test_reasoning_text_and_calls_are_items(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        talk.answers(f"<think>Hm.</think>Let me add. {CALL}")
        body = await response_to(talk, tools=[TOOL])
        reasoning, message, call = body["output"]
        assert reasoning["content"] == [{"type": "reasoning_text", "text": "Hm."}]
        assert message["content"][0]["text"] == "Let me add."
        assert (call["type"], call["name"], call["arguments"]) == (
            "function_call",
            "add",
            '{"a": 1}',
        )
        assert body["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
        assert body["tools"] == [TOOL]

    talk(scenario)


def test_events_make_up_the_response(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        talk.answers(f"<think>Hm.</think>Let me add. {CALL}")
        whole = await response_to(talk, tools=[TOOL])
        events = await events_of(talk, tools=[TOOL])
        kinds = [event["type"].removeprefix("response.") for event in events]
        distinct = [
            kind for kind, before in zip(kinds, ["", *kinds], strict=False) if kind != before
        ]
        assert distinct == [
            "created", "in_progress",
            "output_item.added", "content_part.added", "reasoning_text.delta",
            "reasoning_text.done", "content_part.done", "output_item.done",
            "output_item.added", "content_part.added", "output_text.delta",
            "output_text.done", "content_part.done", "output_item.done",
            "output_item.added", "function_call_arguments.delta",
            "function_call_arguments.done", "output_item.done",
            "completed",
        ]  # fmt: skip
        final = events[-1]["response"]
        assert without_ids(final) == without_ids(whole)
        done = [event for event in events if event["type"] == "response.output_item.done"]
        assert [event["item"] for event in done] == final["output"]
        for kind, name in (("reasoning_text", "text"), ("output_text", "text")):
            pieces = [e["delta"] for e in events if e["type"] == f"response.{kind}.delta"]
            (end,) = [e[name] for e in events if e["type"] == f"response.{kind}.done"]
            assert "".join(pieces) == end
        assert events[0]["response"]["status"] == "in_progress"

    talk(scenario)


def test_a_response_that_is_cut_is_incomplete(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        talk.answers("Yes", generation_pb2.FINISH_REASON_LENGTH)
        body = await response_to(talk)
        assert body["status"] == body["output"][-1]["status"] == "incomplete"
        assert body["incomplete_details"] == {"reason": "max_output_tokens"}
        assert (await events_of(talk))[-1]["type"] == "response.incomplete"

    talk(scenario)


def test_a_text_that_follows_a_schema_is_all_text(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        text = '{"a": "<think></think>"}'
        talk.answers(text)
        form = {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True}
        body = await response_to(
            talk,
            text={"format": form},
            tools=[TOOL],
            chat_template_kwargs={"enable_thinking": True},
        )
        (message,) = body["output"]
        assert message["content"][0]["text"] == text
        assert body["text"] == {"format": form}
        assert talk.worker.requests[-1].grammar

    talk(scenario)


def test_an_empty_answer_is_an_empty_message(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        talk.answers("")
        assert (await response_to(talk))["output"][0]["content"][0]["text"] == ""

    talk(scenario)


def test_items_of_an_earlier_response_are_one_message(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        answer = [{"type": "output_text", "text": "I add", "annotations": []}]
        items = [
            {"role": "developer", "content": "brief"},
            {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
            {"type": "reasoning", "id": "r", "summary": [], "content": [
                {"type": "reasoning_text", "text": "hm"}
            ]},
            {"type": "message", "role": "assistant", "content": answer, "status": "completed"},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":7}'},
            {"type": "function_call", "call_id": "c2", "name": "add", "arguments": '{"a":8}'},
            {"type": "function_call_output", "call_id": "c1", "output": "9"},
            {"type": "function_call_output", "call_id": "c2", "output": "10"},
        ]  # fmt: skip
        await response_to(talk, input=items)
        assert talk.prompt == ("system:brief|user:hello|assistant:I addhmc17c28|tool:9|tool:10|")

    talk(scenario)


@pytest.mark.parametrize(
    ("changes", "param", "told"),
    [
        ({"input": None}, "input", "must be a text or a list of items, got None"),
        ({"input": [3]}, "input[0].type", "got 3"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type", "item_reference"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role", "got 'tool'"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0]",
            "must be of type 'input_text', as models here read nothing else, got 'input_image'",
        ),
        (
            {"input": [{"type": "reasoning", "encrypted_content": "x"}]},
            "input[0].encrypted_content",
            "is not supported",
        ),
        (
            {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}]},
            "input[0].arguments",
            "must be a text with a JSON object, got '{'",
        ),
        ({"input": [{"type": "function_call_output"}]}, "input[0].call_id", "got None"),
        ({"store": True}, "store", "the service keeps no responses"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "keeps no responses"),
        ({"conversation": "conv_1"}, "conversation", "keeps no responses"),
        ({"background": True}, "background", "keeps no responses"),
        ({"truncation": "auto"}, "truncation", "must be 'disabled'"),
        ({"include": ["message.output_text.logprobs"]}, "include", "got ["),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type", "must be 'text'"),
        (
            {"text": {"format": {"type": "json_schema", "schema": {"type": "nothing"}}}},
            "text.format.schema",
            "nothing",
        ),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", "is required with"),
        ({"text": {"format": {"schema": {}}}}, "text.format.type", "got none"),
        ({"text": {"unheard": 1}}, "text.unheard", "is unknown"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort", "does not read"),
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary", "is not supported"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "must be 'function'"),
        ({"tool_choice": {"type": "mcp"}}, "tool_choice", "must be 'auto', 'none', 'required' or"),
        (
            {"tool_choice": {"type": "function", "name": "f"}},
            "tool_choice",
            "must name one of tools",
        ),
        ({"max_output_tokens": 0}, "max_output_tokens", "must be at least 1, got 0"),
        ({"max_tokens": 1}, "max_tokens", "is unknown"),
        ({"num_return_sequences": 2}, "num_return_sequences", "must be 1"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    talk: Any, changes: dict[str, Any], param: str, told: str
) -> None:
    async def scenario(talk: Talk) -> None:
        for streams in (False, True):
            asked = ASKED | changes | {"stream": streams}
            response = await talk.client.post(RESPONSES, json=asked)
            assert response.status_code == 400
            error = response.json()["error"]
            assert error["param"] == param
            assert told in error["message"]
        assert not talk.worker.requests

    talk(scenario)


def test_an_error_before_the_first_event_is_a_status(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        talk.worker.script = [OverloadedError("tiny", 4.5, 1.0)]
        response = await talk.client.post(RESPONSES, json=ASKED | {"stream": True})
        assert response.status_code == 429

    talk(scenario)


def test_an_error_within_a_stream_fails_the_response(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        talk.worker.script[1:] = [DeadlyRequestError("r", lost=3, isolated=2)]
        last = (await events_of(talk))[-1]
        assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
        assert last["response"]["error"]["code"] == "deadly_request"
        assert "retry_after" not in last["response"]["error"]

    talk(scenario)


def test_the_error_of_a_failed_response_says_when_to_try_again(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        talk.worker.script[1:] = [OverloadedError("tiny", 4.5, 1.0)]
        assert (await events_of(talk))[-1]["response"]["error"]["retry_after"] == 3.5

    talk(scenario)


def test_a_response_that_fails_after_a_long_wait_has_begun(
    talk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "PING", 0.02)

    async def scenario(talk: Talk) -> None:
        talk.worker.script = [talk.worker.hold, DeadlyRequestError("r", lost=3, isolated=2)]
        body = ASKED | {"stream": True}
        async with talk.client.stream("POST", RESPONSES, json=body) as response:
            lines = response.aiter_lines()
            while not (await anext(lines)).startswith(": ping"):
                pass
            talk.worker.released.set()
            kinds = [line.removeprefix("event: ") async for line in lines if "event: " in line]
        assert kinds == ["response.created", "response.in_progress", "response.failed"]

    talk(scenario)
