"""Tool calls, reasoning and message parts of chat completions over HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from shaperouter.v1 import generation_pb2, worker_pb2

if TYPE_CHECKING:
    from conftest import Talk

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "hello"}
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
HELLO: dict[str, Any] = {"model": "tiny", "messages": [USER], "temperature": 0}
WITH_TOOLS = HELLO | {"tools": [ADD]}
CALL = '<tool_call>{"name": "add", "arguments": {"a": 1.0}}</tool_call>'


async def message_of(talk: Talk, **asked: Any) -> dict[str, Any]:
    response = await talk.client.post(CHAT, json=WITH_TOOLS | asked)
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    return choice["message"] | {"finish_reason": choice["finish_reason"]}


async def streamed_message(talk: Talk, **asked: Any) -> dict[str, Any]:
    """The message that the deltas of a stream make up, as clients put it together."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    async with talk.client.stream("POST", CHAT, json=WITH_TOOLS | asked | {"stream": True}) as got:
        lines = [line.removeprefix("data: ") async for line in got.aiter_lines()]
    for line in filter(None, lines):
        if line.startswith((":", "[")):
            continue
        (choice,) = json.loads(line)["choices"]
        message["finish_reason"] = choice["finish_reason"]
        delta = choice["delta"]
        for name in ("content", "reasoning_content"):
            message[name] += delta.get(name) or ""
        for part in delta.get("tool_calls", ()):
            if part["index"] == len(message["tool_calls"]):
                assert part["function"]["arguments"] == ""
                message["tool_calls"].append(part)
            else:
                call = message["tool_calls"][part["index"]]["function"]
                call["arguments"] += part["function"]["arguments"]
    return message


def test_log_probabilities_have_the_bytes_of_parts_of_a_character(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        talk.answers("𝄞")
        response = await talk.client.post(CHAT, json=HELLO | {"logprobs": True, "top_logprobs": 1})
        (choice,) = response.json()["choices"]
        assert choice["message"]["content"] == "𝄞"
        tokens = choice["logprobs"]["content"]
        assert [token["bytes"] for token in tokens] == [[byte] for byte in "𝄞".encode()]
        (likeliest,) = tokens[0]["top_logprobs"]
        assert likeliest["bytes"] == list(likeliest["token"].encode())

    talk(scenario)


def test_calls_of_tools_are_told_from_text(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        talk.answers(f"Let me add.\n{CALL}\n{CALL}")
        whole, streamed = await message_of(talk), await streamed_message(talk)
        for message in (whole, streamed):
            assert message["content"] == "Let me add."
            assert message["finish_reason"] == "tool_calls"
            assert [call["type"] for call in message["tool_calls"]] == ["function"] * 2
            assert len({call["id"] for call in message["tool_calls"]}) == 2
            assert [call["function"] for call in message["tool_calls"]] == [
                {"name": "add", "arguments": '{"a": 1.0}'}
            ] * 2
        assert talk.prompt == "add user:hello|"

    talk(scenario)


def test_a_message_that_only_calls_has_no_content(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        talk.answers(CALL)
        assert (await message_of(talk))["content"] is None

    talk(scenario)


def test_a_malformed_call_stays_text(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        text = '<tool_call>{"name": add}</tool_call>'
        talk.answers(text)
        for message in (await message_of(talk), await streamed_message(talk)):
            assert (message["content"], message["finish_reason"]) == (text, "stop")

    talk(scenario)


def test_without_tools_or_with_choice_none_nothing_is_a_call(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        talk.answers(CALL)
        for asked in ({"tools": None}, {"tool_choice": "none"}):
            message = await message_of(talk, **asked)
            assert (message["content"], message["finish_reason"]) == (CALL, "stop")
            assert talk.prompt == "user:hello|"

    talk(scenario)


def test_a_single_call_ends_the_answer_and_usage_says_what_was_cached(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        talk.answers(CALL)
        first = talk.worker.script[0]
        assert isinstance(first, worker_pb2.RunResponse)
        first.tokens.input_usage.cached_prompt_tokens = 32
        asked = WITH_TOOLS | {"tool_choice": "required", "parallel_tool_calls": False}
        body = (await talk.client.post(CHAT, json=asked)).json()
        assert body["choices"][0]["finish_reason"] == "tool_calls"
        assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 32}

    talk(scenario)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "add"}}])
def test_a_required_call_constrains_the_answer(talk: Any, choice: Any) -> None:
    async def scenario(talk: Talk) -> None:
        talk.answers(CALL)
        message = await message_of(talk, tool_choice=choice)
        assert message["finish_reason"] == "tool_calls"
        (request,) = talk.worker.requests
        assert all(part in request.grammar for part in ("<tool_call>", "add"))

    talk(scenario)


def test_an_answer_in_a_format_may_call_a_tool_instead(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        answer = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": 7}}}
        talk.answers(CALL)
        for read in (message_of, streamed_message):
            message = await read(talk, response_format=answer)
            assert message["finish_reason"] == "tool_calls"
            assert [call["function"]["name"] for call in message["tool_calls"]] == ["add"]
        talk.answers("7")
        message = await message_of(talk, response_format=answer)
        assert (message["content"], message["finish_reason"]) == ("7", "stop")
        for request in talk.worker.requests:
            assert all(part in request.grammar for part in ("<tool_call>", "add", "const"))

    talk(scenario)


@pytest.mark.parametrize(
    "parameters",
    [{"not": {}}, {"type": "object", "description": "long " * 20_000}],
    ids=["that cannot be enforced", "that is too long"],
)
def test_a_tool_with_a_schema_may_be_called_beside_a_format(talk: Any, parameters: Any) -> None:
    async def scenario(talk: Talk) -> None:
        tool = {"type": "function", "function": {"name": "add", "parameters": parameters}}
        talk.answers(CALL)
        asked = {"tools": [tool], "response_format": {"type": "json_object"}}
        assert (await message_of(talk, **asked))["finish_reason"] == "tool_calls"
        assert "add" in talk.worker.requests[-1].grammar

    talk(scenario)


def test_clients_may_call_a_tool_strict_whether_a_call_is_required_or_not(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        strict = {"type": "function", "function": ADD["function"] | {"strict": True}}
        talk.answers(CALL)
        for choice in ("auto", "none", "required"):
            await message_of(talk, tools=[strict], tool_choice=choice)
        assert [bool(request.grammar) for request in talk.worker.requests] == [False, False, True]

    talk(scenario)


def test_an_answer_with_one_call_at_most_ends_after_it(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        talk.answers(CALL)
        script = talk.worker.script[:-1]
        talk.worker.script = [*script, talk.worker.tokens(3), talk.worker.hold]
        for read in (message_of, streamed_message):
            message = await read(talk, parallel_tool_calls=False)
            assert len(message["tool_calls"]) == 1
            assert message["finish_reason"] == "tool_calls"

    talk(scenario)


def test_reasoning_is_apart_from_the_answer(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        talk.answers("<think>\nHm.\n</think>\n\nYes.")
        for message in (await message_of(talk), await streamed_message(talk)):
            assert (message["reasoning_content"], message["content"]) == ("Hm.", "Yes.")
        usage = (await talk.client.post(CHAT, json=HELLO)).json()["usage"]
        tokens = usage["completion_tokens_details"]["reasoning_tokens"]
        assert 0 < tokens < usage["completion_tokens"]

    talk(scenario)


def test_reasoning_that_the_prompt_begins_is_reasoning(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        talk.answers("Hm.</think>Yes.")
        thinks = {"chat_template_kwargs": {"enable_thinking": True}}
        message = await message_of(talk, **thinks)
        assert (message["reasoning_content"], message["content"]) == ("Hm.", "Yes.")
        talk.answers("Hm", generation_pb2.FINISH_REASON_LENGTH)
        message = await message_of(talk, **thinks)
        assert (message["reasoning_content"], message["content"]) == ("Hm", None)
        assert message["finish_reason"] == "length"
        message = await message_of(talk)
        assert message["content"] == "Hm"

    talk(scenario)


def test_earlier_calls_reasoning_and_parts_reach_the_template(talk: Any) -> None:
    async def scenario(talk: Talk) -> None:
        parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
        call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":7}'}}
        messages = [
            {"role": "developer", "content": "brief"},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "8"},
        ]
        await message_of(talk, messages=messages, tools=None)
        assert talk.prompt == "system:brief|user:one\ntwo|assistant:hmc17|tool:8|"

    talk(scenario)


@pytest.mark.parametrize(
    ("changes", "param", "told"),
    [
        ({"tools": [{"type": "custom"}]}, "tools[0].type", "must be 'function', got 'custom'"),
        ({"tools": [{"type": "function"}]}, "tools[0].function.name", "got None"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": 1}}]},
            "tools[0].function.parameters",
            "must be an object, got 1",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "strict": "yes"}}]},
            "tools[0].function.strict",
            "must be true or false, got 'yes'",
        ),
        (
            {"tool_choice": {"type": "function"}},
            "tool_choice",
            "must be 'auto', 'none', 'required'",
        ),
        (
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
            "tool_choice",
            "must name one of tools, got 'f'",
        ),
        (
            {"tool_choice": "required", "regex": "a"},
            "regex",
            "must not be set if tool_choice requires a call",
        ),
        (
            {
                "tool_choice": "required",
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "f", "strict": True, "parameters": {"type": "real"}},
                    }
                ],
            },
            "tools",
            "the parameters of f: cannot be used: Invalid type: real",
        ),
        (
            {
                "tool_choice": "required",
                "tools": [
                    {
                        "type": "function",
                        "function": {
                            "name": "f",
                            "strict": True,
                            "parameters": {"type": "object", "description": "a" * 70_000},
                        },
                    }
                ],
            },
            "tools",
            "the parameters of f: must have at most 65536 characters",
        ),
        ({"parallel_tool_calls": 0}, "parallel_tool_calls", "must be true or false, got 0"),
        ({"reasoning_effort": "low"}, "reasoning_effort", "does not read reasoning_effort"),
        ({"chat_template_kwargs": {"x": 1}}, "chat_template_kwargs.x", "does not read x"),
        (
            {"messages": [USER | {"content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0]",
            "must be of type 'text', as models here read nothing else, got 'image_url'",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]},
            "messages[0].tool_calls[0].function.arguments",
            "must be a text with a JSON object, got None",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [3]}]},
            "messages[0].tool_calls[0]",
            "must be a call of a function with a name, got 3",
        ),
        ({"messages": [USER | {"audio": {"id": "x"}}]}, "messages[0].audio", "not supported"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    talk: Any, changes: dict[str, Any], param: str, told: str
) -> None:
    async def scenario(talk: Talk) -> None:
        response = await talk.client.post(CHAT, json=WITH_TOOLS | changes)
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["param"] == param
        assert told in error["message"]
        assert not talk.worker.requests

    talk(scenario)
