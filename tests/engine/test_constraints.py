"""Constrained runs: their texts follow the constraint, and others do not notice."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema
import pytest

from harness.engine import CHECKPOINTS, Bench, Collected
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.generation.run_events import FinishReason
from shaperouter_service.text import Tokenizer, load_tokenizer
from shaperouter_service.text.constraints import grammar_of

MODEL = "demo"
PROMPT = [300, 400, 500]
END = 0
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "n": {"type": "integer", "minimum": 0, "maximum": 999},
    },
    "required": ["name", "n"],
    "additionalProperties": False,
}
SAMPLED: dict[str, Any] = {"do_sample": True, "temperature": 1.3, "seed": 11}


def _grammar(name: str, value: Any) -> str:
    return grammar_of(name, value, drops_first_space=False)


JSON = _grammar("json_schema", json.dumps(SCHEMA))
NUMBERS = _grammar("regex", r"\d{3}-\d{4}")


@pytest.fixture(scope="module")
def bench(benches: Mapping[str, Bench]) -> Bench:
    return benches[MODEL]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    loaded = load_tokenizer(CHECKPOINTS[MODEL])
    assert loaded is not None
    return loaded


def _submit(bench: Bench, **options: Any) -> Collected:
    asked = {"max_new_tokens": 60, "eos_token_ids": [END]} | options
    return bench.submit(MODEL, PROMPT, **asked)


def _tokens(run: Collected) -> list[int]:
    run.wait()
    return list(run.token_ids)


@pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "sampled"])
def test_a_text_follows_its_schema_and_ends_when_it_is_complete(
    bench: Bench, tokenizer: Tokenizer, sampling: dict[str, Any]
) -> None:
    run = _submit(bench, grammar=JSON, **sampling)
    text = tokenizer.decode(_tokens(run))
    jsonschema.validate(json.loads(text), SCHEMA)
    assert run.reason is FinishReason.STOP


def test_a_text_without_end_tokens_ends_when_nothing_may_follow(
    bench: Bench, tokenizer: Tokenizer
) -> None:
    run = _submit(bench, grammar=NUMBERS, eos_token_ids=[])
    assert re.fullmatch(r"\d{3}-\d{4}", tokenizer.decode(_tokens(run)))
    assert run.reason is FinishReason.STOP


def test_every_hypothesis_follows_the_constraint(bench: Bench, tokenizer: Tokenizer) -> None:
    choices = ("one", "two", "three", "four")
    run = _submit(bench, grammar=_grammar("choices", choices), num_beams=4, num_return_sequences=4)
    run.wait()
    texts = [tokenizer.decode(found.token_ids) for found in run.hypotheses]
    # A text may occur in several tokenizations.
    assert set(texts) <= set(choices)
    assert len({tuple(found.token_ids) for found in run.hypotheses}) == 4
    assert all(found.finish_reason is FinishReason.EOS for found in run.hypotheses)


def test_constrained_and_free_runs_share_a_batch_and_get_the_tokens_that_they_get_alone(
    bench: Bench,
) -> None:
    wanted: list[dict[str, Any]] = [{"grammar": JSON}, SAMPLED | {"max_new_tokens": 20}]
    alone = [_tokens(_submit(bench, **options)) for options in wanted]
    together = [_submit(bench, **options) for options in wanted]
    assert [_tokens(run) for run in together] == alone


def test_no_constraint_traces_a_graph(bench: Bench) -> None:
    _tokens(_submit(bench, grammar=JSON))

    def traces() -> int:
        return sum(graph.traces for graph in bench.engine.snapshot("test", "test").graphs)

    before = traces()
    for value in ("[ab]{9}", r"\d+\.", "x{20}"):
        _tokens(_submit(bench, grammar=_grammar("regex", value)))
    assert traces() == before


@pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "sampled"])
def test_a_run_continues_after_any_number_of_tokens(bench: Bench, sampling: dict[str, Any]) -> None:
    whole = _tokens(_submit(bench, grammar=JSON, **sampling))
    rests = [
        _submit(bench, grammar=JSON, generated_token_ids=whole[:cut], **sampling)
        for cut in range(1, len(whole))
    ]
    for cut, rest in enumerate(rests, start=1):
        assert (cut, _tokens(rest)) == (cut, whole[cut:])


def _spelled(bench: Bench, word: str, **options: Any) -> Sequence[int]:
    return _tokens(_submit(bench, grammar=_grammar("choices", (word,)), **options))


def test_a_constraint_is_stronger_than_bans(bench: Bench, tokenizer: Tokenizer) -> None:
    banned = [((token,), -float("inf")) for token in tokenizer.encode("s")]
    tokens = _spelled(bench, "sss", biases=banned, min_new_tokens=50, no_repeat_ngram_size=1)
    assert tokenizer.decode(tokens) == "sss"


def test_a_forced_first_token_is_no_part_of_the_text(bench: Bench, tokenizer: Tokenizer) -> None:
    forced = 77
    run = bench.submit(
        MODEL,
        [300],
        max_new_tokens=20,
        forced_bos_token_id=forced,
        grammar=_grammar("choices", ("abc",)),
    )
    first, *rest = _tokens(run)
    assert first == forced
    assert tokenizer.decode(rest) == "abc"


def test_a_constraint_that_becomes_too_expensive_ends_its_run_alone(bench: Bench) -> None:
    alone = _tokens(_submit(bench, max_new_tokens=20))
    other = _submit(bench, max_new_tokens=20)
    # Its size shows only once the text gets there.
    expensive = _submit(bench, grammar=_grammar("grammar", 'start: "x" /((a?){100}){100}a{100}/'))
    with pytest.raises(InvalidRequestError, match=r"can be followed, but after \d new"):
        expensive.wait()
    assert _tokens(other) == alone
