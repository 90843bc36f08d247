"""The prefix cache stays within its memory, has whole prefixes, and keeps the most valuable."""

import random

import numpy as np
import pytest
import tensorflow as tf

from harness.engine import GOLDENS, cached
from shaperouter_service.decoding import Caches, Shape
from shaperouter_service.models import Model, load_model
from shaperouter_service.routing.prefixes import BLOCK, block_keys
from shaperouter_service.worker.prefix_cache import PrefixCache

NAME = "m"


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model(NAME, GOLDENS / "gpt2-untied", "float32")


@pytest.fixture(scope="module")
def filled(model: Model) -> Caches:
    """Two rows of random values."""
    return _random(model, Shape(rows=2, length=8 * BLOCK))


def _random(model: Model, shape: Shape) -> Caches:
    caches, rng = Caches(model, shape), np.random.default_rng(0)
    for handle in caches.tokens:
        values = rng.normal(size=cached(handle).shape).astype(np.float32)
        tf.raw_ops.AssignVariableOp(resource=handle, value=values)
    return caches


def _cache(caches: Caches, blocks: int) -> PrefixCache:
    """With room for a number of blocks."""
    return PrefixCache([NAME], blocks * (BLOCK * caches.bytes_per_token + 1024))


def _keys(seed: int, blocks: int) -> list[bytes]:
    return block_keys(NAME, "", random.Random(seed).choices(range(90), k=blocks * BLOCK))


@pytest.mark.parametrize("rows", [1, 2])
def test_blocks_that_are_loaded_have_the_values_of_the_row_they_were_kept_from(
    model: Model, filled: Caches, rows: int
) -> None:
    cache, keys = _cache(filled, 8), _keys(0, 3)
    cache.keep(NAME, keys, filled, 1)
    loaded = _random(model, Shape(rows=rows, length=4 * BLOCK))
    others = [cached(handle)[:-1] for handle in loaded.tokens]
    loaded.load_blocks(rows - 1, cache.blocks(NAME, keys))
    end = 3 * BLOCK
    for handle, source, other in zip(loaded.tokens, filled.tokens, others, strict=True):
        np.testing.assert_array_equal(cached(handle)[-1, :, :, :end], cached(source)[1, :, :, :end])
        assert not cached(handle)[-1, :, :, end:].any()
        np.testing.assert_array_equal(cached(handle)[:-1], other)


def test_what_is_kept_does_not_change_with_the_row_it_was_kept_from(model: Model) -> None:
    # A slice of all positions of a row could share the row's memory.
    caches, keys = _random(model, Shape(2, BLOCK)), _keys(0, 1)
    cache = _cache(caches, 1)
    cache.keep(NAME, keys, caches, 0)
    before = [cached(handle)[0] for handle in caches.tokens]
    caches.copy_row(0, caches, 1)
    (block,) = cache.blocks(NAME, keys)
    for kept, old in zip(block, before, strict=True):
        np.testing.assert_array_equal(kept.numpy()[0], old)


def test_rows_that_were_written_in_place_are_kept_and_copied_as_they_are(
    model: Model, filled: Caches
) -> None:
    caches, keys = _random(model, Shape(3, 2 * BLOCK)), _keys(0, 2)
    caches.copy_row(1, filled, 1)
    cache = _cache(caches, 2)
    cache.keep(NAME, keys, caches, 1)
    alone = Caches(model, Shape(1, 2 * BLOCK))
    alone.copy_row(0, caches, 1)
    blocks = zip(*cache.blocks(NAME, keys), strict=True)
    for parts, copy, source in zip(blocks, alone.tokens, filled.tokens, strict=True):
        expected = cached(source)[1:, :, :, : 2 * BLOCK]
        np.testing.assert_array_equal(tf.concat(parts, axis=3), expected)
        np.testing.assert_array_equal(cached(copy), expected)


def test_blocks_that_a_draft_model_has_not_read_are_known_and_replaced(filled: Caches) -> None:
    cache, keys = _cache(filled, 3), _keys(0, 3)
    cache.keep(NAME, keys, filled, 0, drafted=2 * BLOCK - 1)
    assert cache.drafted(NAME, keys) == BLOCK
    # Only the blocks that lack something change, and only for those that do not.
    cache.keep(NAME, keys, filled, 1)
    assert cache.drafted(NAME, keys) == BLOCK
    cache.keep(NAME, keys, filled, 1, drafted=2 * BLOCK)
    assert cache.drafted(NAME, keys) == 2 * BLOCK
    rows = (0, 1, 0)
    for index, (row, block) in enumerate(zip(rows, cache.blocks(NAME, keys), strict=True)):
        here = slice(index * BLOCK, (index + 1) * BLOCK)
        for kept, source in zip(block, filled.tokens, strict=True):
            np.testing.assert_array_equal(kept.numpy()[0], cached(source)[row, :, :, here])


def test_nothing_is_kept_of_a_model_that_has_been_removed(filled: Caches) -> None:
    cache, keys = _cache(filled, 3), _keys(0, 3)
    cache.remove(NAME)
    cache.keep(NAME, keys, filled, 0)
    assert cache.reports == {}


def test_a_long_prompt_of_one_request_does_not_displace_what_many_begin_with(
    filled: Caches,
) -> None:
    cache, popular, long = _cache(filled, 6), _keys(1, 2), _keys(2, 8)
    for _ in range(20):
        cache.keep(NAME, popular, filled, 0)
    cache.keep(NAME, long, filled, 1)
    assert cache.length(NAME, popular) == 2
    assert cache.length(NAME, long) == 4


def test_what_nobody_uses_any_more_is_displaced_in_time(filled: Caches) -> None:
    cache, popular = _cache(filled, 4), _keys(1, 4)
    for _ in range(20):
        cache.keep(NAME, popular, filled, 0)
    for seed in range(2, 30):
        cache.keep(NAME, _keys(seed, 4), filled, 1)
    assert cache.length(NAME, popular) == 0
    assert cache.length(NAME, _keys(29, 4)) == 4


def test_the_first_blocks_of_sequences_are_kept_within_the_memory(filled: Caches) -> None:
    rng, cache = random.Random(0), _cache(filled, 10)
    sequences: list[list[int]] = [[]]
    for _ in range(400):
        begun = rng.choice(sequences[-20:])
        tokens = begun[: rng.randrange(len(begun) + 1)] + rng.choices(range(90), k=BLOCK)
        sequences.append(tokens[: 8 * BLOCK])
        keys = block_keys(NAME, "", sequences[-1])
        length = cache.length(NAME, keys)
        cache.record_hit(NAME, keys[:length], length * BLOCK)
        cache.keep(NAME, keys, filled, 0)
        report = cache.reports[NAME]
        assert report.bytes <= cache.max_bytes
        # Every cached block has the blocks before it in the cache.
        known = [block_keys(NAME, "", sequence) for sequence in sequences]
        found = {key for keys in known for key in keys[: cache.length(NAME, keys)]}
        assert len(found) == len(report.blocks)
    assert cache.reports[NAME].evictions > 0
