"""Graphs of the workers: which are compiled, what they cost and what they serve."""

import asyncio
from collections.abc import AsyncGenerator, Iterable

from shaperouter_service.auth import CallLimit
from shaperouter_service.errors import StoppingError
from shaperouter_service.fleet import Fleet
from shaperouter_service.routing.deployments import public_name
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import GraphReport, GraphState
from shaperouter_service.routing.warm_request import WarmRequest
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.graphs.compile_requests import compile_requests
from shaperouter_service.serving.graphs.warming import ENDS, Warming

# Minimum seconds between two responses of a stream; people need no faster updates.
UPDATE_INTERVAL = 0.2

# Maximum number of streams; one whose client does not read holds about 150 kB. Maximum responses
# per second of all streams together: each takes about a millisecond, so with many streams each
# stream gets fewer.
MAX_STREAMS, MAX_UPDATES_PER_SECOND = 256, 100.0


class Graphs:
    """The graphs of a fleet's workers. Only the event loop may use it."""

    def __init__(self, fleet: Fleet) -> None:
        """Shows and warms the graphs of a fleet's workers."""
        self._fleet = fleet
        self._catalog = fleet.catalog
        self._streams = CallLimit(MAX_STREAMS)

    @property
    def version(self) -> int:
        """Changes whenever a list may change."""
        return self._catalog.version

    def listed(self, model: str, *, include_cold: bool) -> list[GraphReport]:
        """Lists the graphs of all workers, in order.

        Args:
            model: Name of the model; empty for all models.
            include_cold: Whether to list also graphs that nothing has requested yet.

        Raises:
            UnknownModelError: There is no such model.
        """
        named = self._catalog.resolve(model) if model else ""
        graphs = [
            graph
            for graph in self._catalog.graphs()
            if (not named or named in (graph.signature.model, public_name(graph.signature.model)))
            # Workers also report cold graphs whose absence has cost something.
            and (include_cold or graph.state is not GraphState.COLD)
        ]
        if include_cold:
            graphs += self._cold(named, graphs)
        return sorted(graphs, key=lambda graph: (graph.signature, graph.worker))

    async def changes(self, call: Call) -> AsyncGenerator[None, None]:
        """Yields at once and after changes, until the service stops.

        Raises:
            TooManyCallsError: There are too many such streams.
        """
        with self._streams.admitted(call.client):
            async for _ in self._updates():
                yield

    async def warm(
        self, request: WarmRequest, call: Call
    ) -> AsyncGenerator[list[GraphReport], None]:
        """Makes graphs ready and yields their progress until each is ready or has failed.

        Raises:
            InvalidRequestError: The request is invalid.
            UnknownModelError: The service has no such model.
            ModelLoadingError: No worker has loaded the model.
            TooManyCallsError: There are too many such streams.
            StoppingError: The service stops before the end.
        """
        with self._streams.admitted(call.client):
            warming = Warming(self._fleet, compile_requests(request, self._catalog))
            await warming.request()
            async for _ in self._updates():
                graphs = warming.graphs()
                yield graphs
                if all(graph.state in ENDS for graph in graphs):
                    return
        raise StoppingError

    async def _updates(self) -> AsyncGenerator[None, None]:
        async for _ in self._fleet.changes():
            yield
            pause = self._streams.in_progress / MAX_UPDATES_PER_SECOND
            await asyncio.sleep(max(UPDATE_INTERVAL, pause))

    def _cold(self, named: str, known: list[GraphReport]) -> list[GraphReport]:
        taken = {(graph.worker, graph.signature) for graph in known}
        return [
            GraphReport(signature=signature, worker=snapshot.worker, state=GraphState.COLD)
            for snapshot in self._catalog.snapshots()
            for model in snapshot.models
            if not named or named in (model.name, public_name(model.name))
            for signature in _signatures(model)
            if (snapshot.worker, signature) not in taken
        ]


def _signatures(model: ServedModel) -> Iterable[Signature]:
    """Every signature of a model's ladders."""
    ladders = model.ladders if model.call is None else model.call.ladders
    return () if ladders is None else ladders.signatures(model.name)
