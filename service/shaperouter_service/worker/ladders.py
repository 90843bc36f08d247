"""The ladders of a worker's models, and checks of signatures against them."""

from collections.abc import Iterable, Mapping, Sequence

from shaperouter_service.errors import StartupError
from shaperouter_service.graphs.graph_table import GraphTable
from shaperouter_service.models import EncoderDecoder, Family
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.deployments import public_name
from shaperouter_service.routing.ladders import PREFILL_PIECE, Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature


def make_ladders(
    name: str,
    family: Family,
    *,
    slots: int,
    prefill_piece: int = PREFILL_PIECE,
    prefill_lengths: Sequence[int] = (),
    decode_lengths: Sequence[int] = (),
    encode_lengths: Sequence[int] = (),
) -> Ladders:
    """Creates the ladders of one model.

    Args:
        name: Name of the model.
        family: Its dimensions.
        slots: Number of requests without beam search that can run at a time.
        prefill_piece: Maximum number of tokens of a prompt read at a time; a family with an encoder
            may set less.
        prefill_lengths: The chosen rungs; empty for the default ones.
        decode_lengths: The same for decode graphs.
        encode_lengths: The same for encode graphs; only for a model with an encoder.

    Raises:
        StartupError: The model cannot have the chosen rungs.
    """
    is_whole, piece = False, prefill_piece
    if isinstance(family, EncoderDecoder):
        is_whole, piece = family.has_whole_source, min(piece, family.prompt_piece)
    try:
        return Ladders.default(
            max_length=family.max_length,
            slots=slots,
            prefill_piece=piece,
            prefill_lengths=prefill_lengths,
            decode_lengths=decode_lengths,
            max_source_length=family.max_source_length,
            has_whole_source=is_whole,
            encode_lengths=encode_lengths,
            has_transcript=family.has_transcript,
        )
    except ValueError as error:
        raise StartupError(f"{error} (model {name})") from error


def lengths_of(chosen: Mapping[str, Sequence[int]], model: str) -> Sequence[int]:
    """The chosen rungs of a model; empty for the default ones.

    Args:
        chosen: The rungs by the name that requests use; those of all others under an empty name.
        model: What workers call the model.
    """
    return chosen.get(public_name(model), chosen.get("", ()))


def first_graphs(
    ladders: Mapping[str, Ladders | CallLadders], *, max_graphs: int
) -> list[Signature]:
    """The graphs that cover every request of all models, except for sizes that cannot be padded.

    Args:
        ladders: The ladders, by model.
        max_graphs: Maximum number of graphs of the worker.

    Raises:
        StartupError: There are more than that.
    """
    first = all_first(ladders)
    _check_count(len(first), max_graphs=max_graphs, models=ladders)
    return first


def check_further(graphs: GraphTable, first: Sequence[Signature], *, models: Iterable[str]) -> None:
    """Checks that a worker may compile the first graphs of a further model.

    Args:
        graphs: The graphs of the models that it has.
        first: The first graphs of the further model.
        models: The names of all of them.

    Raises:
        StartupError: It may not.
    """
    budget = graphs.budget
    _check_count(len(budget.first) + len(first), max_graphs=budget.max_graphs, models=models)
    if graphs.maps.spent:
        raise StartupError(
            f"no graph of a further model can be compiled: this process has {graphs.maps}; "
            "restart the worker"
        )


def _check_count(count: int, *, max_graphs: int, models: Iterable[str]) -> None:
    if max_graphs < count:
        raise StartupError(
            f"max-graphs: must be at least {count}, the number of graphs that cover every "
            f"request of {', '.join(models)}; got {max_graphs}"
        )


def all_first(ladders: Mapping[str, Ladders | CallLadders]) -> list[Signature]:
    """The first graphs of models, given their ladders by name."""
    return [signature for name in ladders for signature in _first(name, ladders[name])]


def _first(name: str, ladders: Ladders | CallLadders) -> list[Signature]:
    if not isinstance(ladders, CallLadders):
        return ladders.first(name)
    first = ladders.first(name)
    return [] if first is None else [first]


def is_of(ladders: Mapping[str, Ladders | CallLadders], signature: Signature) -> bool:
    """Whether a signature is one of the ladders."""
    of_model = ladders.get(signature.model)
    if isinstance(of_model, CallLadders):
        return signature.kind is GraphKind.CALL and of_model.has(signature)
    return of_model is not None and signature in of_model.signatures(signature.model)


def check_warm(ladders: Mapping[str, Ladders | CallLadders], warm: Iterable[Signature]) -> None:
    """Checks the graphs that are declared for the warm-up.

    Raises:
        StartupError: A graph is not one of the ladders.
    """
    for signature in warm:
        if not is_of(ladders, signature):
            raise StartupError(f"warm: {signature} is not a signature of the ladders")
