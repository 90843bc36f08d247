"""The core as doors see it."""

from dataclasses import dataclass

from shaperouter_service.serving.generation.service import GenerationService
from shaperouter_service.serving.graphs.graphs import Graphs
from shaperouter_service.serving.models import Models
from shaperouter_service.serving.transcription.service import TranscriptionService


@dataclass(frozen=True, kw_only=True)
class Core:
    """What a router does for its callers.

    Attributes:
        generation: Generates text.
        transcription: Transcribes recordings.
        models: Describes the models.
        graphs: Shows and warms the graphs of workers.
    """

    generation: GenerationService
    transcription: TranscriptionService
    models: Models
    graphs: Graphs
