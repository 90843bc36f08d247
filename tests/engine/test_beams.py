"""Beam search beyond the golden cases: scores that the reference loses, bans, stop strings."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import tensorflow as tf

from harness.engine import CHECKPOINTS, Bench, Collected
from harness.kernels import compiled
from shaperouter_service.decoding import Options, TranscriptRules
from shaperouter_service.decoding.beams import BeamSearch, _per_length
from shaperouter_service.decoding.state import LOWEST, Beams, State
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.generation.option import EarlyStopping
from shaperouter_service.generation.run_events import FinishReason
from shaperouter_service.text import load_tokenizer

MODEL = "gpt2-odd-heads"
VOCAB_SIZE = 101
PROMPT = [5, 6, 7]
BEAMS = 4
NEW_TOKENS = 24


@pytest.fixture(scope="module")
def bench(benches: Mapping[str, Bench]) -> Bench:
    return benches[MODEL]


def _only(*allowed: int) -> list[tuple[tuple[int], float]]:
    """Biases that ban all other tokens."""
    return [((token,), -math.inf) for token in range(VOCAB_SIZE) if token not in allowed]


@pytest.mark.parametrize("early_stopping", list(EarlyStopping))
@pytest.mark.parametrize("length_penalty", [-10.0, 10.0])
def test_every_sequence_is_finished_whatever_the_length_penalty(
    bench: Bench, length_penalty: float, early_stopping: EarlyStopping
) -> None:
    # Scores reach -1e15 and -1e-13; the reference has none below -1e9.
    ends = (13, 50, 96)
    search = bench.submit(
        MODEL,
        PROMPT,
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=10,
        num_beams=BEAMS,
        num_return_sequences=BEAMS,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        eos_token_ids=ends,
        logprobs=0,
    )
    search.wait()
    assert len(search.hypotheses) == BEAMS
    assert len({tuple(found.token_ids) for found in search.hypotheses}) == BEAMS
    scores = [found.score for found in search.hypotheses]
    assert scores == sorted(scores, reverse=True)
    for found in search.hypotheses:
        assert len(found.token_ids) == NEW_TOKENS or found.token_ids[-1] in ends
        assert len(found.token_ids) >= 10
        total = sum(each.logprob for each in found.logprobs)
        # Of tokens that are not banned, processors change nothing here.
        expected = total / len(found.token_ids) ** length_penalty
        assert found.score == pytest.approx(expected, rel=1e-4)


def test_a_score_below_the_range_of_floats_is_better_than_none() -> None:
    options = Options.of(max_new_tokens=4000, num_beams=2, length_penalty=-10.0)
    scores = _per_length(tf.constant([[-1e6, LOWEST]]), tf.constant([[4000]]), options)
    np.testing.assert_array_equal(scores, [[np.finfo(np.float32).min, LOWEST]])


def test_allowed_tokens_have_log_probabilities_and_others_the_lowest_score(is_native: bool) -> None:
    logprobs = np.log([0.1, 0.2, 0.3, 0.4])
    some, none = [LOWEST, *logprobs[1:]], [LOWEST] * 4
    search = BeamSearch(tf.zeros([1, 3, 1], tf.uint8), is_native=is_native)
    found = compiled(search._among_allowed)(tf.constant([[logprobs, some, none]], tf.float32))
    expected = [logprobs, [LOWEST, *np.log([2 / 9, 3 / 9, 4 / 9])], none]
    np.testing.assert_allclose(found[0], expected, rtol=1e-5)


def test_only_rows_that_ask_for_it_are_normalized_once_more(is_native: bool) -> None:
    scores = np.log([[0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]]).astype(np.float32)
    scores[:, 0] = LOWEST
    asked = [True, False, True]
    records = [Options.of(max_new_tokens=8, num_beams=2, renormalize_logits=each) for each in asked]
    options = tf.nest.map_structure(lambda *fields: tf.concat(fields, 0), *records)
    search = BeamSearch(tf.zeros([3, 2, 1], tf.uint8), is_native=is_native)
    active = tf.constant([True, True, False])
    found = compiled(search._renormalized)(tf.constant([scores] * 3), options, active).numpy()
    expected = [[LOWEST, *np.log([2 / 9, 3 / 9, 4 / 9])], [LOWEST, *np.log([1 / 3] * 3)]]
    np.testing.assert_allclose(found[0], expected, rtol=1e-5)
    np.testing.assert_array_equal(found[1:], [scores] * 2)
    active = tf.constant([False, True, False])
    found = compiled(search._renormalized)(tf.constant([scores] * 3), options, active).numpy()
    np.testing.assert_array_equal(found, [scores] * 3)


@pytest.mark.parametrize(
    ("asked", "likely"),
    [(False, [1 / 4, 3 / 16]), (True, [4 / 7, 3 / 7])],
)
def test_scores_are_normalized_once_more_after_bans_and_truncation(
    asked: bool, likely: list[float]
) -> None:
    options = Options.of(
        max_new_tokens=8,
        num_beams=2,
        biases=[((0,), -math.inf)],
        do_sample=True,
        top_k=2,
        renormalize_logits=asked,
    )
    state = State.empty(rows=1, beams=2, length=16, max_length=16)
    state.begin(0, [3], 8)
    search = BeamSearch(tf.zeros([1, 2, 1], tf.uint8), is_native=False)
    after, _ = search.advance(
        tf.math.log([[[1 / 2, 1 / 4, 3 / 16, 1 / 16]] * 2]),
        *tf.nest.map_structure(tf.constant, (state, options)),
        tf.constant([True]),
    )
    np.testing.assert_allclose(after.beams.scores[0], np.log(likely), rtol=1e-5)


def test_a_hypothesis_of_a_transcript_without_an_allowed_token_is_dropped() -> None:
    options = Options.of(
        max_new_tokens=8,
        num_beams=2,
        # Nothing may follow the token 1.
        biases=[((1, token), -math.inf) for token in range(4)],
        transcript=TranscriptRules.of(),
    )
    state = State.empty(rows=1, beams=2, length=16, max_length=16, has_transcript=True)
    state.begin(0, [0], 8)
    # The hypothesis that ends in 1 is the better one.
    state.tokens[0, :, 1] = [1, 2]
    state.lengths[0], state.remaining[0] = 2, 7
    assert isinstance(state.beams, Beams)
    state.beams.scores[0] = [-1.0, -3.0]
    search = BeamSearch(tf.zeros([1, 2, 1], tf.uint8), is_native=False)
    # Not compiled, because XLA ranks NaNs by their sign, and those of x86 last.
    after, _ = search.advance(
        tf.math.log([[[0.1, 0.2, 0.3, 0.4]] * 2]),
        *tf.nest.map_structure(tf.constant, (state, options)),
        tf.constant([True]),
    )
    assert after.tokens[0, :, :3].numpy().tolist() == [[0, 2, 3], [0, 2, 2]]
    np.testing.assert_allclose(after.beams.scores[0], -3 + np.log([0.4, 0.3]), rtol=1e-5)
    assert after.remaining.numpy().tolist() == [6]


def test_fewer_allowed_tokens_than_sequences_give_fewer_sequences(
    bench: Bench,
) -> None:
    search = bench.submit(
        MODEL,
        PROMPT,
        max_new_tokens=1,
        num_beams=BEAMS,
        num_return_sequences=BEAMS,
        biases=_only(20, 30),
    )
    search.wait()
    assert sorted(list(found.token_ids) for found in search.hypotheses) == [[20], [30]]


def test_a_search_with_all_tokens_banned_is_refused(bench: Bench) -> None:
    # Each token comes once, so after two there is none.
    search = bench.submit(
        MODEL,
        PROMPT,
        max_new_tokens=8,
        num_beams=BEAMS,
        num_return_sequences=BEAMS,
        no_repeat_ngram_size=1,
        biases=_only(20, 30),
    )
    with pytest.raises(InvalidRequestError, match="options: must allow beam search a token"):
        search.wait()


STOP = ["e", " of"]


@pytest.fixture(scope="module")
def decode() -> Callable[[Sequence[int]], str]:
    tokenizer = load_tokenizer(CHECKPOINTS["demo"])
    assert tokenizer is not None
    return tokenizer.decode


def _search(bench: Bench, **options: object) -> Collected:
    asked = {"max_new_tokens": 12, "num_beams": BEAMS, "num_return_sequences": BEAMS} | options
    return bench.submit("demo", [300, 400, 500], **asked)


def _found(collected: Collected) -> list[list[int]]:
    collected.wait()
    return [list(found.token_ids) for found in collected.hypotheses]


@pytest.mark.parametrize("sampling", [{}, {"do_sample": True, "seed": 5, "temperature": 1.5}])
def test_a_stop_string_ends_a_hypothesis_with_the_token_that_completes_it(
    benches: Mapping[str, Bench],
    decode: Callable[[Sequence[int]], str],
    sampling: dict[str, object],
) -> None:
    search = _search(benches["demo"], stop=STOP, **sampling)
    search.wait()
    reasons = {found.finish_reason for found in search.hypotheses}
    assert FinishReason.STOP in reasons
    for found in search.hypotheses:
        assert not any(string in decode(found.token_ids[:-1]) for string in STOP)
        stopped = any(string in decode(found.token_ids) for string in STOP)
        assert stopped == (found.finish_reason is FinishReason.STOP)
        assert stopped or len(found.token_ids) == 12


def test_stop_strings_change_nothing_for_others_in_the_batch(benches: Mapping[str, Bench]) -> None:
    bench = benches["demo"]
    alone = _found(_search(bench))
    stopped = _found(_search(bench, stop=STOP))
    assert stopped != alone
    plain, stopping = _search(bench), _search(bench, stop=STOP)
    assert (_found(plain), _found(stopping)) == (alone, stopped)


def test_stop_strings_that_do_not_occur_change_nothing(benches: Mapping[str, Bench]) -> None:
    bench = benches["demo"]
    assert _found(_search(bench, stop=["\N{SNOWMAN}"])) == _found(_search(bench))
