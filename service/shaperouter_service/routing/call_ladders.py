"""The ladders of a model that is called once."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.tensors.checking import Sizes
from shaperouter_service.tensors.specs import CallSpec

# Name of the axis along which calls are joined.
BATCH = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisLadder:
    """The ladder of one axis.

    Attributes:
        name: Name of the axis.
        ladder: Its allowed sizes; None if the axis cannot be padded: it then has a graph for each
            size.
    """

    name: str
    ladder: Ladder | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLadders:
    """The ladders of all axes of a model that is called once.

    Attributes:
        rows: The batch. A call with more rows than the last rung is split. None if calls cannot be
            joined: the size of the batch, if there is one, is then one of the exact sizes.
        axes: The other axes, in the order of the model's `CallSpec`.
    """

    rows: Ladder | None
    axes: tuple[AxisLadder, ...] = ()

    def tight(self, model: str, *, rows: int, sizes: Sequence[int]) -> Signature:
        """The smallest signature for a call.

        Args:
            model: Name of the model.
            rows: Size of the batch; at most the last rung.
            sizes: Sizes of the other axes.

        Raises:
            ValueError: A size is above the last rung. Requests are validated before.
        """
        padded = [
            each.ladder.cover(size)
            for each, size in zip(self.axes, sizes, strict=True)
            if each.ladder is not None
        ]
        exact = [size for each, size in zip(self.axes, sizes, strict=True) if each.ladder is None]
        if self.rows is None:
            return self._signature(model, 1, padded, (rows, *exact))
        return self._signature(model, self.rows.cover(rows), padded, exact)

    def sizes(self, signature: Signature) -> Sizes:
        """The sizes of a signature of these ladders.

        Raises:
            ValueError: It has another number of padded or exact sizes.
        """
        names = [each.name for each in self.axes if each.ladder is not None]
        is_exact = [self.rows is None, *(each.ladder is None for each in self.axes)]
        padded = (signature.length, *signature.further)
        if len(padded) != max(1, len(names)) or len(signature.exact) != sum(is_exact):
            raise ValueError(f"{signature} is of other axes")
        next_padded, next_exact = iter(padded), iter(signature.exact)
        rows = next(next_exact) if self.rows is None else signature.rows
        axes = (next(next_padded if each.ladder else next_exact) for each in self.axes)
        return Sizes(rows=rows, axes=tuple(axes))

    @property
    def padded(self) -> dict[str, Ladder]:
        """The ladders with more than the size 1, by axis."""
        named = [(BATCH, self.rows), *((each.name, each.ladder) for each in self.axes)]
        return {name: ladder for name, ladder in named if ladder is not None and ladder.maximum > 1}

    def by_axis(self, sizes: Sizes) -> dict[str, int]:
        """The sizes along the axes of `padded`."""
        names = [BATCH, *(each.name for each in self.axes)]
        found = zip(names, (sizes.rows, *sizes.axes), strict=True)
        return {name: size for name, size in found if name in self.padded}

    def replacing(self, signature: Signature) -> Signature:
        """The tight cover of a signature, which may come from other ladders.

        Raises:
            ValueError: It is of other axes, or these ladders end below it.
        """
        sizes = self.sizes(signature)
        return self.tight(signature.model, rows=sizes.rows, sizes=sizes.axes)

    def has(self, signature: Signature) -> bool:
        """Whether a signature is one of these ladders."""
        try:
            return self.replacing(signature) == signature
        except ValueError:
            return False

    def covers(self, signature: Signature) -> Iterator[Signature]:
        """All signatures of these ladders that cover one of them."""
        sizes = self.sizes(signature)
        rows = [sizes.rows] if self.rows is None else self.rows.rungs
        rungs = [
            [size] if each.ladder is None else each.ladder.rungs
            for each, size in zip(self.axes, sizes.axes, strict=True)
        ]
        for count, *larger in itertools.product(rows, *rungs):
            cover = self.tight(signature.model, rows=count, sizes=larger)
            if cover.covers(signature):
                yield cover

    def largest(self, signature: Signature) -> Signature:
        """The signature of one row that covers all calls with the exact sizes of `signature`."""
        sizes = self.sizes(signature)
        largest = [
            size if each.ladder is None else each.ladder.maximum
            for each, size in zip(self.axes, sizes.axes, strict=True)
        ]
        rows = sizes.rows if self.rows is None else self.rows.rungs[0]
        return self.tight(signature.model, rows=rows, sizes=largest)

    def without(self, axis: str | None) -> "CallLadders":
        """These ladders without that of an axis; None is the batch."""
        if axis is None:
            return replace(self, rows=None)
        axes = (replace(each, ladder=None) if each.name == axis else each for each in self.axes)
        return replace(self, axes=tuple(axes))

    def signatures(self, model: str) -> Iterator[Signature]:
        """All signatures of the ladders; none if an axis has no ladder."""
        ladders = [each.ladder for each in self.axes]
        if self.rows is None or None in ladders:
            return
        rungs = [ladder.rungs for ladder in ladders if ladder is not None]
        for rows, *sizes in itertools.product(self.rows.rungs, *rungs):
            yield self._signature(model, rows, sizes, ())

    def first(self, model: str) -> Signature | None:
        """The graph that a worker makes first: it serves every call, a row or a few at a time.

        None if an axis has no ladder, because each size then needs a graph of its own.
        """
        ladders = [each.ladder for each in self.axes]
        if self.rows is None or None in ladders:
            return None
        longest = [ladder.maximum for ladder in ladders if ladder is not None]
        return self._signature(model, self.rows.rungs[0], longest, ())

    @staticmethod
    def _signature(model: str, rows: int, padded: Sequence[int], exact: Sequence[int]) -> Signature:
        return Signature(
            model=model,
            kind=GraphKind.CALL,
            beams=1,
            rows=rows,
            length=padded[0] if padded else 1,
            further=tuple(padded[1:]),
            exact=tuple(exact),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCall:
    """How a model that is called once is served, as workers describe it.

    Attributes:
        spec: Its tensors and axes.
        ladders: The ladders of its axes.
        compiled: Whether XLA compiles it. If False, TensorFlow runs its operations one by one.
        labels: Names of the classes, in the order of the scores; empty without names.
    """

    spec: CallSpec
    ladders: CallLadders
    compiled: bool = True
    labels: tuple[str, ...] = ()
