"""The core as doors see it."""

from collections.abc import Mapping
from dataclasses import dataclass

from shaperouter_service.serving.generation.service import GenerationService
from shaperouter_service.serving.graphs.graphs import Graphs
from shaperouter_service.serving.inference.service import InferenceService
from shaperouter_service.serving.ladder_fits import LadderFits
from shaperouter_service.serving.models import Models
from shaperouter_service.serving.on_demand import OnDemand
from shaperouter_service.serving.overview import Overview
from shaperouter_service.serving.repository import Repository
from shaperouter_service.serving.transcription.service import TranscriptionService
from shaperouter_service.telemetry.request_totals import RequestTotals


@dataclass(frozen=True, kw_only=True)
class Core:
    """The services of a router to its callers.

    Attributes:
        generation: Generates text.
        transcription: Transcribes recordings.
        inference: Calls models that answer once.
        models: Describes the models.
        repository: Loads and unloads models.
        on_demand: Loads models that requests name; None if nothing does.
        graphs: Shows and warms the graphs of workers.
        ladder_fits: Fits ladders to the recorded traffic.
        totals: Totals of the requests of each model.
        overview: Shows the whole service to people.
        trace_url: Address of a request's trace, with `{trace_id}`; empty if there is none.
    """

    generation: GenerationService
    transcription: TranscriptionService
    inference: InferenceService
    models: Models
    repository: Repository
    on_demand: OnDemand | None
    graphs: Graphs
    ladder_fits: LadderFits
    totals: Mapping[str, RequestTotals]
    overview: Overview
    trace_url: str
