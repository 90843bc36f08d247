"""ModelService: the served models and their limits."""

from collections.abc import Mapping
from typing import Any

from shaperouter.v1 import model_pb2, model_pb2_grpc
from shaperouter_service.errors import ModelLoadingError
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.serving.tokenizers import with_tokenizer
from shaperouter_service.text import Tokenizer
from shaperouter_service.wire.models import model_to_message


def transcribes(model: ServedModel) -> bool:
    """Whether a model transcribes recordings."""
    return model.transcripts is not None


def takes_text(model: ServedModel) -> bool:
    """Whether a model generates from text."""
    return not transcribes(model)


class ModelServicer(model_pb2_grpc.ModelServiceServicer):
    """See model.proto."""

    def __init__(self, catalog: Catalog, tokenizers: Mapping[str, Tokenizer | None]) -> None:
        """Serves the models of a catalog."""
        self._catalog = catalog
        self._tokenizers = tokenizers

    async def ListModels(  # noqa: N802 (gRPC's name)
        self, request: model_pb2.ListModelsRequest, context: Any
    ) -> model_pb2.ListModelsResponse:
        """Lists every model that a worker has loaded."""
        models = filter(None, map(self._describe, self._catalog.model_names))
        return model_pb2.ListModelsResponse(models=map(model_to_message, models))

    async def GetModel(  # noqa: N802 (gRPC's name)
        self, request: model_pb2.GetModelRequest, context: Any
    ) -> model_pb2.GetModelResponse:
        """Describes one model."""
        name = self._catalog.resolve(request.name)
        model = self._describe(name)
        if model is None:
            raise ModelLoadingError(name)
        return model_pb2.GetModelResponse(model=model_to_message(model))

    def _describe(self, name: str) -> ServedModel | None:
        model = self._catalog.model(name)
        return with_tokenizer(model, self._tokenizers[name]) if model else None
