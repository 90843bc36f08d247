"""The programs of a worker's graphs, and what traces, compiles and caches them."""

from shaperouter_service.compile_cache import Section
from shaperouter_service.decoding import (
    AlignProgram,
    DecodeProgram,
    EncodeProgram,
    PrefillProgram,
    Program,
)
from shaperouter_service.functions import CallProgram, CompiledCallProgram, PlainCallProgram
from shaperouter_service.graphs import (
    Builder,
    CachedGraphBuilder,
    GraphBuilder,
    PlainGraphBuilder,
)
from shaperouter_service.graphs.graph_program import CompiledProgram
from shaperouter_service.models import Model
from shaperouter_service.models.call_model import CallModel
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.worker.models import LoadedModels


class ProgramFactory:
    """Creates the program of each signature. Any thread may use it.

    Attributes:
        sections: The models' sections of the compile cache, by name; empty without a cache.
        speculates: Whether steps of decode graphs can check proposals.
    """

    def __init__(self, loaded: LoadedModels, *, speculates: bool = False) -> None:
        """Stores what programs are created from.

        Args:
            loaded: The models.
            speculates: See above.
        """
        self.sections: dict[str, Section] = {}
        self.speculates = speculates
        self._models: dict[str, Model] = {}
        self._ladders: dict[str, Ladders] = {}
        self._call_models: dict[str, CallModel] = {}
        # Replaced when an axis loses its ladder.
        self._call_ladders: dict[str, CallLadders] = {}
        self.add(loaded)

    def add(self, loaded: LoadedModels) -> None:
        """Takes further models, whose weights have been read."""
        self.sections |= loaded.sections
        self._models |= loaded.models
        self._ladders |= loaded.ladders
        self._call_models |= loaded.call_models
        self._call_ladders |= {name: model.ladders for name, model in loaded.call_models.items()}

    def remove(self, model: str) -> None:
        """Forgets a model, none of whose graphs is wanted any more."""
        for known in (
            *(self._models, self._ladders, self._call_models, self._call_ladders),
            self.sections,
        ):
            known.pop(model, None)

    def set_call_ladders(self, model: str, ladders: CallLadders) -> None:
        """Takes the ladders that are now those of a model that is called once."""
        self._call_ladders[model] = ladders

    def program(self, signature: Signature) -> Program | CallProgram:
        """Creates the program of a signature.

        Raises:
            ValueError: It is not one of the ladders.
        """
        if signature.kind is GraphKind.CALL:
            return self._call_program(signature)
        model = self._models[signature.model]
        rows, beams, length = signature.rows, signature.beams, signature.length
        name = f"{signature.model}_{signature.kind}_{rows}x{length}"
        if signature.kind is GraphKind.ENCODE:
            return EncodeProgram(name, model, rows=rows, length=length)
        if signature.kind in (GraphKind.PREFILL, GraphKind.SCORE):
            piece = self._ladders[signature.model].prefill_piece
            scores = signature.kind is GraphKind.SCORE
            return PrefillProgram(name, model, rows=rows, length=length, piece=piece, scores=scores)
        if signature.kind is GraphKind.ALIGN:
            return _align_program(name, model, signature)
        name = f"{name}_beams{beams}"
        return DecodeProgram(
            name, model, rows=rows, beams=beams, length=length, speculates=self.speculates
        )

    def _call_program(self, signature: Signature) -> CallProgram:
        model = self._call_models[signature.model]
        sizes = self._call_ladders[signature.model].sizes(signature)
        kind = CompiledCallProgram if model.compiled else PlainCallProgram
        return kind(f"{signature.model}_call", model, sizes)

    def make_builder(self, program: CompiledProgram | PlainCallProgram) -> Builder:
        """Prepares the compilation of a program, or its loading from the cache."""
        if isinstance(program, PlainCallProgram):
            return PlainGraphBuilder(program)
        section = self.sections.get(program.model.name)
        return GraphBuilder(program) if section is None else CachedGraphBuilder(program, section)

    def is_cached(self, signature: Signature) -> bool:
        """Whether the compile cache has the graph of a signature."""
        section = self.sections.get(signature.model)
        if signature.model in self._call_models and not self._call_models[signature.model].compiled:
            # Tracing takes no longer than loading.
            return True
        return section is not None and section.has(self.program(signature).label)


def _align_program(name: str, model: Model, signature: Signature) -> Program:
    transcripts = model.transcripts
    if transcripts is None:
        raise TypeError(f"{model.name} makes no transcripts")
    return AlignProgram(
        name,
        model,
        rows=signature.rows,
        length=signature.length,
        heads=transcripts.alignment_heads,
        text_tokens=transcripts.settings.tokens.end,
    )
