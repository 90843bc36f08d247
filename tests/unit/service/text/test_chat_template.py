"""Conversations rendered by chat templates, and the requests that have them."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import transformers

from shaperouter.v1 import generation_pb2
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.generation.chat import RESERVED_ARGUMENTS, Chat, chat_violations
from shaperouter_service.generation.limits import MAX_MESSAGES
from shaperouter_service.text import ChatTemplateError, Tokenizer
from shaperouter_service.text.chat_template import render_chat
from shaperouter_service.wire.chat import chat_from_message

USER = {"role": "user", "content": "Grüße <b>"}
TEMPLATE = """\
{%- if tools %}{{ tools | tojson }}{% endif %}
{%- for message in messages %}
    {%- if message.role == 'bad' %}{{ raise_exception('No role bad') }}{% endif %}
<{{ message.role }}>{{ message.content }}{{ message.tool_calls | tojson if message.tool_calls }}
{% endfor %}
{%- if add_generation_prompt %}<assistant{{ ' thinking' if enable_thinking }}>{% endif %}"""


@pytest.fixture
def with_template(checkpoint: Path, tmp_path: Path) -> Any:
    """Returns a tokenizer that has a chat template."""

    def load(template: str) -> Tokenizer:
        copy = shutil.copytree(checkpoint, tmp_path / "copy")
        (copy / "chat_template.jinja").write_text(template, encoding="utf-8")
        return Tokenizer(copy)

    return load


def test_a_conversation_is_rendered_up_to_the_answer(with_template: Any) -> None:
    rendered = with_template(TEMPLATE).render_chat(Chat(messages=[USER]))
    assert rendered == "<user>Grüße <b>\n<assistant>"


def test_tools_arguments_and_other_fields_reach_the_template_in_order(with_template: Any) -> None:
    call = {"name": "add", "arguments": {"b": 1, "a": 2.0}}
    chat = Chat(
        messages=[USER, {"role": "assistant", "content": "", "tool_calls": [call]}],
        tools=[{"type": "function", "function": {"name": "add"}}],
        template_arguments={"enable_thinking": True},
    )
    tools = '[{"type": "function", "function": {"name": "add"}}]'
    assert with_template(TEMPLATE).render_chat(chat) == (
        f"{tools}<user>Grüße <b>\n<assistant>[{json.dumps(call)}]\n<assistant thinking>"
    )


def test_a_template_may_refuse_a_conversation(with_template: Any) -> None:
    with pytest.raises(ChatTemplateError, match=r"^No role bad$"):
        with_template(TEMPLATE).render_chat(Chat(messages=[{"role": "bad", "content": "x"}]))


@pytest.mark.parametrize("template", ["{% for %}", "{{ 1 // 0 }}", "{{ messages.x.y }}"])
def test_a_template_that_fails_says_why(with_template: Any, template: str) -> None:
    with pytest.raises(ChatTemplateError, match=r"."):
        with_template(template).render_chat(Chat(messages=[USER]))


def test_a_template_cannot_leave_its_sandbox(with_template: Any) -> None:
    with pytest.raises(ChatTemplateError, match="unsafe"):
        with_template("{{ ''.__class__.__mro__ }}").render_chat(Chat(messages=[USER]))


def test_a_template_that_does_not_end_is_stopped() -> None:
    class Endless:
        def apply_chat_template(self, *args: Any, **kwargs: Any) -> str:
            while True:
                pass

    with pytest.raises(ChatTemplateError, match=r"longer than 0\.05 s"):
        render_chat(Endless(), Chat(messages=[USER]), max_seconds=0.05)


def test_a_checkpoint_without_a_template_has_none(tokenizer: Tokenizer) -> None:
    assert not tokenizer.has_chat_template


def test_no_argument_can_replace_what_transformers_is_given() -> None:
    method = transformers.PreTrainedTokenizerBase.apply_chat_template
    names = {
        name
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    }
    assert names - {"documents"} <= RESERVED_ARGUMENTS


@pytest.mark.parametrize(
    ("chat", "field", "told"),
    [
        (Chat(messages=[]), "messages", "must not be empty"),
        (Chat(messages=[USER] * (MAX_MESSAGES + 1)), "messages", "at most 4096 messages, got 4097"),
        (Chat(messages=[USER], tools=[{}] * 1025), "tools", "at most 1024 tools, got 1025"),
        (Chat(messages=[{"role": "", "content": "x"}]), "messages[0].role", "must not be empty"),
        (
            Chat(messages=[USER, {"role": "user", "content": [{"type": "image"}]}]),
            "messages[1].content[0]",
            "must be of type 'text', as models here read nothing else, got 'image'",
        ),
        (
            Chat(messages=[{"role": "user", "content": [{"type": "text"}]}]),
            "messages[0].content[0]",
            "must be a part",
        ),
        (
            Chat(messages=[{"role": "user", "content": 3}]),
            "messages[0].content",
            "must be a text or a list of parts",
        ),
        (
            Chat(messages=[USER], template_arguments={"chat_template": "x"}),
            "chat_template_kwargs",
            "must not set chat_template",
        ),
    ],
)
def test_an_invalid_conversation_names_its_field(chat: Chat, field: str, told: str) -> None:
    (violation,) = chat_violations(chat)
    assert violation.field == field
    assert told in violation.description


def test_a_valid_conversation_has_no_violations() -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "x"}]}
    silent = {"role": "assistant", "tool_calls": []}
    assert list(chat_violations(Chat(messages=[USER, parts, silent]))) == []


def request(*others: str, tools: Sequence[str] = ()) -> generation_pb2.GenerateRequest:
    messages = [generation_pb2.ChatMessage(role="user", other_fields=each) for each in others]
    return generation_pb2.GenerateRequest(messages=messages, tools=tools)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (request("["), "messages[0].other_fields"),
        (request("", '{"role": "system"}'), "messages[1].other_fields"),
        (request("", tools=["[]"]), "tools[0]"),
        (request("", tools=["[" * 100_000]), "tools[0]"),
    ],
)
def test_fields_that_are_not_json_objects_are_refused(
    message: generation_pb2.GenerateRequest, field: str
) -> None:
    with pytest.raises(InvalidRequestError) as error:
        chat_from_message(message)
    assert error.value.violations[0].field == field


def test_a_request_without_messages_has_no_conversation() -> None:
    assert chat_from_message(generation_pb2.GenerateRequest(text="x")) is None
