"""The list of models."""

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.models import Models


class ModelList:
    """Answers requests about models."""

    def __init__(self, models: Models) -> None:
        """Takes the core's models."""
        self._models = models
        self._started = int(time.time())

    async def all(self, request: Request, call: Call) -> Response:
        """GET /v1/models: every model that a worker has loaded."""
        del request, call
        models = list(map(self._described, self._models.loaded()))
        return JSONResponse({"object": "list", "data": models})

    async def one(self, request: Request, call: Call) -> Response:
        """GET /v1/models/{model}."""
        del call
        return JSONResponse(self._described(self._models.get(request.path_params["model"])))

    def _described(self, model: ServedModel) -> dict[str, Any]:
        return {
            "id": model.name,
            "object": "model",
            "created": self._started,
            "owned_by": "shaperouter",
            "max_model_len": model.max_length,
        }
