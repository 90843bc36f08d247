"""The report of the measurement, as tables."""

from collections.abc import Callable, Mapping, Sequence

from common.tables import NOTHING, Spread, Table

from .contestants import OURS, TALKERS, Talker
from .figures import FIRST_LIMIT, TOKEN_LIMIT, Answered, Figures, firsts_by_number

# The measured turns of each round, by contestant.
Rounds = Mapping[str, Sequence[Sequence[Answered]]]


def tables(rounds: Rounds) -> list[Table]:
    """All tables."""
    talkers = [talker for talker in TALKERS if talker.entry.name in rounds]
    figures = {name: [Figures.of(turns) for turns in found] for name, found in rounds.items()}
    made = [_figures(talkers, figures), _by_number(talkers, rounds)]
    if OURS in talkers and len(talkers) > 1:
        made.insert(1, _ratios(talkers, figures))
    return made


def _figures(talkers: Sequence[Talker], figures: Mapping[str, Sequence[Figures]]) -> Table:
    def row(talker: Talker) -> list[str]:
        found = figures[talker.entry.name]
        return [
            talker.entry.label,
            _show(found, lambda each: each.first, ".0f", factor=1e3),
            _show(found, lambda each: each.first_p95, ".0f", factor=1e3),
            _show(found, lambda each: each.per_token, ".1f", factor=1e3),
            _show(found, lambda each: each.tokens_per_second, ".0f"),
            _show(found, lambda each: each.useful, ".0f", factor=100),
            _show(found, lambda each: each.useful_per_second, ".2f"),
            _show(found, lambda each: each.cached, ".0f", factor=100),
        ]

    return Table(
        title="Turns of conversations",
        head=[
            "",
            "first token, p50 ms",
            "p95 ms",
            "later token, p50 ms",
            "new tokens/s",
            "goodput %",
            "goodput turns/s",
            "kept %",
        ],
        rows=[row(talker) for talker in talkers],
        note="Medians of the rounds, and the largest deviation from them. Goodput: turns whose "
        f"first token comes within {FIRST_LIMIT:g} s and each later one within {TOKEN_LIMIT:g} s "
        "on average. Kept: tokens of prompts that the server says it did not read.",
    )


def _ratios(talkers: Sequence[Talker], figures: Mapping[str, Sequence[Figures]]) -> Table:
    """What the others have divided by what we have, as ratios within each round."""
    ours = figures[OURS.entry.name]

    def cell(theirs: Sequence[Figures], value: Callable[[Figures], float]) -> str:
        pairs = zip(theirs, ours, strict=True)
        return Spread.of([value(their) / value(our) for their, our in pairs]).show()

    return Table(
        title=f"Divided by {OURS.entry.label}",
        head=["", "first token, p50", "p95", "later token", "new tokens/s"],
        rows=[
            [
                talker.entry.label,
                cell(figures[talker.entry.name], lambda each: each.first),
                cell(figures[talker.entry.name], lambda each: each.first_p95),
                cell(figures[talker.entry.name], lambda each: each.per_token),
                cell(figures[talker.entry.name], lambda each: each.tokens_per_second),
            ]
            for talker in talkers
            if talker is not OURS
        ],
        note="Medians of the ratios within each round.",
    )


def _by_number(talkers: Sequence[Talker], rounds: Rounds) -> Table:
    """How the time to the first token grows with the conversation."""
    found = {
        talker: firsts_by_number([turn for turns in rounds[talker.entry.name] for turn in turns])
        for talker in talkers
    }
    numbers = sorted(set().union(*found.values()))
    return Table(
        title="First token by turn, p50 ms",
        head=["", *map(str, numbers)],
        rows=[
            [
                talker.entry.label,
                *(
                    f"{1e3 * firsts[number]:.0f}" if number in firsts else NOTHING
                    for number in numbers
                ),
            ]
            for talker, firsts in found.items()
        ],
        note="Of the turns of all rounds.",
    )


def _show(
    found: Sequence[Figures],
    value: Callable[[Figures], float | None],
    form: str,
    *,
    factor: float = 1,
) -> str:
    known = [each for each in map(value, found) if each is not None]
    if not known:
        return NOTHING
    spread = Spread.of(known)
    # A median of 0 has no relative deviation.
    return spread.show(form, factor=factor) if spread.median else f"{0:{form}}"
