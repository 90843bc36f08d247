"""Keys of blocks: equal for equal beginnings only."""

from hypothesis import given
from hypothesis import strategies as st

from shaperouter_service.routing.prefixes import BLOCK, block_keys, digest, shared_tokens

tokens = st.lists(st.integers(0, 2**31 - 1), max_size=5 * BLOCK)


@given(common=tokens, one=tokens, other=tokens)
def test_sequences_share_the_keys_of_their_common_beginning(
    common: list[int], one: list[int], other: list[int]
) -> None:
    first, second = [*common, *one], [*common, *other]
    same = next(
        (index for index, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )
    keys, others = block_keys("m", "", first), block_keys("m", "", second)
    assert len(keys) == len(first) // BLOCK
    assert keys[: same // BLOCK] == others[: same // BLOCK]
    assert set(keys[same // BLOCK :]).isdisjoint(others[same // BLOCK :])


def test_models_and_scopes_have_no_key_in_common() -> None:
    found = [
        block_keys(model, scope, [1] * BLOCK)[0]
        for model, scope in (("m", ""), ("m", "a"), ("m a", ""), ("n", "a"))
    ]
    assert len(set(found)) == len(found)


@given(sequence=tokens, kept=st.integers(0, 5))
def test_the_furthest_block_that_is_reported_says_how_much_is_shared(
    sequence: list[int], kept: int
) -> None:
    keys = block_keys("m", "", sequence)
    # A report has the blocks used last, which need not include the first.
    reported = {digest(key) for key in keys[max(0, kept - 2) : kept]}
    assert shared_tokens(keys, reported) == min(kept, len(keys)) * BLOCK or kept - 2 >= len(keys)
