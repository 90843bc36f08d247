"""The protocol's work, independent of gRPC and HTTP: both of its faces call this."""

import contextlib
from collections.abc import AsyncGenerator, Container, Sequence
from functools import partial

from shaperouter_service import __version__
from shaperouter_service.edge.inference.answers import answers
from shaperouter_service.edge.inference.calls import call_from_request, response_of
from shaperouter_service.edge.inference.descriptions import (
    configuration,
    index_entry,
    metadata,
    statistics,
    unloaded_entry,
)
from shaperouter_service.edge.inference.generation_inputs import STREAM, TEXT
from shaperouter_service.edge.inference.generation_request import generation_from_request
from shaperouter_service.edge.inference.repository import (
    Parameters,
    check_repository,
    parameters_of,
)
from shaperouter_service.edge.inference.requests import VERSION, InferRequest, InferResponse
from shaperouter_service.edge.inference.stubs import grpc_service_pb2 as pb
from shaperouter_service.edge.inference.stubs import model_config_pb2
from shaperouter_service.errors import (
    InvalidRequestError,
    ModelLoadingError,
    UnknownModelError,
    UnknownVersionError,
    Violation,
)
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.core import Core
from shaperouter_service.serving.gate import Gate
from shaperouter_service.serving.models import answers_once, wrong_model

# Extensions of the protocol that both faces have, by Triton's names.
EXTENSIONS = ("model_configuration", "parameters", "statistics")


class OpenInference:
    """Runs and describes models."""

    def __init__(self, core: Core, gate: Gate) -> None:
        """Takes the core, and the gate, which tells whether work is admitted."""
        self._core = core
        self._gate = gate

    def server(self, extensions: Sequence[str]) -> pb.ServerMetadataResponse:
        """Describes the server."""
        return pb.ServerMetadataResponse(
            name="shaperouter", version=__version__, extensions=extensions
        )

    @property
    def is_ready(self) -> bool:
        """Whether callers should come; see `Models.ready`. Not while the router drains."""
        return self._core.models.ready and self._gate.is_open

    def is_model_ready(self, name: str, version: str) -> bool:
        """Whether one model can be called; what does not exist is not ready, as with Triton."""
        try:
            return self._model(name, version).ready_workers > 0
        except (ModelLoadingError, UnknownModelError, UnknownVersionError):
            return False

    def metadata(self, name: str, version: str) -> pb.ModelMetadataResponse:
        """Describes one model's tensors."""
        return metadata(self._model(name, version))

    def configuration(self, name: str, version: str) -> model_config_pb2.ModelConfig:
        """Describes how one model is batched and scheduled."""
        return configuration(self._model(name, version))

    def statistics(self, name: str, version: str) -> pb.ModelStatisticsResponse:
        """Counts and times the requests of one model, or all, since the router started.

        An alias has none of its own: its requests count as those of its models.
        """
        names = [self._model(name, version).name] if name else self._core.models.names
        totals = self._core.totals
        return pb.ModelStatisticsResponse(
            model_stats=[statistics(each, totals[each]) for each in names if each in totals]
        )

    async def index(self, *, only_ready: bool) -> pb.RepositoryIndexResponse:
        """Lists the models, and those of the repository that are not loaded."""
        loaded = {model.name: model for model in self._core.models.loaded()}
        entries = [index_entry(name, loaded.get(name)) for name in self._core.models.names]
        entries += [
            unloaded_entry(name, self._core.repository.progress(name))
            for name in await self._core.repository.unloaded()
        ]
        return pb.RepositoryIndexResponse(
            models=[each for each in entries if each.state == "READY" or not only_ready]
        )

    async def load(self, name: str, repository: str, parameters: Parameters, call: Call) -> None:
        """Loads a model, or a new revision of one.

        Args:
            name: Name of the model.
            repository: Name of the repository.
            parameters: At most `location`: where the model is, if not under its name.
            call: The call.

        Raises:
            ServiceError: An argument is invalid, or the model cannot be loaded.
        """
        check_repository(repository)
        (location,) = parameters_of(parameters, location="")
        await self._core.repository.load(name, location, call)

    async def unload(self, name: str, repository: str, parameters: Parameters) -> None:
        """Serves a model no more.

        Args:
            name: Name of the model.
            repository: Name of the repository.
            parameters: At most `unload_dependents`: no model depends on another one.

        Raises:
            ServiceError: An argument is invalid, or there is no such model.
        """
        check_repository(repository)
        parameters_of(parameters, unload_dependents=False)
        await self._core.repository.unload(name)

    def generates(self, model: str, given: Container[str]) -> bool:
        """Whether a request is to generate text; a model that is not yet loaded may do either.

        Args:
            model: Name of the model.
            given: Names of the request's inputs and parameters.
        """
        found = self._core.models.find(model)
        return TEXT in given if found is None else not answers_once(found)

    def check_generates(self, model: str) -> None:
        """Refuses a model that is known to do something else.

        Raises:
            InvalidRequestError: It is a function or a text encoder.
        """
        found = self._core.models.find(model)
        if found is not None and answers_once(found):
            raise wrong_model(found, "generates from text")

    async def responses(
        self, request: InferRequest, call: Call, *, may_stream: bool
    ) -> AsyncGenerator[InferResponse | None, None]:
        """Yields the responses to a request: one, unless text streams as it is generated.

        Yields None for other events, such as that the request waits.

        Args:
            request: The request.
            call: The call that it came in.
            may_stream: Whether the call can have several responses.

        Raises:
            ServiceError: The request is invalid, or failed.
        """
        check_version(request.model, request.version)
        given = {*request.inputs, *request.parameters, *request.fields}
        if not self.generates(request.model, given):
            result = await self._core.inference.infer(call_from_request(request), call)
            yield response_of(result, request)
            return
        generation = generation_from_request(request)
        if generation.streams and not may_stream:
            description = (
                "must be false where there is one answer; ModelStreamInfer and generate_stream "
                "have several"
            )
            raise InvalidRequestError(Violation(field=STREAM, description=description))
        generate = partial(self._core.generation.generate, generation.request, call)
        try:
            async with contextlib.aclosing(answers(generation, generate)) as responses:
                async for response in responses:
                    yield response
        except InvalidRequestError as error:
            raise generation.in_callers_words(error) from None

    def _model(self, name: str, version: str) -> ServedModel:
        check_version(name, version)
        return self._core.models.get(name)


def check_version(model: str, version: str) -> None:
    """Refuses any version but the only one.

    Raises:
        UnknownVersionError: It is another one.
    """
    if version not in ("", VERSION):
        raise UnknownVersionError(model, version)
