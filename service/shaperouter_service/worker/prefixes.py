"""The prefix of its prompt that a run of a lane need not read, because another run has read it.

If the other run has ended, its blocks are copied from the `PrefixCache`; if it still runs, its row
of a batch is copied. The keys and values of a token depend only on the tokens up to it. So with the
native kernels they have the same bits in every run.

Runs of models with an encoder share nothing, because their keys and values also depend on the
source. A run that reports log-probabilities of its prompt must read the whole prompt itself. A copy
is made only if the rest then takes fewer or shorter pieces to read, because a piece takes the same
time, however little of it is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shaperouter_service.decoding import Batch
from shaperouter_service.decoding.prefill import computed_positions, reads_short
from shaperouter_service.models import Model
from shaperouter_service.routing.prefixes import BLOCK, block_keys
from shaperouter_service.worker.prefix_cache import PrefixCache
from shaperouter_service.worker.run import Phase, Run, in_phase


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The beginning of a run's prompt that need not be read.

    Attributes:
        tokens: Number of its tokens.
        holder: A running run of the lane that has read it; None if it is in the cache.
    """

    tokens: int = 0
    holder: Run | None = None


NOTHING = Shared()


class Prefixes:
    """Finds and copies what the runs of a lane share. Only the device thread may use it."""

    def __init__(self, model: Model, cache: PrefixCache, *, piece: int) -> None:
        """Takes the model of the lane, and the cache of the worker.

        Args:
            model: The model.
            cache: The cache.
            piece: Maximum number of tokens of a prompt that one call reads.
        """
        self._model = model
        self._cache = cache
        self._piece, self._reads_short = piece, reads_short(model, piece)
        self._is_on = cache.max_bytes > 0 and not model.family.max_source_length

    def read_next(self, waiting: Sequence[Run], runs: Sequence[Run]) -> dict[Run, Shared]:
        """Chooses the runs whose prompts one call may read.

        All of them begin to read at the same position. A run waits if an earlier one reads
        at least half of the tokens that it needs; it copies them afterwards.

        Args:
            waiting: Runs with an unread prompt; at least one.
            runs: All runs of the lane.

        Returns:
            The first of `waiting` and others, in their order, with what they share.
        """
        if not self._is_on:
            return dict.fromkeys(waiting, NOTHING)
        shared: dict[Run, Shared] = {}
        for run in waiting:
            found = self._find(run, runs)
            first = next(iter(shared.values()), found)
            if found.tokens == first.tokens and not self._repeats(run, found, shared):
                shared[run] = found
        return shared

    def copy(self, shared: Shared, run: Run) -> None:
        """Copies a shared prefix to the row of a run that has read nothing yet."""
        if not shared.tokens or run.batch is None:
            return
        holder, keys = shared.holder, self._keys(run)
        keys = keys[: -(-shared.tokens // BLOCK)]
        if holder is not None and holder.batch is not None:
            run.batch.caches.copy_row(run.row, holder.batch.caches, holder.row)
            drafted = holder.batch.drafted(holder.row)
            keys = keys[:0]
        else:
            run.batch.caches.load_blocks(run.row, self._cache.blocks(self._model.name, keys))
            drafted = self._cache.drafted(self._model.name, keys)
        if drafted < shared.tokens:
            run.batch.limit_drafted(run.row, drafted)
        run.cached_prompt_tokens = min(shared.tokens, len(run.token_ids))
        self._cache.record_hit(self._model.name, keys, shared.tokens)

    def keep(self, run: Run, batch: Batch, row: int) -> None:
        """Caches the prompt and the text of a run.

        Args:
            run: A run that has ended, after its prompt was read.
            batch: The batch that it was in, unchanged since.
            row: Its row there.
        """
        if not self._is_on:
            return
        state = batch.state
        # The newest token is in no cache. Beams share only the prompt.
        length = int(state.prompt_lengths[row] if batch.beams > 1 else state.lengths[row] - 1)
        tokens = state.tokens[row, 0, :length]
        keys = block_keys(self._model.name, run.prefix_scope, tokens)
        self._cache.keep(self._model.name, keys, batch.caches, row, drafted=batch.drafted(row))

    def _keys(self, run: Run) -> Sequence[bytes]:
        """Keys of the blocks that a run reads."""
        if run.prefix_keys is None:
            tokens = [*run.token_ids, *run.generated_token_ids][: run.read_tokens]
            run.prefix_keys = block_keys(self._model.name, run.prefix_scope, tokens)
        return run.prefix_keys

    def _find(self, run: Run, runs: Sequence[Run]) -> Shared:
        """The longest beginning of a run's prompt that can be copied, if that saves a piece."""
        if run.scores:
            return NOTHING
        keys = self._keys(run)
        blocks, holder = self._cache.length(self._model.name, keys), None
        for other in in_phase(runs, Phase.DECODE):
            if (common := _common(keys, self._keys(other))) > blocks:
                blocks, holder = common, other
        # The last token is read in any case, for its logits.
        tokens = min(blocks * BLOCK, run.read_tokens - 1)
        return Shared(tokens=tokens, holder=holder) if self._saves(run, tokens, 0) else NOTHING

    def _saves(self, run: Run, tokens: int, before: int) -> bool:
        """Whether fewer or shorter pieces read the rest of a run's prompt.

        Args:
            run: The run.
            tokens: Tokens that are copied.
            before: Tokens that are copied otherwise.
        """
        rest, other = (
            computed_positions(run.read_tokens - copied, self._piece, reads_short=self._reads_short)
            for copied in (tokens, before)
        )
        return rest < other

    def _repeats(self, run: Run, shared: Shared, earlier: dict[Run, Shared]) -> bool:
        """Whether an earlier run reads at least half of the tokens that this one lacks.

        What is left then must take fewer or shorter pieces, or both are read in one call.
        """
        if run.scores:
            return False
        unread = run.read_tokens - shared.tokens
        keys = self._keys(run)
        common = max((_common(keys, self._keys(other)) * BLOCK for other in earlier), default=0)
        copied = min(common, run.read_tokens - 1)
        return 2 * (common - shared.tokens) >= unread and self._saves(run, copied, shared.tokens)


def _common(keys: Sequence[bytes], others: Sequence[bytes]) -> int:
    """Number of equal keys at the beginning."""
    count = min(len(keys), len(others))
    # A key depends on all before it, so equal keys are the first ones.
    low = 0
    while low < count:
        middle = (low + count + 1) // 2
        if keys[middle - 1] == others[middle - 1]:
            low = middle
        else:
            count = middle - 1
    return low
