"""Stop strings of beam search: before each step, the tokens that would complete one.

Without beam search the router looks for them in the text. A search must know them to choose tokens,
for each hypothesis; so runs that have some get one step a call.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from shaperouter_service.decoding.state import State
from shaperouter_service.errors import InvalidRequestError, StartupError, Violation
from shaperouter_service.text import StopTokens, Vocabulary, load_tokenizer
from shaperouter_service.worker.run import Run


class Vocabularies:
    """What the tokens of each model add to a text, loaded when it is first asked for."""

    def __init__(self, directories: Mapping[str, Path]) -> None:
        """Loads nothing yet.

        Args:
            directories: Of each model by name.
        """
        self._directories = directories
        self._loaded: dict[str, Vocabulary] = {}
        self._lock = threading.Lock()

    def stop_tokens(self, model: str, size: int, stop: Sequence[str]) -> StopTokens:
        """The tokens that complete stop strings; takes seconds the first time.

        Args:
            model: A model's name.
            size: V of the model.
            stop: The strings, none of them empty.

        Raises:
            InvalidRequestError: It is not known which do.
        """
        with self._lock:
            if model not in self._loaded:
                self._loaded[model] = self._load(model, size)
        return StopTokens(self._loaded[model], stop)

    def _load(self, model: str, size: int) -> Vocabulary:
        try:
            tokenizer = load_tokenizer(self._directories[model])
            if tokenizer is None:
                raise ValueError("the worker's copy of the model has no tokenizer")
            return tokenizer.vocabulary(size)
        except (StartupError, ValueError) as error:
            raise InvalidRequestError(
                Violation(field="options.stop", description=f"cannot be searched for: {error}")
            ) from error


def completing_tokens(runs: Iterable[Run], state: State) -> dict[int, list[np.ndarray]]:
    """Of rows whose runs have stop strings, what completes one after each hypothesis."""
    return {
        run.row: [
            run.stop_tokens.after(hypothesis[len(run.token_ids) : state.lengths[run.row]].tolist())
            for hypothesis in state.tokens[run.row, : run.num_beams]
        ]
        for run in runs
        if run.stop_tokens is not None
    }
