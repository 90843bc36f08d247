"""The trial of a function: which of its axes can be padded, and whether calls can be joined.

Random inputs of several shapes, padded and not, alone and beside others, must give the same answer.
They have both signs, or only one of them: padding by zeros hides among values of both. An axis that
fails is served exactly, with a graph for each size. The trial also finds which dimensions of the
outputs have the size of an axis.

It calls the function as it was saved, uncompiled, which takes any shape without a compilation. A
trial is not a proof: `worker.padding_checks` repeats some of the calls that are served.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from shaperouter_service.functions.agreement import disagreement, largest_values
from shaperouter_service.functions.axes import GuessedAxes
from shaperouter_service.functions.function import Call
from shaperouter_service.functions.joining import Part, cut, join
from shaperouter_service.functions.program import to_array
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.tensors.checking import Sizes
from shaperouter_service.tensors.specs import Axis, CallSpec, TensorSpec

Arrays: TypeAlias = "dict[str, np.ndarray[Any, Any]]"

# Random inputs for each question, by their signs: 0 for both, -1 and 1 for only one of them.
SIGNS = (0, -1, 1, 0)

# The smallest sizes, at which a function may take another path, and the largest one that is tried:
# a call at a larger one may take too long and too much memory.
SMALLEST, LARGEST = (1, 2, 3), 1024

# Rows of calls that are tried, and sizes along other axes: different ones, so that an output shows
# which axis a dimension follows. Functions may need larger sizes: they are then multiplied.
ROWS, SIZES, FACTORS = 3, (5, 7, 11, 13), (1, 3, 8, 32)

# Upper limits of random integers, tried in turn. Integers may be ids of a small vocabulary.
LARGEST_IDS = (5, 1)


@dataclass(frozen=True, kw_only=True)
class _Question:
    """Whether calls that are computed together have the answers that they have alone.

    Attributes:
        parts: The calls.
        sizes: The sizes that they are padded to.
        may_fail: Whether the function may refuse the calls alone, which says nothing: their values
            or sizes need not be ones that it takes.
    """

    parts: Sequence[Part]
    sizes: Sizes
    may_fail: bool = False


@dataclass(frozen=True, kw_only=True)
class TriedAxes:
    """The axes of a function after the trial.

    Attributes:
        spec: The tensors and axes, with the dimensions of outputs.
        ladders: The ladders; None where padding or joining calls changes answers.
        sizes: Sizes that the function takes.
        exact: Why axes have no ladder, by name.
        usual: The largest value of each output of real numbers; empty if none was computed.
    """

    spec: CallSpec
    ladders: CallLadders
    sizes: Sizes
    exact: dict[str, str]
    usual: Mapping[str, float]


def try_axes(
    call: Call,
    guessed: GuessedAxes,
    *,
    depends: Mapping[str, Collection[str]],
    sizes_follow_shapes: bool,
    state: Sequence[str] = (),
) -> TriedAxes:
    """Tries all axes of a function.

    Args:
        call: Calls the function.
        guessed: Its axes.
        depends: The inputs that each output may depend on; see `dependences`.
        sizes_follow_shapes: Whether the sizes of outputs depend on the sizes of inputs only, as
            those of a compiled function do, and not on values.
        state: Operations that give the function state; it is then not called.
    """
    trial = _Trial(call, guessed, depends=depends, sizes_follow_shapes=sizes_follow_shapes)
    if state:
        trial.fail_all(f"the function has state ({', '.join(state)})")
    else:
        try:
            trial.run()
        except _CallError as error:
            trial.fail_all(f"the trial could not call it: {error}")
    return TriedAxes(
        spec=trial.spec,
        ladders=trial.ladders,
        sizes=trial.sizes,
        exact=trial.exact,
        usual=trial.usual,
    )


class _CallError(Exception):
    """The function has failed, with its error's first line."""


class _Trial:
    """One trial, and what it has found so far."""

    def __init__(
        self,
        call: Call,
        guessed: GuessedAxes,
        *,
        depends: Mapping[str, Collection[str]],
        sizes_follow_shapes: bool,
    ) -> None:
        self._call = call
        self._depends, self._sizes_follow_shapes = depends, sizes_follow_shapes
        self._rng = np.random.default_rng(0)
        self._largest_id = LARGEST_IDS[0]
        self.usual: Mapping[str, float] = {}
        self.spec, self.ladders = guessed.spec, guessed.ladders
        self.sizes = self._limited(1)
        self.exact: dict[str, str] = {}

    def run(self) -> None:
        """Tries all axes.

        Raises:
            _CallError: The function fails for some values, or for all.
        """
        self._find_sizes()
        inputs = self._inputs(self.sizes)
        outputs = self._outputs(inputs)
        self.usual = largest_values(outputs)
        if problem := disagreement(outputs, self._outputs(inputs)):
            self.fail_all(f"equal calls have different answers: {problem}")
            return
        for index, axis in enumerate(self._all_axes):
            self._find_outputs(index, axis)
        self._find_shared_outputs()
        for index, axis in enumerate(self.spec.axes):
            if self.ladders.axes[index].ladder is not None:
                self._try(axis, self._padded_calls(index))
        if self.spec.batch is not None and self.ladders.rows is not None:
            self._try(self.spec.batch, self._joined_calls())
        if self.ladders.rows is not None and self.spec.batch is not None and self.spec.axes:
            self._try_together()

    def fail_all(self, reason: str) -> None:
        """Takes the ladders of all axes."""
        for axis in self._all_axes:
            self._fail(axis, reason)

    @property
    def _all_axes(self) -> list[Axis]:
        """The batch, if there is one, and the other axes."""
        return [*([self.spec.batch] if self.spec.batch else []), *self.spec.axes]

    def _fail(self, axis: Axis, reason: str) -> None:
        self.exact.setdefault(axis.name, reason)
        self.ladders = self.ladders.without(None if axis is self.spec.batch else axis.name)

    # --- Sizes and shapes -------------------------------------------------------------------------

    def _find_sizes(self) -> None:
        """Finds sizes that the function takes; raises its first error if there are none."""
        errors = []
        for factor, self._largest_id in itertools.product(FACTORS, LARGEST_IDS):
            self.sizes = self._limited(factor)
            try:
                self._outputs(self._inputs(self.sizes))
            except _CallError as error:
                errors.append(error)
            else:
                return
        raise errors[0]

    def _limited(self, factor: int) -> Sizes:
        """Sizes within the ladders."""
        primes = itertools.cycle(SIZES)
        limits = [
            1 << 30 if one.ladder is None else one.ladder.maximum for one in self.ladders.axes
        ]
        return Sizes(
            rows=ROWS if self.spec.batch else 1,
            axes=tuple(min(limit, factor * next(primes)) for limit in limits),
        )

    def _find_outputs(self, index: int, axis: Axis) -> None:
        """Finds which dimensions of the outputs have the size of an axis."""
        before = self._outputs(self._inputs(self.sizes))
        own = (self.sizes.rows, *self.sizes.axes)[index if self.spec.batch else index + 1]
        after: Arrays | None = None
        for size in (own - 1, own + 1, 2 * own, own // 2):
            try:
                after = self._outputs(self._inputs(self._resized(axis, size))) if size > 0 else None
            except _CallError:  # it cannot take this size
                continue
            if after is not None:
                break
        if after is None:
            self._fail(axis, f"it takes no other size than {own}")
            return
        found: dict[str, int] = {}
        for name, output in before.items():
            for dimension, sizes in enumerate(zip(output.shape, after[name].shape, strict=True)):
                if sizes == (own, size):
                    found[name] = dimension
                elif sizes[0] != sizes[1]:
                    self._fail(
                        axis, f"dimension {dimension} of {name} depends on it in another way"
                    )
        with_outputs = replace(axis, outputs=found)
        if axis is self.spec.batch:
            self.spec = replace(self.spec, batch=with_outputs)
        else:
            axes = (with_outputs if each is axis else each for each in self.spec.axes)
            self.spec = replace(self.spec, axes=tuple(axes))

    def _find_shared_outputs(self) -> None:
        """Serves the batch exactly if calls that are joined would share an output.

        All of them would get it whole, and no values that the trial draws need show this.
        """
        batch = self.spec.batch
        if batch is None:
            return
        for output in self.spec.outputs:
            if output.name not in batch.outputs:
                inputs = sorted(batch.inputs.keys() & self._depends[output.name])
                if inputs:
                    self._fail(batch, f"{output.name} has no rows but depends on {inputs[0]}")
            elif not self._sizes_follow_shapes:
                followed = {axis.outputs.get(output.name) for axis in self._all_axes}
                for dimension, size in enumerate(output.shape):
                    if size is None and dimension not in followed:
                        problem = f"the size of dimension {dimension} of {output.name}"
                        self._fail(batch, f"{problem} may depend on the values of all rows")

    def _resized(self, axis: Axis, size: int) -> Sizes:
        if axis.name == (self.spec.batch and self.spec.batch.name):
            return replace(self.sizes, rows=size)
        names = [each.name for each in self.spec.axes]
        sizes = list(self.sizes.axes)
        sizes[names.index(axis.name)] = size
        return replace(self.sizes, axes=tuple(sizes))

    # --- Questions --------------------------------------------------------------------------------

    def _try(self, axis: Axis, questions: Iterator[_Question]) -> None:
        """Takes the ladder of an axis if an answer depends on padding or on other calls."""
        for question in questions:
            if problem := self._problem(question):
                self._fail(axis, problem)
                return

    def _try_together(self) -> None:
        """Joins calls of different sizes, padded along all axes that can be padded."""
        smaller = self.sizes
        for index, (axis, one) in enumerate(zip(self.spec.axes, self.ladders.axes, strict=True)):
            size = smaller.axes[index]
            # Calls whose inputs without rows differ in size are never joined.
            if one.ladder is not None and size > 1 and self._common_inputs.isdisjoint(axis.inputs):
                smaller = self._with(smaller, index, size - 1)
        sizes = replace(self._all_padded(self.sizes), rows=2 * ROWS + 1)
        for sign in SIGNS:
            first = self._part(self.sizes, sign=sign)
            parts = [first, self._beside(first, smaller, sign=sign)]
            if problem := self._problem(_Question(parts=parts, sizes=sizes, may_fail=sign != 0)):
                self.fail_all(f"calls of different sizes cannot be joined: {problem}")
                return

    def _padded_calls(self, index: int) -> Iterator[_Question]:
        """Single calls, padded along one axis."""
        ladder = self.ladders.axes[index].ladder
        rungs = ladder.rungs if ladder else ()
        own = self.sizes.axes[index]
        larger = [rung for rung in rungs if rung > own][:2]
        if not larger:
            # The sizes found are the last rung, to which smaller ones are padded.
            larger, own = [own], max(1, own - 1)
        sizes = self._with(self.sizes, index, own)
        for sign, rung in itertools.product(SIGNS, larger):
            yield _Question(
                parts=[self._part(sizes, sign=sign)],
                sizes=self._with(sizes, index, rung),
                may_fail=sign != 0,
            )
        # The smallest sizes, and for each rung the size with the most padding.
        for size in (*SMALLEST, *(rung + 1 for rung in rungs)):
            rung = next((each for each in rungs if each >= size), 0)
            if size < rung <= LARGEST:
                one_row = self._with(replace(self.sizes, rows=1), index, size)
                yield _Question(
                    parts=[self._part(one_row)],
                    sizes=self._with(one_row, index, rung),
                    may_fail=True,
                )

    def _joined_calls(self) -> Iterator[_Question]:
        """Calls of one row and of several, in both orders, beside padding."""
        for draw, sign in enumerate(SIGNS):
            more = self._part(self.sizes, sign=sign, scale=10.0**draw)
            one = self._beside(more, replace(self.sizes, rows=1), sign=sign)
            for parts, padding in (([one], 1), ([one, more], 1), ([more, one], 0)):
                rows = sum(part.rows for part in parts) + padding
                sizes = replace(self.sizes, rows=rows)
                yield _Question(parts=parts, sizes=sizes, may_fail=sign != 0)

    def _problem(self, question: _Question) -> str:
        """Describes how answers change when calls are computed together; empty if they do not."""
        parts = question.parts
        try:
            alone = [self._outputs(part.inputs) for part in parts]
        except _CallError as error:
            return "" if question.may_fail else str(error)
        try:
            together = self._outputs(join(parts, self.spec, question.sizes))
        except _CallError as error:  # it cannot be served in this way
            return str(error)
        row = 0
        for part, expected in zip(parts, alone, strict=True):
            if problem := disagreement(expected, cut(together, self.spec, part, row), self.usual):
                return problem
            row += part.rows
        return ""

    def _all_padded(self, sizes: Sizes) -> Sizes:
        for index, one in enumerate(self.ladders.axes):
            larger = (
                [rung for rung in one.ladder.rungs if rung > sizes.axes[index]][:1]
                if one.ladder
                else []
            )
            for rung in larger:
                sizes = self._with(sizes, index, rung)
        return sizes

    @staticmethod
    def _with(sizes: Sizes, index: int, size: int) -> Sizes:
        axes = list(sizes.axes)
        axes[index] = size
        return replace(sizes, axes=tuple(axes))

    # --- Calls ------------------------------------------------------------------------------------

    def _part(self, sizes: Sizes, *, sign: int = 0, scale: float = 1.0) -> Part:
        inputs = self._inputs(sizes, sign=sign, scale=scale)
        return Part(inputs=inputs, sizes=sizes, first=0, rows=sizes.rows)

    def _beside(self, other: Part, sizes: Sizes, *, sign: int) -> Part:
        """A part that may be joined with another one: their inputs without rows are equal."""
        part = self._part(sizes, sign=sign)
        common = {name: other.inputs[name] for name in self._common_inputs}
        return replace(part, inputs={**part.inputs, **common})

    @property
    def _common_inputs(self) -> set[str]:
        """Names of the inputs without rows."""
        batched = self.spec.batch.inputs if self.spec.batch else {}
        return {each.name for each in self.spec.inputs} - batched.keys()

    def _outputs(self, inputs: Any) -> Arrays:
        try:
            return {name: to_array(output) for name, output in self._call(inputs).items()}
        # The function is the user's. Its operations and layers raise errors of any kind for sizes
        # and values that they cannot take.
        except Exception as error:
            raise _CallError((str(error) or type(error).__name__).splitlines()[0]) from error

    def _inputs(self, sizes: Sizes, *, sign: int = 0, scale: float = 1.0) -> Arrays:
        return {
            each.name: self._values(each, input_shape(each, self.spec, sizes), sign, scale)
            for each in self.spec.inputs
        }

    def _values(
        self, tensor: TensorSpec, shape: Sequence[int], sign: int, scale: float
    ) -> "np.ndarray[Any, Any]":
        dtype = tensor.dtype.numpy
        if dtype.kind == "O":
            words = np.array([b"", b"a", b"some text"], dtype=object)
            return np.asarray(self._rng.choice(words, size=shape))
        if dtype.kind in "biu":
            values = self._rng.integers(
                0, 1 if dtype.kind == "b" else self._largest_id, shape, endpoint=True
            )
            # A mask of nothing is no input that anybody sends.
            if values.ndim > 1:
                values[..., 0] = 1
            if sign and dtype.kind != "b":
                values = np.maximum(values, 1)
            # Integers beside other inputs may be a mask, which is never negative.
            is_signed = dtype.kind == "i" and len(self.spec.inputs) == 1
            return (-values if sign < 0 and is_signed else values).astype(dtype)
        numbers = self._rng.standard_normal(shape)
        if sign:
            numbers = sign * (np.abs(numbers) + 1)
        return (scale * numbers).astype(dtype)


def input_shape(tensor: TensorSpec, spec: CallSpec, sizes: Sizes) -> list[int]:
    """The shape of an input at given sizes."""
    shape = [1 if size is None else size for size in tensor.shape]
    pairs = [*([(spec.batch, sizes.rows)] if spec.batch else [])]
    for axis, size in (*pairs, *zip(spec.axes, sizes.axes, strict=True)):
        if tensor.name in axis.inputs:
            shape[axis.inputs[tensor.name]] = size
    return shape
