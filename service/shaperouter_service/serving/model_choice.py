"""The model of a request: from the name that it gives to the revision that serves it."""

import contextlib
from collections.abc import AsyncIterator, Callable

from shaperouter_service.fleet import Fleet
from shaperouter_service.routing.deployments import public_name
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.on_demand import OnDemand
from shaperouter_service.serving.request_record import RequestRecord


class ModelChoice:
    """Chooses models of a fleet. Only the event loop may use it."""

    def __init__(self, fleet: Fleet, on_demand: OnDemand | None, *, models_change: bool) -> None:
        """Chooses by what the fleet's workers report.

        Args:
            fleet: The fleet.
            on_demand: Loads models that requests name; None if nothing does.
            models_change: Whether models may have been loaded before this router started.
        """
        self._fleet = fleet
        self._on_demand = on_demand
        self._models_change = models_change

    @contextlib.asynccontextmanager
    async def chosen(
        self,
        name: str,
        call: Call,
        record: RequestRecord,
        *,
        serves: Callable[[ServedModel], bool],
        does: str,
    ) -> AsyncIterator[ServedModel]:
        """Chooses the revision for a request, and keeps it loaded inside the context.

        Args:
            name: The requested model; empty if the request names none.
            call: The call, whose id decides among the models of an alias and among revisions.
            record: The record of the request.
            serves: Whether a model can serve the request.
            does: What the request does, for errors, e.g. `transcribe recordings`.

        Yields:
            The model, whose name is the one that workers use for the revision.

        Raises:
            UnknownModelError: There is no such model.
            InvalidRequestError: No model was named, and not exactly one can serve the request.
            NoWorkerInTimeError: No worker has loaded it in time.
            ServiceError: It cannot be loaded on demand; see `OnDemand.ensure`.
        """
        catalog = self._fleet.catalog
        if self._models_change:
            # Until then this router may only know the models of its own start.
            await self._fleet.meet_workers()
        target = catalog.target(name, call.request_id)
        if self._on_demand is not None:
            await self._on_demand.ensure(target, call.deadline)
        resolved = await self._fleet.resolve(target, call.deadline, serves=serves, call=does)
        record.waits(public_name(resolved))
        used = catalog.revision(resolved, call.request_id)
        with catalog.revisions.using(used):
            model = await self._fleet.model(used, call.deadline)
            record.uses(model.revision)
            yield model
