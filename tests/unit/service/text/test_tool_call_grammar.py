"""An answer that must call a tool is read as calls whose arguments follow their schema."""

import json
import random
from typing import Any

import jsonschema
import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer

from shaperouter_service.conversation import MessageFormat, MessageRules, ToolCall
from shaperouter_service.conversation.formats import FORMATS, CallFormat
from shaperouter_service.text import Tokenizer, tool_call_grammar
from shaperouter_service.text.constraints import grammar_of

TOOLS = {
    "add": {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["a"],
        "additionalProperties": False,
    },
    'say "ß"': {"enum": [{"text": "x"}, {"text": "y"}]},
}
# What may be answered instead of a call, and a tool whose schema refers to its definitions.
TEXTS = {
    "json_schema": json.dumps(
        {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "additionalProperties": False,
        }
    ),
    "choices": ("yes", "{no}"),
}
# Schemas that refer to their parts, as generators of schemas write them.
REFERRING = {
    "definitions": {
        "type": "object",
        "$defs": {"n": {"enum": [5]}},
        "properties": {"n": {"$ref": "#/$defs/n"}},
        "required": ["n"],
        "additionalProperties": False,
    },
    "draft_7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": "#/definitions/arguments",
        "definitions": {
            "arguments": {
                "type": "object",
                "properties": {"n": {"enum": [5]}},
                "required": ["n"],
                "additionalProperties": False,
            }
        },
    },
    "itself": {
        "type": "object",
        "properties": {"n": {"enum": [5]}, "more": {"$ref": "#"}},
        "required": ["n"],
        "additionalProperties": False,
    },
}
END, CASES, NEW_TOKENS = 0, 8, 300


@pytest.mark.parametrize("is_single", [False, True])
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_calls_follow_their_schemas(
    tokenizer: Tokenizer, form: CallFormat, *, is_single: bool
) -> None:
    lark = tool_call_grammar(form, TOOLS, is_single=is_single)
    grammar = grammar_of("grammar", lark, drops_first_space=False)
    vocabulary = tokenizer.constrained_vocabulary(len(tokenizer._tokenizer))
    rules = MessageRules(format=MessageFormat(calls=form), tools=list(TOOLS))
    counts = set()
    for seed in range(CASES):
        rng, tokens = random.Random(seed), [0][:0]
        constraint = vocabulary.constraint(grammar, [END], ())
        while not constraint.is_complete and len(tokens) < NEW_TOKENS:
            allowed = np.flatnonzero(np.unpackbits(constraint.allowed[0], bitorder="little"))
            token = int(rng.choice(allowed))
            if token == END:
                break
            tokens.append(token)
            constraint.follow([tuple(tokens)])
        reader = rules.reader()
        calls = [*reader.push(tokenizer.decode(tokens)), *reader.finish()]
        if len(tokens) == NEW_TOKENS:
            continue
        counts.add(len(calls))
        for call in calls:
            assert isinstance(call, ToolCall)
            jsonschema.validate(json.loads(call.arguments), TOOLS[call.name])
    assert min(counts) >= 1
    assert not is_single or counts == {1}


@pytest.mark.parametrize("space", ["", " "], ids=["text", "text after a space"])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_an_answer_is_calls_or_a_text_that_follows_its_constraint(
    form: CallFormat, text: str, space: str
) -> None:
    tools = {"add": TOOLS["add"], **REFERRING}
    lark = tool_call_grammar(form, tools, is_single=False, beside_text=True)
    grammar = grammar_of(text, TEXTS[text], drops_first_space=bool(space), calls=lark)

    def call(name: str, **arguments: Any) -> str:
        return form.written([{"name": name, form.arguments: arguments}])

    valid = [call("add", a=7), *(call(name, n=5) for name in REFERRING)]
    valid.append(call("itself", n=5, more={"n": 5}))
    valid += ['{"name": "add"}'] if text == "json_schema" else ["yes", "{no}"]
    for answer in valid:
        assert follows(grammar, space + answer)
    wrong = [call("add", a=100), call("sub", a=7), *(call(name, n=6) for name in REFERRING)]
    for answer in (*wrong, call("itself", n=5, more={}), "maybe"):
        assert not follows(grammar, space + answer)


def follows(grammar: str, text: str) -> bool:
    matcher = LLMatcher(LLTokenizer("byte"), grammar, log_level=0)
    tokens = [*text.encode()]
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()
