"""Prompts that Transformers makes of conversations with the chat templates of published models."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest import mock

import jinja2
import tokenizers
import transformers
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

# Marks of the beginning and the end of a text, which templates write.
SPECIAL_TOKENS = {
    "qwen2.5": {"eos_token": "<|im_end|>"},
    "qwen3": {"eos_token": "<|im_end|>"},
    "mistral-nemo": {"bos_token": "<s>", "eos_token": "</s>"},
    "ministral3": {"bos_token": "<s>", "eos_token": "</s>"},
    "phi3.5": {"bos_token": "<s>", "eos_token": "<|endoftext|>"},
    "granite3.3": {"bos_token": "<|end_of_text|>", "eos_token": "<|end_of_text|>"},
}
# Some templates write the date.
NOW = "2026-03-05T09:08:07"

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'The weather of a place, "now" or later – in °C',
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "A city, e.g. Zürich"},
                "days": {"type": "integer", "minimum": 0, "default": 0},
            },
            "required": ["place"],
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {
        "name": "get_time",
        "description": "The time",
        "parameters": {"type": "object", "properties": {}},
    },
}
SYSTEM = {"role": "system", "content": "You answer in one sentence.\nNever use <b> or &."}
QUESTION = {"role": "user", "content": "What's the weather in Zürich?"}
ANSWER = {"role": "assistant", "content": "  It's 21 °C & sunny.\n"}
FOLLOW_UP = {"role": "user", "content": "And in 東京? 🌧"}
# Mistral's templates want ids of nine letters or digits.
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "call00001",
            "type": "function",
            "function": {"name": "get_weather", "arguments": {"place": "Zürich", "days": 1}},
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call00001", "content": '{"celsius": 21.5}'}
TWO_CALLS = {
    "role": "assistant",
    "content": "I look.",
    "tool_calls": [
        *CALL["tool_calls"],
        {"id": "call00002", "type": "function", "function": {"name": "get_time", "arguments": {}}},
    ],
}
SECOND_RESULT = {"role": "tool", "tool_call_id": "call00002", "content": "09:08"}
THOUGHT = {**ANSWER, "reasoning_content": "The tool says 21.5."}

CONVERSATIONS: dict[str, dict[str, Any]] = {
    "a question": {"messages": [QUESTION]},
    "a system message": {"messages": [SYSTEM, QUESTION]},
    "several turns": {"messages": [SYSTEM, QUESTION, ANSWER, FOLLOW_UP]},
    "an answer to continue after": {"messages": [QUESTION, ANSWER]},
    "tools": {"messages": [QUESTION], "tools": [WEATHER, CLOCK]},
    "tools and a system message": {"messages": [SYSTEM, QUESTION], "tools": [WEATHER]},
    "a call and its result": {"messages": [QUESTION, CALL, RESULT], "tools": [WEATHER]},
    "two calls in several turns": {
        "messages": [SYSTEM, QUESTION, TWO_CALLS, RESULT, SECOND_RESULT, ANSWER, FOLLOW_UP],
        "tools": [WEATHER, CLOCK],
    },
    "a call without the tools": {"messages": [QUESTION, CALL, RESULT, ANSWER, FOLLOW_UP]},
    "thinking": {"messages": [QUESTION], "arguments": {"enable_thinking": True, "thinking": True}},
    "no thinking": {
        "messages": [QUESTION, THOUGHT, FOLLOW_UP],
        "arguments": {"enable_thinking": False, "thinking": False},
    },
    "a thought before a call": {
        "messages": [QUESTION, {**CALL, "reasoning_content": "I need the tool."}, RESULT],
        "tools": [WEATHER],
    },
    "documents": {
        "messages": [QUESTION],
        "arguments": {"documents": [{"doc_id": 1, "text": "Zürich lies at a lake."}]},
    },
    "two questions at once": {"messages": [QUESTION, FOLLOW_UP]},
    "an unknown role": {"messages": [QUESTION, {"role": "narrator", "content": "Night falls."}]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]},
}


class FixedTime(datetime):
    """The clock that templates see."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return cls.fromisoformat(NOW)


def expect_chat_templates(goldens: Path) -> None:
    """Write what each template makes of each conversation."""
    document = {
        "command": "python tests/goldens/make_goldens.py chat-templates",
        "versions": {
            "python": platform.python_version(),
            "transformers": transformers.__version__,
            "jinja2": jinja2.__version__,
        },
        "now": NOW,
        "conversations": CONVERSATIONS,
        "templates": {
            name: {
                "special_tokens": special_tokens,
                "prompts": dict(prompts(goldens / "chat_templates" / f"{name}.jinja", name)),
            }
            for name, special_tokens in SPECIAL_TOKENS.items()
        },
    }
    text = json.dumps(document, ensure_ascii=False, indent=1)
    (goldens / "chat_templates.json").write_text(text + "\n", encoding="utf-8")


def prompts(template: Path, name: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the prompt of each conversation, or the error of the template."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()), **SPECIAL_TOKENS[name]
    )
    tokenizer.chat_template = template.read_text(encoding="utf-8")
    for title, conversation in CONVERSATIONS.items():
        try:
            with mock.patch.object(chat_template_utils, "datetime", FixedTime):
                prompt = tokenizer.apply_chat_template(
                    conversation["messages"],
                    tools=conversation.get("tools"),
                    add_generation_prompt=True,
                    tokenize=False,
                    **conversation.get("arguments", {}),
                )
        except (jinja2.TemplateError, TypeError) as error:
            yield title, {"error": str(error)}
        else:
            yield title, {"prompt": prompt}
