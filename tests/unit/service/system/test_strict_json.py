"""JSON from callers."""

import json
from typing import Any

import pytest

from shaperouter_service.system.strict_json import parse


@pytest.mark.parametrize("value", [None, 1.5, "\\ud", "\U0001f600", {"a": [{"b": 1}, "é"]}])
def test_json_is_read(value: Any) -> None:
    assert parse(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "Expecting property name"),
        ('{"a": 1, "b": 2, "a": 3}', "'a' occurs twice in an object"),
        ("[NaN]", "numbers must be finite, got NaN"),
        ("[-Infinity]", "numbers must be finite, got -Infinity"),
        ("[-1e999]", "numbers must be finite, got -1e999"),
        ("9" * 5000, "Exceeds the limit"),
        ("[" * 100_000, "brackets must be nested at most 200 deep, got 100000"),
        ('{"a": [' * 101 + "]}" * 101, "brackets must be nested at most 200 deep, got 202"),
        (r'["\ud83d"]', "texts must be Unicode, got '\\ud83d' alone"),
        (r'{"\uDC00": 1}', "texts must be Unicode"),
    ],
)
def test_what_could_be_misread_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told.replace("\\", "\\\\")):
        parse(text)


@pytest.mark.parametrize(
    "text", ["[" * 200 + "]" * 200, f"[{','.join(['[0]'] * 1_000)}]", json.dumps('\\"[{' * 1_000)]
)
def test_only_depth_counts_and_only_of_brackets_outside_texts(text: str) -> None:
    assert parse(text) == json.loads(text)


def test_a_text_without_an_end_is_read_once() -> None:
    # Reading it again from each quotation mark would take hours.
    with pytest.raises(ValueError, match="Unterminated string"):
        parse('{"a": ' + "[" * 150 + "{" * 1 + '"' + "[" * 100 + '\\"' * 1_000_000)
