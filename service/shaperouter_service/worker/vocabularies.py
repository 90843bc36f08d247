"""The vocabularies of models, for stop strings of beam search and for constraints."""

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import structlog

from shaperouter_service.errors import (
    ExhaustedError,
    InvalidRequestError,
    ModelUnloadingError,
    StartupError,
)
from shaperouter_service.text import (
    ConstrainedVocabulary,
    Constraint,
    ConstraintError,
    StopTokens,
    Tokenizer,
    Vocabulary,
    load_tokenizer,
)

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Vocabularies:
    """The vocabularies of models, each loaded at its first use, in seconds."""

    def __init__(self, directories: Mapping[str, Path]) -> None:
        """Starts without vocabularies.

        Args:
            directories: The models' directories, by name.
        """
        self._directories = dict(directories)
        self._searchable: dict[str, Vocabulary] = {}
        self._constrained: dict[str, ConstrainedVocabulary] = {}
        # Why an import of Transformers was interrupted, which may have left it broken.
        self._interrupted: ExhaustedError | None = None
        self._lock = threading.Lock()

    def add(self, model: str, directory: Path) -> None:
        """Takes a further model."""
        with self._lock:
            self._directories[model] = directory

    def remove(self, model: str) -> None:
        """Forgets a model."""
        with self._lock:
            for known in (self._directories, self._searchable, self._constrained):
                known.pop(model, None)

    def stop_tokens(
        self, model: str, size: int, stop: Sequence[str], *, continues_text: bool
    ) -> StopTokens:
        """Finds the tokens that complete stop strings.

        Args:
            model: Name of the model.
            size: V of the model.
            stop: The stop strings, none of them empty.
            continues_text: Whether the new text continues that of the prompt.

        Raises: InvalidRequestError: The model's tokenizer does not show which tokens do.
        """
        vocabulary = self._get(
            self._searchable, model, "options.stop", lambda tokenizer: tokenizer.vocabulary(size)
        )
        return StopTokens(vocabulary, stop, continues_text=continues_text)

    def constraint(
        self,
        model: str,
        size: int,
        grammar: str,
        *,
        eos_token_ids: Sequence[int],
        generated: Sequence[int],
    ) -> Constraint:
        """Begins to follow a grammar.

        Args:
            model: Name of the model.
            size: V of the model.
            grammar: The grammar.
            eos_token_ids: Tokens that end the text.
            generated: Tokens of the text so far.

        Raises:
            InvalidRequestError: The model's tokenizer does not tell the bytes of its tokens, or the
                grammar cannot be followed.
        """
        vocabulary = self._get(
            self._constrained,
            model,
            "grammar",
            lambda tokenizer: tokenizer.constrained_vocabulary(size),
        )
        try:
            return vocabulary.constraint(grammar, eos_token_ids, generated)
        except ConstraintError as error:
            raise unfollowed(error, len(generated)) from None

    def _get(
        self, known: dict[str, T], model: str, field: str, load: Callable[[Tokenizer], T]
    ) -> T:
        with self._lock:
            if model not in self._directories:
                # It was freed while the request waited for its turn.
                raise ModelUnloadingError(model)
            if model not in known:
                try:
                    tokenizer = self._load(self._directories[model])
                    if tokenizer is None:
                        raise ValueError("the worker's copy of the model has no tokenizer")
                    known[model] = load(tokenizer)
                except (StartupError, ValueError) as error:
                    raise InvalidRequestError.of(field, f"cannot be used: {error}") from error
            return known[model]

    def _load(self, directory: Path) -> Tokenizer | None:
        """Loads a tokenizer; the first time, this imports Transformers.

        Python cannot undo half of an import: if it failed for want of memory or descriptors, names
        may be missing in this process for ever. It is then stopped, to be started again.
        """
        try:
            return load_tokenizer(directory)
        # An import that meets a half-imported module raises whatever its code runs into.
        except Exception as error:
            cause = error.__cause__ if isinstance(error, StartupError) else error
            if exhausted := ExhaustedError.of(cause):
                self._interrupted = exhausted
                raise exhausted from error
            broken = isinstance(cause, ImportError | AttributeError | NameError)
            if self._interrupted is None or not broken:
                raise
            log.exception("an interrupted import left Transformers broken: stopping")
            os.kill(os.getpid(), signal.SIGTERM)
            raise self._interrupted from error


def unfollowed(error: ConstraintError, tokens: int) -> InvalidRequestError:
    """The error of a run whose constraint cannot be followed any further."""
    return InvalidRequestError.of(
        "options",
        "must have a json_schema, regex, choices or grammar that can be followed, but after "
        f"{tokens} new tokens: {error}",
    )
