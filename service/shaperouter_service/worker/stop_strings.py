"""Stop strings of beam search: before each step, the tokens that would complete one.

Without beam search the router finds stop strings in the text. Beam search must know the completing
tokens of each hypothesis to choose tokens, so runs with stop strings get one step per call.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from shaperouter_service.decoding.state import State
from shaperouter_service.errors import InvalidRequestError, StartupError
from shaperouter_service.text import StopTokens, Vocabulary, load_tokenizer
from shaperouter_service.worker.run import Run


class Vocabularies:
    """The vocabularies of models, each loaded at its first use."""

    def __init__(self, directories: Mapping[str, Path]) -> None:
        """Starts without vocabularies.

        Args:
            directories: The models' directories, by name.
        """
        self._directories = directories
        self._loaded: dict[str, Vocabulary] = {}
        self._lock = threading.Lock()

    def stop_tokens(self, model: str, size: int, stop: Sequence[str]) -> StopTokens:
        """Finds the tokens that complete stop strings; takes seconds the first time.

        Args:
            model: Name of the model.
            size: V of the model.
            stop: The stop strings, none of them empty.

        Raises:
            InvalidRequestError: The model's tokenizer does not tell which tokens do.
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
            raise InvalidRequestError.of(
                "options.stop", f"cannot be searched for: {error}"
            ) from error


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
