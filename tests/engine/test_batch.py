"""Rows keep all values of their requests when batches change their shape or swap rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest
import tensorflow as tf

from harness.engine import GOLDENS, Options, cached
from shaperouter_service.decoding import Batch, Caches, Shape, caches, prepare_caches
from shaperouter_service.decoding.state import State
from shaperouter_service.models import Model, load_model


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model("tiny", GOLDENS / "gpt2-untied", "float32")


class Row(NamedTuple):
    """All values of a row."""

    caches: list[np.ndarray]
    state: State
    options: Options


def _filled(model: Model, *, rows: int, beams: int, length: int, seed: int = 0) -> Batch:
    """A batch of random values, so that no value can be mistaken for another."""
    batch = Batch(model, rows=rows, beams=beams, length=length)
    rng = np.random.default_rng(seed)
    for array in tf.nest.flatten((batch.state, batch.options)):
        array[...] = rng.integers(1, 100, array.shape) % (2 if array.dtype == np.bool_ else 100)
    for handle in batch.caches.tokens:
        tf.raw_ops.AssignVariableOp(
            resource=handle, value=rng.normal(size=cached(handle).shape).astype(np.float32)
        )
    return batch


def _row(batch: Batch, row: int, *, places: int, tokens: int) -> Row:
    """A copy of the first positions and tokens of a row."""

    def cut(array: np.ndarray, *, of_places: bool = False) -> np.ndarray:
        if array.ndim < 2:
            return array[row].copy()
        return array[row, ..., : places if of_places else tokens].copy()

    state: State = tf.nest.map_structure(cut, batch.state)
    if batch.beams > 1:
        lineage = cut(batch.state.beams.lineage, of_places=True)
        state = state._replace(beams=state.beams._replace(lineage=lineage))
    return Row(
        caches=[cached(handle)[row, :, :, :places] for handle in batch.caches.tokens],
        state=state,
        options=tf.nest.map_structure(lambda field: field[row].copy(), batch.options),
    )


def _assert_equal(found: Any, expected: Any) -> None:
    tf.nest.map_structure(np.testing.assert_array_equal, found, expected)


def _assert_has_its_shape(batch: Batch, rows: int, length: int, tokens: int) -> None:
    family = batch.model.family
    assert batch.shape == Shape(rows, length)
    found = [cached(handle) for handle in batch.caches.tokens]
    layers = sum(cache.shape[1] for cache in found)
    assert layers == 2 * family.layers
    for cache in found:
        assert cache.shape == (rows, cache.shape[1], family.heads, length, family.head_size)
    assert batch.caches.bytes == sum(cache.nbytes for cache in found)
    assert batch.state.tokens.shape == (rows, batch.beams, tokens)
    assert batch.options.biased_tokens.shape[0] == rows


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize(
    ("kept", "rows", "length"),
    [
        ([0, 1, 2], 3, 24),  # as it is
        ([0, 1, 2], 4, 48),
        ([2], 1, 24),
        ([2, 0], 2, 16),
        ([1, 2], 4, 16),
        ([], 2, 32),
    ],
)
def test_remaining_rows_keep_all_that_fits(
    model: Model, beams: int, kept: list[int], rows: int, length: int
) -> None:
    batch = _filled(model, rows=3, beams=beams, length=24)
    places, tokens = min(24, length), min(24, length) + 1
    expected = [_row(batch, row, places=places, tokens=tokens) for row in kept]
    batch.reshape(kept, Shape(rows, length))
    _assert_has_its_shape(batch, rows, length, length + 1)
    found = [_row(batch, row, places=places, tokens=tokens) for row in range(len(kept))]
    _assert_equal(found, expected)


@pytest.mark.parametrize("beams", [1, 4])
def test_added_positions_and_unused_rows_are_empty(model: Model, beams: int) -> None:
    batch = _filled(model, rows=2, beams=beams, length=16)
    batch.reshape([1], Shape(2, 40))
    empty = Batch(model, rows=2, beams=beams, length=40)
    _assert_equal(_row(batch, 1, places=40, tokens=41), _row(empty, 1, places=40, tokens=41))
    assert not any(cached(handle)[0, :, :, 16:].any() for handle in batch.caches.tokens)
    assert not batch.state.tokens[0, :, 17:].any()
    if beams > 1:
        assert not batch.state.beams.lineage[0, :, 16:].any()


def test_a_sequence_is_never_longer_than_the_models_maximum(model: Model) -> None:
    batch = _filled(model, rows=1, beams=4, length=64)
    expected = _row(batch, 0, places=64, tokens=65)
    batch.reshape([0], Shape(1, 500))
    _assert_has_its_shape(batch, 1, 500, model.family.max_length)
    _assert_equal(_row(batch, 0, places=64, tokens=65), expected)


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("length", [16, 24, 40])
def test_copying_a_row_changes_no_other_row(model: Model, beams: int, length: int) -> None:
    source = _filled(model, rows=2, beams=beams, length=24, seed=1)
    batch = _filled(model, rows=3, beams=beams, length=length, seed=2)
    places, tokens = min(24, length), min(24, length) + 1
    expected = _row(source, 1, places=places, tokens=tokens)
    neighbours = [_row(batch, row, places=length, tokens=length + 1) for row in (0, 2)]
    batch.copy_row(1, source, 1)
    _assert_equal(_row(batch, 1, places=places, tokens=tokens), expected)
    _assert_equal(
        [_row(batch, row, places=length, tokens=length + 1) for row in (0, 2)], neighbours
    )
    assert not batch.state.tokens[1, :, 25:].any()


@pytest.mark.parametrize("beams", [1, 4])
def test_a_new_request_has_its_options_and_its_prompt_in_every_beam(
    model: Model, beams: int
) -> None:
    batch = Batch(model, rows=2, beams=beams, length=16)
    options = Options.of(
        max_new_tokens=9, seed=2**40 + 3, eos_token_ids=[5], biases=[([1, 2], -1.5)], top_k=7
    )
    batch.begin(1, [4, 5, 6], options)
    assert batch.state.tokens[1, :, :4].tolist() == [[4, 5, 6, 0]] * beams
    assert batch.state.lengths.tolist() == batch.state.prompt_lengths.tolist() == [0, 3]
    assert batch.state.remaining.tolist() == [0, 9]
    _assert_equal(
        tf.nest.map_structure(lambda field: field[1], batch.options),
        tf.nest.map_structure(lambda field: field[0], options),
    )
    assert batch.options.seed[1].tolist() == [3, 2**8]
    if beams > 1:
        assert batch.state.beams.lineage[1].sum(axis=-1).tolist() == [3] * beams
        assert batch.state.beams.scores[1].argmax() == 0


@pytest.mark.parametrize("checkpoint", ["gpt2-untied", "t5-gated"])
def test_prepared_caches_are_copied_without_compiling(checkpoint: str) -> None:
    model = load_model("m", GOLDENS / checkpoint, "float32")
    made = (caches._clear, caches._reshape, caches._copy_row)
    for each in made:
        each.cache_clear()
    prepare_caches(model)
    before = [each.cache_info().misses for each in made]
    source = 8 if model.family.max_source_length else 0
    batch = Caches(model, Shape(rows=1, length=16, source_length=source))
    batch.reshape([0], Shape(rows=2, length=32, source_length=2 * source))
    batch.copy_row(1, Caches(model, Shape(rows=1, length=4, source_length=source)), 0)
    assert [each.cache_info().misses for each in made] == before


def test_caches_are_freed_with_their_batch(model: Model) -> None:
    process = psutil.Process()
    shape = Shape(rows=64, length=4096)
    size = Batch.of_shape(model, shape, beams=1).caches.bytes
    assert size > 64 << 20
    before = process.memory_info().rss
    for _ in range(8):
        Batch.of_shape(model, shape, beams=1)
    assert process.memory_info().rss - before < 2 * size


def test_a_call_gets_what_changed_after_the_call_before_it(model: Model) -> None:
    batch = _filled(model, rows=2, beams=1, length=16)
    other = _filled(model, rows=2, beams=1, length=16, seed=1)
    changes: list[Callable[[], None]] = [
        lambda: batch.begin(1, [4, 5, 6], Options.of(max_new_tokens=9)),
        lambda: batch.copy_row(1, other, 0),
        lambda: batch.record_no_speech(()),
        lambda: batch.reshape([1], Shape(rows=2, length=32, source_length=0)),
    ]
    for change in changes:
        batch.advance(batch.state, tf.nest.map_structure(tf.constant, batch.state))
        assert batch.state_on_device is not batch.state
        change()
        assert batch.state_on_device is batch.state
