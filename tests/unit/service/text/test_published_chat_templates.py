"""Conversations become the prompts that Transformers makes of them with published templates."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from shaperouter.v1 import generation_pb2
from shaperouter_service.text import ChatTemplateError, Tokenizer
from shaperouter_service.text.chat_template import render_chat
from shaperouter_service.wire.chat import chat_from_message

GOLDENS = Path(__file__).parents[3] / "goldens"
EXPECTED = json.loads((GOLDENS / "chat_templates.json").read_text(encoding="utf-8"))
CONVERSATIONS, TEMPLATES = EXPECTED["conversations"], EXPECTED["templates"]
PLAIN = ("a question", "a system message", "several turns", "an answer to continue after")
WITH_TOOLS, WITHOUT_TOOLS = ("tools", "tools and a system message"), ("phi3.5",)


@pytest.fixture(scope="module")
def directory_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Writes a tokenizer with the special tokens and the chat template of a published one."""

    @cache
    def write(name: str) -> Path:
        directory = tmp_path_factory.mktemp(name)
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()),
            **TEMPLATES[name]["special_tokens"],
        ).save_pretrained(directory)
        template = GOLDENS / "chat_templates" / f"{name}.jinja"
        shutil.copyfile(template, directory / "chat_template.jinja")
        return directory

    return write


@pytest.fixture
def fixed_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops the clock that templates see at the time of the goldens."""

    class FixedTime(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return cls.fromisoformat(EXPECTED["now"])

    monkeypatch.setattr(chat_template_utils, "datetime", FixedTime)


def _request(conversation: Mapping[str, Any]) -> generation_pb2.GenerateRequest:
    """The request for a conversation, with all but role and text as JSON."""
    messages = []
    for message in conversation["messages"]:
        others = dict(message)
        built = generation_pb2.ChatMessage(role=others.pop("role"))
        if isinstance(others["content"], str):
            built.content = others.pop("content")
        built.other_fields = json.dumps(others)
        messages.append(built)
    return generation_pb2.GenerateRequest(
        messages=messages,
        tools=[json.dumps(tool) for tool in conversation.get("tools", ())],
        chat_template_kwargs=json.dumps(conversation.get("arguments", {})),
    )


@pytest.mark.usefixtures("fixed_clock")
@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_conversation_becomes_the_same_prompt(
    directory_of: Callable[[str], Path], template: str, conversation: str
) -> None:
    chat = chat_from_message(_request(CONVERSATIONS[conversation]))
    assert chat is not None
    tokenizer = AutoTokenizer.from_pretrained(directory_of(template), local_files_only=True)
    try:
        found = {"prompt": render_chat(tokenizer, chat)}
    except ChatTemplateError as error:
        found = {"error": str(error)}
    assert found == TEMPLATES[template]["prompts"][conversation]


@pytest.mark.usefixtures("fixed_clock")
@pytest.mark.parametrize("template", TEMPLATES)
def test_what_a_template_reads_whole_is_not_adapted(
    directory_of: Callable[[str], Path], template: str
) -> None:
    tokenizer = Tokenizer(directory_of(template))
    for conversation in PLAIN + (() if template in WITHOUT_TOOLS else WITH_TOOLS):
        chat = chat_from_message(_request(CONVERSATIONS[conversation]))
        assert chat is not None
        expected = TEMPLATES[template]["prompts"][conversation]["prompt"]
        assert tokenizer.render_chat(chat) == expected
