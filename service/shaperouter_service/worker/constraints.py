"""Constraints of runs: the tokens that may follow, for one step.

What may follow depends on the newest token, so runs with a constraint get one step per call.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from shaperouter_service.decoding.state import State
from shaperouter_service.generation.option import NO_TOKEN
from shaperouter_service.worker.run import Run


def allowed_tokens(runs: Iterable[Run]) -> dict[int, Sequence[np.ndarray]]:
    """The tokens that may follow each hypothesis, by row, for runs with a constraint."""
    return {run.row: run.constraint.allowed for run in runs if run.constraint is not None}


def follow(run: Run, state: State) -> None:
    """Follows the constraint of a run to its newest tokens.

    Raises:
        ConstraintError: The constraint cannot be followed.
    """
    if run.constraint is None:
        return
    begin = len(run.token_ids) + forced_tokens(run)
    end = state.lengths[run.row]
    run.constraint.follow(
        [tuple(tokens[begin:end].tolist()) for tokens in state.tokens[run.row, : run.num_beams]]
    )


def forced_tokens(run: Run) -> int:
    """Number of new tokens that are forced, such as a language, and no part of the text."""
    is_forced = run.options.forced_bos_token_id[0] != NO_TOKEN
    return int(is_forced and len(run.token_ids) == 1)
