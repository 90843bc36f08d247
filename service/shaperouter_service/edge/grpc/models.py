"""ModelService: the served models and their limits."""

from collections.abc import Mapping
from typing import Any

from shaperouter.v1 import model_pb2, model_pb2_grpc
from shaperouter_service.errors import ModelLoadingError
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.serving.tokenizers import describe_tokenizer
from shaperouter_service.text import Tokenizer


def transcribes(model: model_pb2.Model) -> bool:
    """Whether a model transcribes recordings."""
    return model.HasField("transcripts")


def takes_text(model: model_pb2.Model) -> bool:
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
        models = (self._describe(name) for name in self._catalog.model_names)
        return model_pb2.ListModelsResponse(models=[model for model in models if model])

    async def GetModel(  # noqa: N802 (gRPC's name)
        self, request: model_pb2.GetModelRequest, context: Any
    ) -> model_pb2.GetModelResponse:
        """Describes one model."""
        name = self._catalog.resolve(request.name)
        model = self._describe(name)
        if model is None:
            raise ModelLoadingError(name)
        return model_pb2.GetModelResponse(model=model)

    def _describe(self, name: str) -> model_pb2.Model | None:
        model = self._catalog.model(name)
        tokenizer = self._tokenizers[name]
        if model:
            describe_tokenizer(model, tokenizer)
        return model
