"""Stop strings of beam search: before each step, the tokens that would complete one.

Without beam search the router finds stop strings in the text. Beam search must know the completing
tokens of each hypothesis to choose tokens, so runs with stop strings get one step per call.
"""

from collections.abc import Iterable

import numpy as np

from shaperouter_service.decoding.state import State
from shaperouter_service.worker.run import Run


def completing_tokens(runs: Iterable[Run], state: State) -> dict[int, list[np.ndarray]]:
    """The tokens that complete a stop string after each hypothesis, by row."""
    return {
        run.row: [
            run.stop_tokens.after(hypothesis[len(run.token_ids) : state.lengths[run.row]].tolist())
            for hypothesis in state.tokens[run.row, : run.num_beams]
        ]
        for run in runs
        if run.stop_tokens is not None
    }
