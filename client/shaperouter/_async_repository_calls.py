"""The client's calls that load and unload models."""

import math
from collections.abc import Mapping

from shaperouter import _convert, _requests
from shaperouter._async_base_client import AsyncBaseClient
from shaperouter._model import Model
from shaperouter._retries import NO_RETRIES


class AsyncRepositoryCalls(AsyncBaseClient):
    """The methods with which operators change the models of a running service; never repeated."""

    async def load_model(
        self, name: str, location: str = "", *, share: float = 1.0, timeout: float = math.inf
    ) -> Model:
        """Loads a model while the service runs, or a new revision of one behind its name.

        Returns once new requests get it; running requests finish on the old revision. If a worker
        cannot load it, or if this call ends early, the old revision keeps serving.

        Args:
            name: Name that requests will use.
            location: Where its files are: a path below the directory of ``--model-repository``.
                Default: the name.
            share: Share of the requests that it gets, above 0 and at most 1: less than 1 makes it a
                canary, and the revision that serves now keeps the rest.
            timeout: Deadline of this call in seconds. Default: none, even if the client has one.

        Raises:
            InvalidArgumentError: The name or the share cannot be used, or there is no model at the
                location.
            PermissionDeniedError: The client is not an operator.
            ShaperouterError: A worker could not load it, or the service has no model repository.
        """
        request = _requests.load_request(name, location, share)
        response = await self._call(
            self._stubs.models.LoadModel, request, timeout, retries=NO_RETRIES
        )
        return _convert.model(response.model)

    async def unload_model(self, name: str, *, timeout: float | None = None) -> None:
        """Stops serving a model: new requests are refused, and running ones finish.

        Args:
            name: Name of the model; or an alias, which is removed.
            timeout: Deadline of this call in seconds. Default: the client's.

        Raises:
            ModelNotFoundError: The service has no such model.
            PermissionDeniedError: The client is not an operator.
            ShaperouterError: The service has no model repository.
        """
        request = _requests.unload_request(name)
        await self._call(self._stubs.models.UnloadModel, request, timeout, retries=NO_RETRIES)

    async def set_alias(
        self, name: str, targets: str | Mapping[str, float], *, timeout: float | None = None
    ) -> None:
        """Sets where requests to an alias go; `unload_model` removes it.

        Args:
            name: The alias, a further name that requests may use.
            targets: The name of a model; or the names of several, with the share of the requests
                that each gets. The shares add up to 1.
            timeout: Deadline of this call in seconds. Default: the client's.

        Raises:
            InvalidArgumentError: The name is that of a model, or the shares do not add up to 1.
            ModelNotFoundError: The service does not serve one of the models.
            PermissionDeniedError: The client is not an operator.
        """
        request = _requests.alias_request(name, targets)
        await self._call(self._stubs.models.SetAlias, request, timeout, retries=NO_RETRIES)
