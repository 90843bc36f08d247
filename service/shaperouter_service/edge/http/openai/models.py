"""The list of models."""

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.models import Models
from shaperouter_service.serving.on_demand import OnDemand


class ModelList:
    """Answers requests about models."""

    def __init__(self, models: Models, on_demand: OnDemand | None) -> None:
        """Takes the core's models, and what loads further ones when a request names them."""
        self._models = models
        self._on_demand = on_demand
        self._started = int(time.time())

    async def all(self, request: Request, call: Call) -> Response:
        """GET /v1/models: every model that a request may name."""
        del request, call
        models = [
            *map(self._described, self._models.loaded()),
            *map(self._entry, await self._loadable()),
        ]
        return JSONResponse({"object": "list", "data": models})

    async def one(self, request: Request, call: Call) -> Response:
        """GET /v1/models/{model}."""
        del call
        name = request.path_params["model"]
        if self._models.find(name) is None and name in await self._loadable():
            return JSONResponse(self._entry(name))
        return JSONResponse(self._described(self._models.get(name)))

    async def _loadable(self) -> list[str]:
        """The models that the next request may load."""
        return await self._on_demand.loadable() if self._on_demand else []

    def _described(self, model: ServedModel) -> dict[str, Any]:
        # Functions have no sequences, so no maximum either.
        length = {"max_model_len": model.max_length} if model.max_length else {}
        return self._entry(model.name) | length

    def _entry(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._started,
            "owned_by": "shaperouter",
        }
