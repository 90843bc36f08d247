"""Lengths of ladders chosen by users, for all models or for one."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from shaperouter_service.errors import StartupError
from shaperouter_service.routing.ladder import chosen_ladder


@dataclass(frozen=True, kw_only=True)
class ChosenLengths:
    """The lengths of one ladder.

    Attributes:
        model: Name of the model; None for every model without lengths of its own.
        rungs: The lengths, in tokens, ascending.
    """

    model: str | None
    rungs: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> "ChosenLengths":
        """Parses `16,24,128` and `gpt2=16,24,128`.

        The model's maximum is not checked here, because it is known only once the model is loaded.

        Raises:
            ValueError: The text contains no lengths, or they do not form a ladder.
        """
        model, _, lengths = text.rpartition("=")
        try:
            rungs = tuple(int(length) for length in lengths.split(","))
        except ValueError:
            raise ValueError(
                f"must be lengths separated by commas, as in 16,24,128; got {text!r}"
            ) from None
        chosen_ladder(rungs, maximum=rungs[-1])
        return cls(model=model or None, rungs=rungs)

    def __str__(self) -> str:
        """The text that `parse` reads."""
        lengths = ",".join(map(str, self.rungs))
        return f"{self.model}={lengths}" if self.model else lengths


def lengths_of_models(
    option: str, chosen: Sequence[ChosenLengths], models: Collection[str]
) -> dict[str, tuple[int, ...]]:
    """The lengths for each model that has chosen ones, and under an empty name those of all others.

    Args:
        option: Name of the option, for errors.
        chosen: Values of the option.
        models: Names of the configured models.

    Raises:
        StartupError: Lengths are chosen twice, or for an unknown model.
    """
    rungs: dict[str | None, tuple[int, ...]] = {}
    for lengths in chosen:
        whose = lengths.model or "all models"
        if lengths.model is not None and lengths.model not in models:
            known = ", ".join(models)
            raise StartupError(f"{option}: unknown model {whose!r}; served models: {known}")
        if lengths.model in rungs:
            raise StartupError(
                f"{option}: {whose} must have one list of lengths, got {rungs[lengths.model]} "
                f"and {lengths.rungs}; separate the lengths of a list with commas"
            )
        rungs[lengths.model] = lengths.rungs
    everyones = rungs.get(None)
    return {
        model: own for model in ("", *models) if (own := rungs.get(model, everyones)) is not None
    }
