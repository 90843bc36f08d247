"""The served models: what they are for, and what callers see of them."""

import dataclasses
from collections.abc import Mapping, Sequence

from shaperouter_service.errors import InvalidRequestError, ModelLoadingError
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.serving.tokenizers import with_tokenizer
from shaperouter_service.text import Tokenizer


def transcribes(model: ServedModel) -> bool:
    """Whether a model transcribes recordings."""
    return model.transcripts is not None


def takes_text(model: ServedModel) -> bool:
    """Whether a model generates from text."""
    return model.call is None and not transcribes(model)


def answers_once(model: ServedModel) -> bool:
    """Whether a model is a function or a text encoder, which is called with tensors."""
    return model.call is not None


def wrong_model(model: ServedModel, needed: str) -> InvalidRequestError:
    """The error of a request to a model that cannot serve it.

    Args:
        model: The model.
        needed: What the request needs, e.g. `generates from text`.
    """
    if answers_once(model):
        does = "is called with tensors"
    else:
        does = "transcribes recordings" if transcribes(model) else "generates from text"
    description = f"must be a model that {needed}, got {model.name}, which {does}"
    return InvalidRequestError.of("model", description)


class Models:
    """The models of a catalog, as callers see them."""

    def __init__(
        self,
        catalog: Catalog,
        tokenizers: Mapping[str, Tokenizer | None],
        *,
        ready_without_workers: bool = False,
    ) -> None:
        """Takes the catalog.

        Args:
            catalog: The catalog.
            tokenizers: The tokenizer of each model.
            ready_without_workers: Whether calls may wait for workers to start.
        """
        self._catalog = catalog
        self._tokenizers = tokenizers
        self._ready_without_workers = ready_without_workers

    @property
    def names(self) -> Sequence[str]:
        """The names of all models, whether or not a worker has loaded them."""
        return self._catalog.model_names

    @property
    def ready(self) -> bool:
        """Whether requests should come; see `Catalog.ready`. Always if they may wait for one."""
        return self._ready_without_workers or self._catalog.ready

    def ready_workers(self) -> dict[str, int]:
        """Number of workers that are ready for each model that is not loaded on demand."""
        return self._catalog.ready_workers()

    def loaded(self) -> list[ServedModel]:
        """Every model that a worker has loaded, and every alias of one, by name."""
        names = sorted([*self._catalog.model_names, *self._catalog.revisions.aliases])
        return list(filter(None, map(self._describe, names)))

    def revisions(self, name: str) -> list[ServedModel]:
        """The loaded revisions of one model, as workers call them; none for an alias."""
        revisions = self._catalog.revisions.deployment(name).revisions
        return list(filter(None, (self._catalog.model(each.model) for each in revisions)))

    def get(self, name: str) -> ServedModel:
        """One model.

        Raises:
            UnknownModelError: There is no such model.
            InvalidRequestError: No model was named, and there are several.
            ModelLoadingError: No worker has loaded it yet.
        """
        is_alias = name in self._catalog.revisions.aliases
        resolved = name if is_alias else self._catalog.resolve(name)
        model = self._describe(resolved)
        if model is None:
            raise ModelLoadingError(resolved)
        return model

    def find(self, name: str) -> ServedModel | None:
        """One model; None if no name is given, none has it, or no worker has loaded it yet."""
        revisions = self._catalog.revisions
        is_known = name in revisions.names or name in revisions.aliases or revisions.is_known(name)
        return self._describe(name) if is_known else None

    def _describe(self, name: str) -> ServedModel | None:
        used = self._catalog.revisions.main(name)
        model = self._catalog.model(used)
        # A model that is no longer served may still be on a worker, for requests of other routers.
        if model is None or used not in self._tokenizers:
            return None
        targets = tuple(self._catalog.revisions.targets(name))
        described = dataclasses.replace(model, name=name, targets=targets)
        return with_tokenizer(described, self._tokenizers[used])
