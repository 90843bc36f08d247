"""Lengths of ladders as users choose them: for all models, or for one of several."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from shaperouter_service.errors import StartupError
from shaperouter_service.routing.ladders import chosen_ladder


@dataclass(frozen=True, kw_only=True)
class ChosenLengths:
    """The lengths of one ladder.

    Attributes:
        model: Whose; None for every model that has none of its own.
        rungs: In tokens, ascending.
    """

    model: str | None
    rungs: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> "ChosenLengths":
        """Reads `16,24,128` and `gpt2=16,24,128`.

        What only a loaded model can tell, that none is over its maximum, is not checked here.

        Raises:
            ValueError: They are no lengths, or do not make a ladder.
        """
        model, _, lengths = text.rpartition("=")
        try:
            rungs = tuple(int(length) for length in lengths.split(","))
        except ValueError:
            raise ValueError(
                f"must be lengths between commas, as in 16,24,128; got {text!r}"
            ) from None
        chosen_ladder(rungs, maximum=rungs[-1])
        return cls(model=model or None, rungs=rungs)

    def __str__(self) -> str:
        """What `parse` reads."""
        lengths = ",".join(map(str, self.rungs))
        return f"{self.model}={lengths}" if self.model else lengths


def lengths_of_models(
    option: str, chosen: Sequence[ChosenLengths], models: Collection[str]
) -> dict[str, tuple[int, ...]]:
    """The lengths of each model that has chosen ones.

    Args:
        option: Name of the option, for errors.
        chosen: Its values.
        models: Names of the models there are.

    Raises:
        StartupError: Lengths are chosen twice, or for a model that is not there.
    """
    rungs: dict[str | None, tuple[int, ...]] = {}
    for lengths in chosen:
        whose = lengths.model or "all models"
        if lengths.model is not None and lengths.model not in models:
            known = ", ".join(models)
            raise StartupError(f"{option}: there is no model {whose!r}; there are {known}")
        if lengths.model in rungs:
            raise StartupError(
                f"{option}: {whose} must have lengths once, got {rungs[lengths.model]} and "
                f"{lengths.rungs}; the lengths of one ladder stand between commas"
            )
        rungs[lengths.model] = lengths.rungs
    everyones = rungs.get(None)
    return {model: own for model in models if (own := rungs.get(model, everyones)) is not None}
