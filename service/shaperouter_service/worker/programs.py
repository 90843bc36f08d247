"""The programs of a worker's graphs, and what traces, compiles and caches them."""

from collections.abc import Callable

from shaperouter_service.decoding import (
    AlignProgram,
    DecodeProgram,
    EncodeProgram,
    PrefillProgram,
    Program,
)
from shaperouter_service.decoding.lowering import Lowered
from shaperouter_service.graphs import CachedGraphBuilder, GraphBuilder, LoweringProcess, lower_here
from shaperouter_service.models import Model
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.worker.models import LoadedModels


class ProgramFactory:
    """Creates the program of each signature. Any thread may use it.

    Attributes:
        sections: The models' sections of the compile cache, by name; empty without a cache.
        tracing: The process that traces while requests run; None to trace in this process.
        is_serving: Returns whether requests are running.
    """

    def __init__(
        self,
        loaded: LoadedModels,
        *,
        tracing: LoweringProcess | None,
        is_serving: Callable[[], bool],
    ) -> None:
        """Stores what programs are created from.

        Args:
            loaded: The models.
            tracing: See above.
            is_serving: See above.
        """
        self.sections, self.tracing = loaded.sections, tracing
        self.is_serving = is_serving
        self._models, self._ladders = loaded.models, loaded.ladders

    def program(self, signature: Signature) -> Program:
        """Creates the program of a signature."""
        model = self._models[signature.model]
        rows, beams, length = signature.rows, signature.beams, signature.length
        name = f"{signature.model}_{signature.kind}_{rows}x{length}"
        if signature.kind is GraphKind.ENCODE:
            return EncodeProgram(name, model, rows=rows, length=length)
        if signature.kind is GraphKind.PREFILL:
            piece = self._ladders[signature.model].prefill_piece
            return PrefillProgram(name, model, rows=rows, length=length, piece=piece)
        if signature.kind is GraphKind.ALIGN:
            return _align_program(name, model, signature)
        name = f"{name}_beams{beams}"
        return DecodeProgram(name, model, rows=rows, beams=beams, length=length)

    def make_builder(self, program: Program) -> GraphBuilder:
        """Prepares the compilation of a program, or its loading from the cache."""
        section = self.sections.get(program.model.name)
        if section is None:
            return GraphBuilder(program, self._lower)
        return CachedGraphBuilder(program, section, self._lower)

    def is_cached(self, signature: Signature) -> bool:
        """Whether the compile cache has the graph of a signature."""
        section = self.sections.get(signature.model)
        return section is not None and section.has(self.program(signature).label)

    def _lower(self, program: Program) -> Lowered:
        # The process takes seconds to start, and is not needed while no request runs.
        if self.tracing is None or not (self.tracing.running or self.is_serving()):
            return lower_here(program)
        return self.tracing.lower(program)


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
