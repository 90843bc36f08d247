"""Padding checks: some served calls of a function are repeated exactly while the device is idle.

The trial at the start proves nothing: a function may depend on its padding only for values that
random inputs do not have. So a share of the batches is kept and computed again, as saved and
uncompiled: padded and joined as it was served, and each call alone at its exact sizes. An axis
whose padding made a difference loses its ladder.
"""

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import structlog

from shaperouter_service.functions import Part, cut, join
from shaperouter_service.functions.agreement import disagreement, largest_values
from shaperouter_service.functions.function import Function
from shaperouter_service.functions.program import to_array
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.tensors.checking import Sizes
from shaperouter_service.tensors.specs import Axis
from shaperouter_service.worker.watchdog import Watchdog

log = structlog.get_logger(__name__)

# Batches that wait for a check. The device may not be idle for long, and their inputs take memory.
MAX_WAITING = 8
# How large an output usually is, is taken from this number of answers. Up to a tenth of them may be
# far larger than the others without loosening the checks.
ANSWERS = 100
QUANTILE = 0.9


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A difference that padding, or another call, has made.

    Attributes:
        axis: The axis that caused it.
        problem: How the answers differ.
    """

    axis: Axis
    problem: str


@dataclass(kw_only=True)
class _Sample:
    """A batch that was served, and how far its check is.

    Attributes:
        parts: Its parts.
        sizes: The sizes of its graph.
        served: Its graph.
        together: The outputs of all parts, padded and joined; None before they were computed.
        checked: Number of parts that were checked.
        row: Number of their rows.
    """

    parts: Sequence[Part]
    sizes: Sizes
    served: Signature
    together: Mapping[str, Any] | None = field(default=None, repr=False)
    checked: int = 0
    row: int = 0


class PaddingChecks:
    """The checks of one function. Only the device thread may use it.

    Attributes:
        checked: Number of calls that were repeated.
    """

    def __init__(self, function: Function, share: float, watchdog: Watchdog) -> None:
        """Starts without samples.

        Args:
            function: The function.
            share: Share of the calls that are repeated.
            watchdog: Watches its calls.
        """
        self.checked = 0
        self._function = function
        self._share = share
        self._watchdog = watchdog
        self._waiting: deque[_Sample] = deque(maxlen=MAX_WAITING)
        # The largest values of the last answers, at first of the trial's.
        self._largest = deque([function.usual], maxlen=ANSWERS)
        # The sample whose check has begun and has not ended.
        self._begun: _Sample | None = None
        self._random = random.Random()  # noqa: S311 (no secret)

    def sample(self, parts: Sequence[Part], sizes: Sizes, served: Signature) -> None:
        """Keeps a batch that was padded or joined, by chance.

        Args:
            parts: Its parts.
            sizes: The sizes of its graph.
            served: Its graph.
        """
        exact = len(parts) == 1 and parts[0].rows == sizes.rows and parts[0].sizes == sizes
        if not exact and self._random.random() < self._share:
            self._waiting.append(_Sample(parts=parts, sizes=sizes, served=served))

    def clear(self) -> None:
        """Forgets all samples: they were served with other ladders."""
        self._waiting.clear()
        self._begun = None

    @property
    def are_due(self) -> bool:
        """Whether there is anything to check."""
        return self._begun is not None or bool(self._waiting)

    def check(self, ladders: CallLadders) -> Difference | None:
        """Checks the next call of the newest sample; returns a difference.

        Args:
            ladders: The ladders that it was served with.
        """
        sample, self._begun = self._begun or self._waiting.pop(), None
        try:
            with self._watchdog.watching(sample.served, ()):
                difference = self._checked(sample, ladders)
        # The model cannot compute these values without XLA, e.g. ids that are out of range, or not
        # without padding; its Python code may raise anything. The call has its answer.
        except Exception as error:
            # Not its text, which may quote what callers sent.
            log.info("padding not checked", error=type(error).__name__)
            return None
        if difference is None and sample.checked < len(sample.parts):
            self._begun = sample
        return difference

    def _checked(self, sample: _Sample, ladders: CallLadders) -> Difference | None:
        spec = self._function.spec
        if sample.together is None:
            sample.together = self._outputs(join(sample.parts, spec, sample.sizes))
        part, row = sample.parts[sample.checked], sample.row
        sample.checked, sample.row = sample.checked + 1, row + part.rows
        self.checked += 1
        alone = _alone(part, self._function)
        expected = self._outputs(alone.inputs)
        self._largest.append(largest_values(expected))
        problem = disagreement(expected, cut(sample.together, spec, part, row), self._usual())
        return self._explained(alone, expected, sample.sizes, ladders, problem) if problem else None

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
            if of_axis := disagreement(expected, found, self._usual()):
                return Difference(axis=axis, problem=of_axis)
        return None if spec.batch is None else Difference(axis=spec.batch, problem=problem)

    def _usual(self) -> dict[str, float]:
        """How large the largest value of each output usually is."""
        return {
            name: float(np.quantile([each[name] for each in self._largest if each], QUANTILE))
            for name in self._largest[-1]
        }

    def _outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        outputs = self._function.function.call(inputs)
        return {name: to_array(output) for name, output in outputs.items()}


def _alone(part: Part, function: Function) -> Part:
    """The rows of a part as a call of their own."""
    sizes = replace(part.sizes, rows=part.rows)
    return Part(inputs=join([part], function.spec, sizes), sizes=sizes, first=0, rows=part.rows)
