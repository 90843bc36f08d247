"""Messages split into text, reasoning and calls, whole and in pieces."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shaperouter_service.conversation import (
    MessageFormat,
    MessagePart,
    MessageReader,
    MessageRules,
    ReasoningPart,
    TextPart,
    ToolCall,
    joined,
)
from shaperouter_service.conversation.formats import FORMATS

CALLS = {each.name: each for each in FORMATS}
CALL = '{"name": "add", "arguments": {"a": 1.0}}'
CALL_OF_SUB = '{"arguments": {}, "name": "sub"}'
ADD = ToolCall(name="add", arguments='{"a": 1.0}')
SUB = ToolCall(name="sub", arguments="{}")


def rules(name: str, *, thinks: bool = False, in_reasoning: bool = False) -> MessageRules:
    return MessageRules(
        format=MessageFormat(calls=CALLS[name], thinks=thinks),
        in_reasoning=in_reasoning,
        tools=("add", "sub"),
    )


def read(reader: MessageReader, pieces: Sequence[str]) -> list[MessagePart]:
    return joined([*(part for piece in pieces for part in reader.push(piece)), *reader.finish()])


def read_everywhere(how: MessageRules, text: str) -> list[MessagePart]:
    """The parts of a message, after checking that no cut changes them."""
    whole = read(how.reader(), [text])
    for cut in range(len(text)):
        assert read(how.reader(), [text[:cut], text[cut:]]) == whole
    assert read(how.reader(), list(text)) == whole
    return whole


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("hermes", f"<tool_call>\n{CALL}\n</tool_call>", [ADD]),
        (
            "hermes",
            f"I add.\n\n<tool_call>{CALL}</tool_call>\n<tool_call>{CALL_OF_SUB}</tool_call>\n",
            [TextPart("I add."), ADD, SUB],
        ),
        # The end of the message ends the call, too.
        ("hermes", f"<tool_call>\n{CALL}\n", [ADD]),
        ("hermes", f"<tool_call>\n{CALL}\n</tool", [ADD]),
        ("hermes", f"<tool_call>{CALL}</tool_call> Done.", [ADD, TextPart("Done.")]),
        # The mark within a text of the arguments ends nothing.
        (
            "hermes",
            '<tool_call>{"name": "add", "arguments": {"a": "</tool_call>\\"}"}}</tool_call>',
            [ToolCall(name="add", arguments='{"a": "</tool_call>\\"}"}')],
        ),
        ("hermes", "a < b, <tool> and <tool_cal", [TextPart("a < b, <tool> and <tool_cal")]),
        ("hermes", " plain \n", [TextPart(" plain \n")]),
        ("mistral", f'[TOOL_CALLS] [{CALL}, {{"name": "sub", "arguments": {{}}}}]', [ADD, SUB]),
        ("mistral", f'[TOOL_CALLS][{CALL[:-1]}, "id": "abcdefghi"}}]', [ADD]),
        ("mistral", f"[{CALL}]", [TextPart(f"[{CALL}]")]),
        ("phi4", f"<|tool_call|>[{CALL}]<|/tool_call|>", [ADD]),
        ("phi4", f"functools[{CALL}]", [ADD]),
        ("phi4", "import functools\n", [TextPart("import functools\n")]),
        ("llama3", '{"name": "add", "parameters": {"a": 1.0}}', [ADD]),
        ("llama3", f"<|python_tag|>{CALL}", [ADD]),
        ("llama3", f'{CALL}; {{"name": "sub", "parameters": {{}}}}', [ADD, SUB]),
        # An answer in JSON is not a call.
        (
            "llama3",
            '{"name": "Ada", "parameters": {}}',
            [TextPart('{"name": "Ada", "parameters": {}}')],
        ),
        ("llama3", f"See: {CALL}", [TextPart(f"See: {CALL}")]),
        ("llama3", f" {CALL} adds.", [TextPart(f" {CALL} adds.")]),
        (
            "llama3",
            '<|python_tag|>brave_search.call(query="x")',
            [TextPart('<|python_tag|>brave_search.call(query="x")')],
        ),
    ],
)
def test_calls_are_told_from_text(name: str, text: str, parts: list[MessagePart]) -> None:
    assert read_everywhere(rules(name), text) == parts


@pytest.mark.parametrize(
    "body",
    [
        "{",
        '{"name": "add", "arguments": {',
        '{"name": "add"}',
        '{"name": "add", "arguments": "{}"}',
        '{"name": 3, "arguments": {}}',
        '{"name": "add", "arguments": {"a": NaN}}',
        '{"name": "add", "arguments": {"a": 1, "a": 2}}',
        '{"name": "\\ud800", "arguments": {}}',
        "{'name': 'add', 'arguments': {}}",
        '{"name": "add", "arguments": {]}}',
        '{"name": "add" "arguments": {}}',
        "[1]",
        "",
        '{"a": ' + "[" * 300 + "]" * 300 + "}",
    ],
)
def test_a_malformed_call_stays_text(body: str) -> None:
    text = f"So: <tool_call>{body}</tool_call>"
    assert read_everywhere(rules("hermes"), text) == [TextPart(text)]


def test_a_call_after_a_malformed_one_is_a_call() -> None:
    bad = "<tool_call>{bad}</tool_call>"
    text = f"{bad}\n<tool_call>{CALL}</tool_call>"
    assert read_everywhere(rules("hermes"), text) == [TextPart(bad), ADD]


def test_brackets_nested_too_deep_are_text() -> None:
    text = '<tool_call>{"name": "add", "arguments": {"a": ' + "[" * 10**5 + "]" * 10**5 + "}}"
    assert read(rules("hermes").reader(), [text]) == [TextPart(text)]


def test_without_tools_nothing_is_a_call() -> None:
    how = MessageRules(format=MessageFormat(calls=CALLS["hermes"]))
    text = f"<tool_call>{CALL}</tool_call>"
    assert read_everywhere(how, text) == [TextPart(text)]


def test_a_message_that_may_have_one_call_ends_after_it() -> None:
    how = MessageRules(
        format=MessageFormat(calls=CALLS["mistral"]), tools=("add",), single_call=True
    )
    reader = how.reader()
    assert reader.push(f"[TOOL_CALLS] [{CALL}, {CALL}] more") == [ADD]
    assert reader.is_complete


@pytest.mark.parametrize(
    ("text", "begun", "parts"),
    [
        ("<think>\nI see.\n</think>\n\nYes.", False, [ReasoningPart("I see."), TextPart("Yes.")]),
        ("\n<think>\n\n</think>\n\nYes.", False, [TextPart("Yes.")]),
        ("I see.\n</think>\n\nYes.", True, [ReasoningPart("I see."), TextPart("Yes.")]),
        ("I see.\n\nNot done\n", True, [ReasoningPart("I see.\n\nNot done\n")]),
        ("Yes, <think> is a mark.", False, [TextPart("Yes, <think> is a mark.")]),
        ("<thin", False, [TextPart("<thin")]),
        (
            f"<think>a <tool_call>{CALL}</tool_call></think>\n<tool_call>{CALL}</tool_call>",
            False,
            [ReasoningPart(f"a <tool_call>{CALL}</tool_call>"), ADD],
        ),
    ],
)
def test_reasoning_comes_before_the_answer(
    text: str, begun: bool, parts: list[MessagePart]
) -> None:
    assert read_everywhere(rules("hermes", thinks=True, in_reasoning=begun), text) == parts


def test_a_model_that_does_not_think_has_no_reasoning() -> None:
    text = "<think>x</think>y"
    assert read_everywhere(rules("hermes"), text) == [TextPart(text)]


FRAGMENTS = st.sampled_from(
    [
        "<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "functools", ";",
        "<|tool_call|>", "<|/tool_call|>", "<|python_tag|>", CALL, f"[{CALL}]", f"[{CALL}, {CALL}]",
        " ", "\n", "{", "}", '"', "\\", "[", "a", "<", "é",
    ]
)  # fmt: skip


@given(
    name=st.sampled_from(sorted(CALLS)),
    fragments=st.lists(FRAGMENTS, max_size=12),
    cuts=st.lists(st.integers(0, 200), max_size=6),
    thinks=st.booleans(),
    begun=st.booleans(),
)
def test_no_cut_changes_a_message_and_nothing_is_lost(
    name: str, fragments: list[str], cuts: list[int], *, thinks: bool, begun: bool
) -> None:
    text = "".join(fragments)
    how = rules(name, thinks=thinks, in_reasoning=thinks and begun)
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    parts = read(how.reader(), [text])
    assert read(how.reader(), pieces) == parts
    assert read(how.reader(), list(text)) == parts
    at = 0
    for part in parts:
        shown = part.arguments if isinstance(part, ToolCall) else part.text
        at = text.index(shown, at) + len(shown)
    kept = sum(len(part.text) for part in parts if not isinstance(part, ToolCall))
    if not any(isinstance(part, ToolCall) for part in parts) and not thinks:
        assert kept == len(text)
