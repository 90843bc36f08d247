"""The inputs and results of a call of a decode graph."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from shaperouter_service.decoding.search import Logprobs
from shaperouter_service.decoding.speculation import BySource

# Maximum number of steps per call, and of new tokens of a row: the size of the result. The actual
# number is a tensor.
MAX_STEPS = 16

# A bit for each token after each hypothesis, by row; only rows with stop strings or a constraint.
TokenBits: TypeAlias = Mapping[int, Sequence[np.ndarray]]
NO_BITS: TokenBits = {}

# Maximum numbers of proposals of a step, by row: those from the row's own sequence, and those of
# the draft model.
Limits: TypeAlias = Mapping[int, tuple[int, int]]
NO_PROPOSALS: Limits = {}


class Inputs(NamedTuple):
    """Inputs of a call, besides the caches.

    Attributes:
        state: State before the steps.
        options: Options of R rows.
        pending: [R, V] float32, logits of rows without a new token yet; empty with sources.
        active: [R] bool, the rows to advance.
        steps: int32, number of steps, at most MAX_STEPS.
        stopping: See `BeamSearch`; empty without beam search.
        constraints: See `Constraints`; empty for models that transcribe.
        proposals: Maximum numbers of proposals that a step checks, a `BySource`; empty for programs
            that check none.
    """

    state: Any
    options: Any
    pending: Any
    active: Any
    steps: Any
    stopping: Any = ()
    constraints: Any = ()
    proposals: Any = ()


class Loop(NamedTuple):
    """The values that each step of the loop changes.

    Attributes:
        steps: int32, number of steps made.
        state: Current state.
        logprobs: Log-probabilities of the new tokens, [R, MAX_STEPS, ...].
        values: The caches.
        checked: Logits of the latest step; empty for programs that check no proposals.
    """

    steps: Any
    state: Any
    logprobs: Any
    values: list[tf.Tensor]
    checked: Any


class Outputs(NamedTuple):
    """Results of a call, besides the caches.

    Attributes:
        state: State after the steps.
        steps: int32, number of steps made.
        logprobs: Log-probabilities of the new tokens, [R, MAX_STEPS, ...].
        proposed: Numbers of proposals checked, a `BySource`; empty for programs that check none.
        accepted: Numbers of these that were accepted, likewise.
    """

    state: Any
    steps: Any
    logprobs: Any
    proposed: Any = ()
    accepted: Any = ()


class Decoded(NamedTuple):
    """Results of a call, on the host.

    Attributes:
        steps: Number of steps made: forward passes, and first tokens.
        logprobs: Log-probabilities of the new tokens, [R, MAX_STEPS, ...].
        proposed: Numbers of proposals checked.
        accepted: Numbers of these that were accepted.
    """

    steps: int
    logprobs: Logprobs
    proposed: BySource
    accepted: BySource
