"""Padding checks: some served calls of a function are repeated exactly while the device is idle.

The trial at the start proves nothing: a function may depend on its padding only for values that
random inputs do not have. So a share of the batches is kept and computed again, as saved and
uncompiled: padded and joined as it was served, and each call alone at its exact sizes. An axis
whose padding made a difference loses its ladder.
"""

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from shaperouter_service.functions import Part, cut, join
from shaperouter_service.functions.agreement import disagreement
from shaperouter_service.functions.function import Function
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.tensors.checking import Sizes
from shaperouter_service.tensors.specs import Axis

log = structlog.get_logger(__name__)

# Batches that wait for a check. The device may not be idle for long, and their inputs take memory.
MAX_WAITING = 8


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A difference that padding, or another call, has made.

    Attributes:
        axis: The axis that caused it.
        problem: How the answers differ.
    """

    axis: Axis
    problem: str


@dataclass(frozen=True, kw_only=True)
class _Sample:
    """A batch that was served: its parts, and the sizes of its graph."""

    parts: Sequence[Part]
    sizes: Sizes


class PaddingChecks:
    """The checks of one function. Only the device thread may use it.

    Attributes:
        checked: Number of calls that were repeated.
    """

    def __init__(self, function: Function, share: float) -> None:
        """Starts without samples.

        Args:
            function: The function.
            share: Share of the calls that are repeated.
        """
        self.checked = 0
        self._function = function
        self._share = share
        self._waiting: deque[_Sample] = deque(maxlen=MAX_WAITING)
        self._random = random.Random()  # noqa: S311 (no secret)

    def sample(self, parts: Sequence[Part], sizes: Sizes) -> None:
        """Keeps a batch that was padded or joined, by chance."""
        exact = len(parts) == 1 and parts[0].rows == sizes.rows and parts[0].sizes == sizes
        if not exact and self._random.random() < self._share:
            self._waiting.append(_Sample(parts=parts, sizes=sizes))

    def clear(self) -> None:
        """Forgets all samples: they were served with other ladders."""
        self._waiting.clear()

    def check(self, ladders: CallLadders) -> Difference | None:
        """Checks the newest sample; returns the first difference.

        Args:
            ladders: The ladders that it was served with.
        """
        sample = self._waiting.pop()
        try:
            together = self._outputs(join(sample.parts, self._function.spec, sample.sizes))
            row = 0
            for part in sample.parts:
                self.checked += 1
                alone = _alone(part, self._function)
                expected = self._outputs(alone.inputs)
                problem = disagreement(expected, cut(together, self._function.spec, part, row))
                row += part.rows
                if problem:
                    return self._explained(alone, expected, sample.sizes, ladders, problem)
        # The model cannot compute these values without XLA, e.g. ids that are out of range, or not
        # without padding; its Python code may raise anything. The call has its answer.
        except Exception as error:
            # Not its text, which may quote what callers sent.
            log.info("padding not checked", error=type(error).__name__)
        return None

    @property
    def waiting(self) -> int:
        """Number of samples."""
        return len(self._waiting)

    def _explained(
        self,
        alone: Part,
        expected: Mapping[str, Any],
        sizes: Sizes,
        ladders: CallLadders,
        problem: str,
    ) -> Difference | None:
        """Finds the axis that makes the difference: the first whose padding alone makes one."""
        spec = self._function.spec
        for index, axis in enumerate(spec.axes):
            if ladders.axes[index].ladder is None:
                continue
            padded = list(alone.sizes.axes)
            padded[index] = sizes.axes[index]
            inputs = join([alone], spec, replace(alone.sizes, axes=tuple(padded)))
            found = cut(self._outputs(inputs), spec, alone, 0)
            if of_axis := disagreement(expected, found):
                return Difference(axis=axis, problem=of_axis)
        return None if spec.batch is None else Difference(axis=spec.batch, problem=problem)

    def _outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        outputs = self._function.function.call(inputs)
        return {name: output.numpy() for name, output in outputs.items()}


def _alone(part: Part, function: Function) -> Part:
    """The rows of a part as a call of their own."""
    sizes = replace(part.sizes, rows=part.rows)
    return Part(inputs=join([part], function.spec, sizes), sizes=sizes, first=0, rows=part.rows)
