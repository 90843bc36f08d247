"""The served models: what they are for, and what callers see of them."""

from collections.abc import Mapping

from shaperouter_service.errors import ModelLoadingError
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.serving.tokenizers import with_tokenizer
from shaperouter_service.text import Tokenizer


def transcribes(model: ServedModel) -> bool:
    """Whether a model transcribes recordings."""
    return model.transcripts is not None


def takes_text(model: ServedModel) -> bool:
    """Whether a model generates from text."""
    return not transcribes(model)


class Models:
    """The models of a catalog, as callers see them."""

    def __init__(self, catalog: Catalog, tokenizers: Mapping[str, Tokenizer | None]) -> None:
        """Takes the catalog, and the tokenizer of each model."""
        self._catalog = catalog
        self._tokenizers = tokenizers

    def loaded(self) -> list[ServedModel]:
        """Every model that a worker has loaded."""
        return list(filter(None, map(self._describe, self._catalog.model_names)))

    def get(self, name: str) -> ServedModel:
        """One model.

        Raises:
            UnknownModelError: There is no such model.
            InvalidRequestError: No model was named, and there are several.
            ModelLoadingError: No worker has loaded it yet.
        """
        resolved = self._catalog.resolve(name)
        model = self._describe(resolved)
        if model is None:
            raise ModelLoadingError(resolved)
        return model

    def _describe(self, name: str) -> ServedModel | None:
        model = self._catalog.model(name)
        return with_tokenizer(model, self._tokenizers[name]) if model else None
