"""Messages of models whose marks are special tokens, which texts lack."""

from collections.abc import Sequence

import pytest

from shaperouter_service.conversation import (
    MessagePart,
    MessageRules,
    ReasoningPart,
    TextPart,
    ToolCall,
    joined,
    message_format,
)
from shaperouter_service.serving.generation.messages import MessageWriter
from shaperouter_service.serving.generation.sequences import SequenceWriter
from shaperouter_service.text import Detokenizer

# Token 0 ends a sequence, and token 1 marks calls; the others are characters.
EOS, MARK = 0, 1
MISTRAL = message_format("[TOOL_CALLS]")
CALL = '[{"name": "add", "arguments": {"a": 1}}]'
ADD = ToolCall(name="add", arguments='{"a": 1}')


def decode(token_ids: Sequence[int]) -> str:
    return "".join(chr(token) for token in token_ids if token not in (EOS, MARK))


def tokens(*parts: str | int) -> list[int]:
    return [
        token for part in parts for token in ([part] if isinstance(part, int) else map(ord, part))
    ]


def writer(*stop: str, rules: MessageRules | None = None) -> SequenceWriter:
    rules = rules or MessageRules(format=MISTRAL, tools=["add"])
    return SequenceWriter(
        0,
        detokenizer=Detokenizer(decode),
        eos_token_ids=[EOS],
        stop=stop,
        echo=None,
        message=MessageWriter(rules, {MARK: "[TOOL_CALLS]"}),
    )


def written(sequence: SequenceWriter, *chunks: Sequence[int]) -> tuple[str, list[MessagePart]]:
    """The text and the message."""
    deltas = []
    for chunk in chunks:
        deltas.append(sequence.write(chunk, ()))
        if sequence.stopped:
            break
    deltas.append(sequence.rest())
    parts = joined(part for delta in deltas for part in delta.parts)
    return "".join(delta.text for delta in deltas), parts


def test_a_mark_that_is_a_special_token_begins_a_call() -> None:
    ids = tokens("Let me add.", MARK, f" {CALL}", EOS)
    expected = (f"Let me add. {CALL}", [TextPart("Let me add."), ADD])
    assert written(writer(), ids) == expected
    assert written(writer(), *([token] for token in ids)) == expected
    for cut in range(len(ids)):
        assert written(writer(), ids[:cut], ids[cut:]) == expected


def test_the_text_alone_is_no_call() -> None:
    assert written(writer(), tokens(CALL, EOS)) == (CALL, [TextPart(CALL)])


@pytest.mark.parametrize("stop", ["stop", "}} "])
def test_a_mark_stays_where_it_was_while_a_stop_string_holds_text_back(stop: str) -> None:
    ids = tokens("s", MARK, CALL, EOS)
    expected = (f"s{CALL}", [TextPart("s"), ADD])
    assert written(writer(stop), ids) == expected
    assert written(writer(stop), *([token] for token in ids)) == expected


def test_a_stop_string_ends_a_message_within_a_call() -> None:
    sequence = writer("}")
    assert written(sequence, tokens(MARK, CALL, EOS)) == (
        CALL[:-3],
        [TextPart(f"[TOOL_CALLS]{CALL[:-3]}")],
    )


def test_a_message_with_its_only_call_ends_the_sequence() -> None:
    sequence = writer(rules=MessageRules(format=MISTRAL, tools=["add"], single_call=True))
    ids = tokens(MARK, CALL, "more")
    delta = sequence.write(ids, ())
    assert sequence.stopped
    assert (list(delta.parts), len(delta.token_ids)) == ([ADD], len(ids) - len("more"))


def test_tokens_of_reasoning_are_counted() -> None:
    sequence = writer(rules=MessageRules(format=message_format("</think>"), in_reasoning=True))
    delta = sequence.write(tokens("Hm.</think>Yes", EOS), ())
    assert delta.reasoning_tokens == len("Hm.</think>")
    assert [*delta.parts, *sequence.rest().parts] == [ReasoningPart("Hm."), TextPart("Yes")]
