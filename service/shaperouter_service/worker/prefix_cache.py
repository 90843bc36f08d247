"""A cache of keys and values of prefixes, for later requests with the same prefix.

It finds blocks of `BLOCK` tokens, which are copies on the device, by their keys
(`routing.prefixes`). A block is added only after the block before it, and evicted before that
block. So the cached blocks of a sequence are always its first ones.
"""

import heapq
import itertools
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from shaperouter_service.decoding import Caches
from shaperouter_service.routing.prefixes import BLOCK, digest
from shaperouter_service.routing.snapshots import PrefixReport

# Memory of a block besides its keys and values, in bytes.
_OVERHEAD = 1024

# Blocks that a worker reports for each model: with 4 bytes each, little beside a snapshot's graphs.
MAX_REPORTED_BLOCKS = 1024


@dataclass(slots=True, eq=False)
class _Block:
    """A cached block.

    Attributes:
        model: Name of the model.
        key: See `block_keys`.
        parent: The block before it; None for the first of a sequence.
        tensors: What `Caches.copy_blocks` returned for it.
        bytes: Its memory.
        digest: See `routing.prefixes.digest`.
        is_drafted: Whether it has the keys and values of the draft model.
        children: Number of cached blocks that follow it in some sequence.
        uses: Number of times that it was cached or copied.
        value: Blocks with the smallest value are evicted first.
    """

    model: str
    key: bytes
    parent: "_Block | None"
    tensors: Sequence[tf.Tensor] = field(repr=False)
    bytes: int
    digest: int
    is_drafted: bool
    children: int = 0
    uses: int = 0
    value: float = 0.0


@dataclass(slots=True)
class _ModelBlocks:
    """The blocks of a model, and counts since the start.

    Attributes:
        blocks: By key; the least recently used is first.
        bytes: Memory of the blocks.
        hit_tokens: Tokens that were copied instead of read.
        evictions: Blocks that were evicted.
    """

    blocks: dict[bytes, _Block] = field(default_factory=dict)
    bytes: int = 0
    hit_tokens: int = 0
    evictions: int = 0


class PrefixCache:
    """The cached blocks of all models of a worker.

    The device thread uses it, while another thread may add and remove models.

    Eviction follows GreedyDual-Size-Frequency (Cherkasova 1998). The value of a block is the number
    of tokens that it has saved for each byte. Each eviction raises the value of all later uses by
    the evicted block's value, so blocks that are not used age. A new block that is worth less than
    all others is not cached, and ages them.

    Attributes:
        max_bytes: Maximum memory of all blocks; 0 turns the cache off.
        reports: Reports to routers, by model. Replaced as a whole, so any thread may read it.
    """

    def __init__(self, models: Iterable[str], max_bytes: int) -> None:
        """Starts empty."""
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._models = {name: _ModelBlocks() for name in models}
        self._bytes = 0
        # Value of the block evicted last.
        self._floor = 0.0
        # Candidates for eviction: value, order and block. An entry is void if its block was dropped
        # or used since, or has children.
        self._leaves: list[tuple[float, int, _Block]] = []
        self._order = itertools.count()
        self.reports: Mapping[str, PrefixReport] = {}
        for name in self._models:
            self._report(name)

    @property
    def growth(self) -> int:
        """Bytes by which it may still grow."""
        return max(0, self.max_bytes - self._bytes)

    def add(self, model: str) -> None:
        """Adds a model."""
        with self._lock:
            self._models[model] = _ModelBlocks()
            self._report(model)

    def remove(self, model: str) -> None:
        """Removes a model and its blocks, if there are any; the model must have no runs."""
        with self._lock:
            dropped = self._models.pop(model, None)
            if dropped is not None:
                self._bytes -= dropped.bytes
                self._leaves = [entry for entry in self._leaves if entry[2].model != model]
                heapq.heapify(self._leaves)
                self.reports = {name: kept for name, kept in self.reports.items() if name != model}

    def blocks(self, model: str, keys: Sequence[bytes]) -> list[Sequence[tf.Tensor]]:
        """The cached blocks of a sequence, for `Caches.load_blocks`.

        Args:
            model: Name of the model.
            keys: Keys of the sequence's blocks.
        """
        kept = self._models[model].blocks
        return [kept[key].tensors for key in keys[: self.length(model, keys)]]

    def length(self, model: str, keys: Sequence[bytes]) -> int:
        """Number of cached blocks of a sequence."""
        kept = self._models[model].blocks
        return next((index for index, key in enumerate(keys) if key not in kept), len(keys))

    def drafted(self, model: str, keys: Iterable[bytes]) -> int:
        """Number of cached tokens of a sequence that a draft model need not read either.

        Args:
            model: Name of the model.
            keys: Keys of the sequence's cached blocks.
        """
        kept = self._models[model].blocks
        return BLOCK * sum(1 for _ in itertools.takewhile(lambda key: kept[key].is_drafted, keys))

    def record_hit(self, model: str, keys: Iterable[bytes], tokens: int) -> None:
        """Counts a use.

        Args:
            model: Name of the model.
            keys: Keys of the blocks that were copied from here.
            tokens: Tokens that were copied instead of read, from here or from a running request.
        """
        with self._lock:
            found = self._models[model]
            for key in keys:
                self._touch(found.blocks[key])
            found.hit_tokens += tokens
            self._report(model)

    def keep(
        self, model: str, keys: Sequence[bytes], caches: Caches, row: int, *, drafted: int = 0
    ) -> None:
        """Caches copies of the first blocks of a row, as many as there is room for.

        Args:
            model: Name of the model.
            keys: Keys of the row's blocks.
            caches: Holds their keys and values, from position 0 on.
            row: The row.
            drafted: Number of its tokens, from the first, that the draft model has read.
        """
        with self._lock:
            self._keep(model, keys, caches, row, drafted)

    def _keep(
        self, model: str, keys: Sequence[bytes], caches: Caches, row: int, drafted: int
    ) -> None:
        found = self._models.get(model)
        if found is None:
            # The model was removed right after the run had ended.
            return
        parent: _Block | None = None
        pinned = set(keys)
        uncopied: dict[int, _Block] = {}
        for index, key in enumerate(keys):
            block = found.blocks.get(key)
            is_drafted = (index + 1) * BLOCK <= drafted
            if block is None:
                size = BLOCK * caches.bytes_per_token + _OVERHEAD
                if not self._make_room(size, pinned):
                    # The rest counts as cached and evicted at once, so that blocks of more value
                    # age, too.
                    self._floor += (len(keys) - index) * BLOCK / size
                    break
                block = _Block(model, key, parent, (), size, digest(key), is_drafted)
                self._insert(found, block)
                uncopied[index] = block
            elif is_drafted and not block.is_drafted:
                block.is_drafted = True
                uncopied[index] = block
            self._touch(block)
            parent = block
        copies = caches.copy_blocks(row, [index * BLOCK for index in uncopied], BLOCK)
        for block, tensors in zip(uncopied.values(), copies, strict=True):
            block.tensors = tensors
        self._report(model)

    def _insert(self, found: _ModelBlocks, block: _Block) -> None:
        found.blocks[block.key] = block
        found.bytes += block.bytes
        self._bytes += block.bytes
        if block.parent is not None:
            block.parent.children += 1

    def _touch(self, block: _Block) -> None:
        block.uses += 1
        block.value = self._floor + block.uses * BLOCK / block.bytes
        kept = self._models[block.model].blocks
        kept[block.key] = kept.pop(block.key)
        if not block.children:
            self._offer(block)

    def _offer(self, block: _Block) -> None:
        """Makes a block that no other follows a candidate for eviction."""
        heapq.heappush(self._leaves, (block.value, next(self._order), block))
        kept = sum(len(found.blocks) for found in self._models.values())
        if len(self._leaves) > 4 * kept + 64:
            self._leaves = [entry for entry in self._leaves if self._is_leaf(*entry)]
            heapq.heapify(self._leaves)

    def _is_leaf(self, value: float, _: int, block: _Block) -> bool:
        is_kept = self._models[block.model].blocks.get(block.key) is block
        return is_kept and not block.children and block.value == value

    def _make_room(self, size: int, pinned: Collection[bytes]) -> bool:
        """Evicts blocks until a new one of `size` bytes has room; returns whether it has.

        Blocks that are worth more than the new one stay, so the long prompt of one request does not
        evict a prefix of many requests.
        """
        if size > self.max_bytes:
            return False
        value = self._floor + BLOCK / size
        skipped = []
        while self._bytes + size > self.max_bytes and self._leaves:
            entry = heapq.heappop(self._leaves)
            if not self._is_leaf(*entry):
                continue
            if entry[2].key in pinned:
                skipped.append(entry)
                continue
            if entry[0] > value:
                skipped.append(entry)
                break
            self._evict(entry[2])
        for entry in skipped:
            heapq.heappush(self._leaves, entry)
        return self._bytes + size <= self.max_bytes

    def _evict(self, block: _Block) -> None:
        found = self._models[block.model]
        # A block can be worth less than a block that followed it and was evicted earlier.
        self._floor = max(self._floor, block.value)
        del found.blocks[block.key]
        found.bytes -= block.bytes
        found.evictions += 1
        self._bytes -= block.bytes
        if block.parent is not None:
            block.parent.children -= 1
            if not block.parent.children:
                self._offer(block.parent)

    def _report(self, model: str) -> None:
        # A block of this model may have evicted blocks of any other model.
        reports = dict(self.reports)
        for name, found in self._models.items():
            newest = itertools.islice(reversed(found.blocks.values()), MAX_REPORTED_BLOCKS)
            known = reports.get(name)
            if name != model and known is not None and known.evictions == found.evictions:
                continue
            reports[name] = PrefixReport(
                model=name,
                bytes=found.bytes,
                hit_tokens=found.hit_tokens,
                evictions=found.evictions,
                blocks=tuple(block.digest for block in newest),
            )
        self.reports = reports
