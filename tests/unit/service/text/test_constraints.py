"""Texts follow their constraint with any tokenizer; impossible constraints are refused."""

import json
import random
import re
import string
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from harness.sentencepiece import with_byte_fallback
from shaperouter_service.checkpoints.model_locations import parse_models
from shaperouter_service.text import ConstraintError, Tokenizer, load_tokenizer
from shaperouter_service.text.constraints import grammar_of

CASES, NEW_TOKENS = 20, 40
SPECIAL = ["<pad>", "</s>", "<unk>"]


def _loaded(directory: Path) -> Tokenizer:
    tokenizer = load_tokenizer(directory)
    assert tokenizer is not None
    return tokenizer


def _with_words(directory: Path) -> Tokenizer:
    """A tokenizer as T5 has it, where no token is a space and an `a`."""
    words = ["▁Yes", "▁No", "▁AA", "▁B", "▁", *string.ascii_letters, *string.digits]
    made = tokenizers.Tokenizer(
        models.Unigram([(piece, -1.0) for piece in [*SPECIAL, *words]], unk_id=2)
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.add_special_tokens(SPECIAL)
    PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    ).save_pretrained(directory)
    return _loaded(directory)


@pytest.fixture(scope="session", params=["ByteLevel", "ByteFallback", "Metaspace", "g2p"])
def kind(
    request: pytest.FixtureRequest, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Tokenizer:
    """A tokenizer with each kind of decoder."""
    if request.param == "ByteLevel":
        return tokenizer
    if request.param == "ByteFallback":
        return with_byte_fallback(tmp_path_factory.mktemp("tokenizer"))
    if request.param == "Metaspace":
        return _with_words(tmp_path_factory.mktemp("tokenizer"))
    (source,) = parse_models(["g2p"])
    return _loaded(source.directory)


def _random_text(
    tokenizer: Tokenizer, name: str, value: str | tuple[str, ...], rng: random.Random
) -> str | None:
    """The text of random tokens that are allowed one after the other; None if it has no end."""
    size, end = len(tokenizer._tokenizer), 1
    grammar = grammar_of(name, value, drops_first_space=tokenizer.drops_first_space)
    constraint = tokenizer.constrained_vocabulary(size).constraint(grammar, [end], ())
    tokens: list[int] = []
    for _ in range(NEW_TOKENS):
        if constraint.is_complete:
            return tokenizer.decode(tokens)
        allowed = np.flatnonzero(np.unpackbits(constraint.allowed[0], bitorder="little"))
        assert (allowed < size).all()
        token = int(rng.choice(allowed))
        if token == end:
            return tokenizer.decode(tokens)
        tokens.append(token)
        constraint.follow([tuple(tokens)])
    return None


@pytest.mark.parametrize("pattern", [r"[A-Z]{1,3} [A-Z0-9]+", r"(A|B)+( [AB])*"])
def test_texts_match_their_regular_expression(kind: Tokenizer, pattern: str) -> None:
    for seed in range(CASES):
        text = _random_text(kind, "regex", pattern, random.Random(seed))
        assert text is None or re.fullmatch(pattern, text), (seed, text)


def test_texts_are_one_of_their_choices(kind: Tokenizer) -> None:
    choices = ("AA", "AE AH", "B AA")
    found = {_random_text(kind, "choices", choices, random.Random(seed)) for seed in range(CASES)}
    assert found <= set(choices)
    assert len(found) > 1


def test_a_text_may_begin_with_a_token_that_begins_a_word(tmp_path: Path) -> None:
    tokenizer = _with_words(tmp_path)
    grammar = grammar_of("choices", ("Yes", "No"), drops_first_space=tokenizer.drops_first_space)
    size = len(tokenizer._tokenizer)
    constraint = tokenizer.constrained_vocabulary(size).constraint(grammar, [1], ())
    allowed = np.flatnonzero(np.unpackbits(constraint.allowed[0], bitorder="little"))
    assert {"▁Yes", "▁No", "Y", "N"} <= set(tokenizer._tokenizer.convert_ids_to_tokens(allowed))


def test_texts_follow_their_grammar(tokenizer: Tokenizer) -> None:
    grammar = 'start: "a" start "b" | "-"'
    for seed in range(CASES):
        text = _random_text(tokenizer, "grammar", grammar, random.Random(seed))
        if text is not None:
            depth = len(text) // 2
            assert text == "a" * depth + "-" + "b" * depth


def test_texts_are_json_of_their_schema(tokenizer: Tokenizer) -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": -5, "maximum": 300},
            "kinds": {"type": "array", "items": {"enum": ["a", None, 3]}, "maxItems": 3},
        },
        "required": ["n"],
        "additionalProperties": False,
    }
    ended = 0
    for seed in range(CASES):
        text = _random_text(tokenizer, "json_schema", json.dumps(schema), random.Random(seed))
        if text is not None:
            ended += 1
            jsonschema.validate(json.loads(text), schema)
    assert ended


def test_an_end_token_of_the_request_ends_a_text_only_where_it_may_end(
    tokenizer: Tokenizer,
) -> None:
    letter, own_end = tokenizer.encode("a")[0], 0
    grammar = grammar_of("regex", "ba*", drops_first_space=False)
    vocabulary = tokenizer.constrained_vocabulary(len(tokenizer._tokenizer))
    constraint = vocabulary.constraint(grammar, [letter], ())

    def allowed() -> list[int]:
        return np.flatnonzero(np.unpackbits(constraint.allowed[0], bitorder="little")).tolist()

    first = tokenizer.encode("b")
    assert letter not in allowed()
    constraint.follow([tuple(first)])
    assert letter in allowed()
    assert own_end not in allowed()


def test_a_text_continues_after_tokens_of_another_worker(tokenizer: Tokenizer) -> None:
    grammar = grammar_of("regex", "[ab]{4}", drops_first_space=False)
    vocabulary = tokenizer.constrained_vocabulary(len(tokenizer._tokenizer))
    tokens = tuple(tokenizer.encode("a") + tokenizer.encode("b"))
    begun = vocabulary.constraint(grammar, [], ())
    for length in (1, 2):
        begun.follow([tokens[:length]])
    continued = vocabulary.constraint(grammar, [], tokens)
    np.testing.assert_array_equal(begun.allowed, continued.allowed)


def test_hypotheses_that_the_grammar_does_not_allow_have_no_continuation(
    tokenizer: Tokenizer,
) -> None:
    grammar = grammar_of("choices", ("aa", "bb"), drops_first_space=False)
    vocabulary = tokenizer.constrained_vocabulary(len(tokenizer._tokenizer))
    constraint = vocabulary.constraint(grammar, [1], ())
    good, bad = tuple(tokenizer.encode("a")), tuple(tokenizer.encode("x"))
    constraint.follow([good, bad])
    assert constraint.allowed[0].any()
    assert not constraint.allowed[1].any()


def test_a_grammar_that_takes_too_long_for_each_token_ends_the_text(tokenizer: Tokenizer) -> None:
    ambiguous = 'start: s\ns: s s s | s s | "a" | "aa" | "aaa"'
    grammar = grammar_of("grammar", ambiguous, drops_first_space=False)
    vocabulary = tokenizer.constrained_vocabulary(len(tokenizer._tokenizer))
    constraint = vocabulary.constraint(grammar, [1], ())

    def follow_many() -> None:
        tokens = tokenizer.encode("a")
        for length in range(1, 2000):
            constraint.follow([tuple(tokens * length)])

    with pytest.raises(ConstraintError, match="more than 5 ms of CPU time for each token"):
        follow_many()


def _refused(name: str, value: str | tuple[str, ...]) -> ConstraintError:
    with pytest.raises(ConstraintError) as refused:
        grammar_of(name, value, drops_first_space=False)
    return refused.value


@pytest.mark.parametrize(
    ("schema", "path", "rule"),
    [
        pytest.param("{", "", "must be a JSON schema: Expecting", id="not JSON"),
        pytest.param('{"a": 1, "a": 2}', "", "must be a JSON schema: ", id="a name twice"),
        pytest.param("[]", "", "must be a JSON object, true or false, got list", id="a list"),
        pytest.param(
            '{"x-guidance": []}',
            ".x-guidance",
            "must be a JSON object, got list",
            id="llguidance's options as a list",
        ),
        pytest.param("false", "", "Unsatisfiable schema", id="nothing"),
        pytest.param(
            '{"properties": {"a": {"items": {"minimum": 5, "maximum": 3, "type": "integer"}, '
            '"minItems": 1, "type": "array"}}, "required": ["a"], "type": "object"}',
            ".properties.a.items",
            "minimum (5) is greater than maximum (3)",
            id="within",
        ),
        pytest.param(
            '{"anyOf": [{"type": "null"}, {"uniqueItems": true, "type": "array"}]}',
            ".anyOf[1]",
            'Unimplemented keys: ["uniqueItems"]',
            id="what cannot be enforced",
        ),
        pytest.param(
            '{"$ref": "#/$defs/b", "$defs": {"a": {}}}', "", "'/$defs/b' does not", id="no target"
        ),
        pytest.param('{"$ref": "https://a.example/b"}', "", "not fetch", id="of another host"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused_with_the_place(
    schema: str, path: str, rule: str
) -> None:
    error = _refused("json_schema", schema)
    assert error.path == path
    assert rule in str(error)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        pytest.param("regex", "(a", "unclosed group", id="malformed"),
        pytest.param("regex", "a(?=b)", "look-around", id="look-around"),
        pytest.param("regex", "()", "must allow a text that is not empty", id="empty only"),
        pytest.param("grammar", "start: x", 'unknown name: "x"', id="unknown rule"),
        pytest.param("grammar", 'other: "a"', "start", id="no start"),
    ],
)
def test_a_constraint_that_cannot_be_followed_is_refused(name: str, value: str, rule: str) -> None:
    assert rule in str(_refused(name, value))


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"anyOf": [{"required": [f"k{n}"], "type": "object"} for n in range(1000)]},
        lambda: {"properties": {f"k{n}": {} for n in range(3000)}, "type": "object"},
        lambda: json.loads('{"items":' * 100 + "{}" + "}" * 100),
    ],
    ids=["alternatives", "properties", "depth"],
)
def test_the_parts_of_a_large_schema_are_tried_within_bounds(
    make: Callable[[], dict[str, object]],
) -> None:
    schema = make() | {"uniqueItems": True}
    assert "uniqueItems" in str(_refused("json_schema", json.dumps(schema)))
