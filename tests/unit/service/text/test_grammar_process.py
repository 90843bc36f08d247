"""Constraints that are small and cost too much end a process of their own."""

import contextlib
import json
import os
import resource
import signal
from pathlib import Path
from typing import NoReturn

import pytest

from shaperouter_service.errors import ExhaustedError
from shaperouter_service.text import grammar_process
from shaperouter_service.text.constraints import ConstraintError, grammar_of
from shaperouter_service.text.grammar_process import GrammarProcess

CHAIN = "\n".join(
    ["start: r0", *(f'r{index}: "a" r{index + 1}' for index in range(2_700)), 'r2700: "b"']
)
LINKS = json.dumps(
    {
        "$ref": "#/$defs/0",
        "$defs": {
            **{
                str(index): {
                    "properties": {"a": {"$ref": f"#/$defs/{index + 1}"}},
                    "required": ["a"],
                }
                for index in range(850)
            },
            "850": {"type": "null"},
        },
    }
)
ALTERNATIVES = json.dumps(
    {
        "allOf": [
            {
                "anyOf": [
                    {"type": "object", "properties": {f"{one}-{other}": {"type": "string"}}}
                    for one in range(14)
                ]
            }
            for other in range(3)
        ]
    }
)


@pytest.fixture(scope="module")
def process() -> GrammarProcess:
    return GrammarProcess()


@pytest.mark.parametrize(
    ("name", "value"),
    [("regex", "[a-z]+"), ("choices", ("yes", "no")), ("json_schema", '{"type": "integer"}')],
)
@pytest.mark.parametrize("drops", [False, True])
def test_grammars_are_those_of_this_process(
    process: GrammarProcess, name: str, value: str | tuple[str, ...], drops: bool
) -> None:
    expected = grammar_of(name, value, drops_first_space=drops)
    assert process.grammar(name, value, drops_first_space=drops) == expected


@pytest.mark.parametrize("times", [1, 2])
def test_errors_are_those_of_this_process(process: GrammarProcess, times: int) -> None:
    wrong = '{"properties": {"a": {"type": "unheard"}}}'
    with pytest.raises(ConstraintError) as due:
        grammar_of("json_schema", wrong, drops_first_space=False)
    with pytest.raises(ConstraintError) as caught:
        process.grammar("json_schema", wrong, drops_first_space=False)
    assert (str(caught.value), caught.value.path) == (str(due.value), due.value.path)
    assert caught.value.path == ".properties.a"


@pytest.mark.parametrize(
    ("name", "value"), [("grammar", CHAIN), ("json_schema", LINKS)], ids=["rules", "references"]
)
def test_a_chain_that_would_overflow_a_stack_is_refused(
    process: GrammarProcess, name: str, value: str
) -> None:
    assert len(value) < 65_536
    with pytest.raises(ConstraintError, match="it is nested too deeply"):
        process.grammar(name, value, drops_first_space=False)
    assert process.grammar("regex", "[a-z]", drops_first_space=False)


def test_a_constraint_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_process, "MAX_SECONDS", 0)
    process = GrammarProcess()
    with pytest.raises(ConstraintError, match="takes too long to compile"):
        process.grammar("json_schema", ALTERNATIVES, drops_first_space=False)
    assert process.grammar("regex", "[0-9]", drops_first_space=False)


def test_a_process_that_was_killed_is_replaced() -> None:
    process = GrammarProcess()
    process.grammar("regex", "a", drops_first_space=False)
    assert process._process is not None
    os.kill(process._process.pid, signal.SIGKILL)
    assert process.grammar("regex", "b", drops_first_space=False)


def test_descriptors_may_be_large() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        if soft < 2_000:
            resource.setrlimit(resource.RLIMIT_NOFILE, (2_000, hard))
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1_100):
            stack.enter_context(Path(os.devnull).open("rb"))
        process = GrammarProcess()
        assert process.grammar("regex", "a", drops_first_space=False)


def test_a_process_that_reads_nothing_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    process = GrammarProcess()
    process.grammar("regex", "a", drops_first_space=False)
    assert process._process is not None
    os.kill(process._process.pid, signal.SIGSTOP)
    # More than a pipe holds.
    choices = tuple(str(index).zfill(100) for index in range(1_000))
    with monkeypatch.context() as hasty:
        hasty.setattr(grammar_process, "PATIENCE", 0.1)
        with pytest.raises(ExhaustedError):
            process.grammar("choices", choices, drops_first_space=False)
    assert process.grammar("choices", choices, drops_first_space=False)


def test_an_answer_that_was_not_read_is_not_given_to_another_constraint(
    process: GrammarProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as starved:
        starved.setattr(grammar_process.json, "loads", starve)
        with pytest.raises(MemoryError):
            process.grammar("regex", "first", drops_first_space=False)
    expected = grammar_of("regex", "second", drops_first_space=False)
    assert process.grammar("regex", "second", drops_first_space=False) == expected


def starve(line: bytes) -> NoReturn:
    raise MemoryError
