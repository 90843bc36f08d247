"""The report on an overload: admitted and refused requests, memory, and the time after it."""

import math
from collections import Counter
from collections.abc import Iterator

from load.outcomes import End, Outcome
from load.traffic import Request

from common.tables import NOTHING, Spread, Table, Target, quantile, targets_table

from .measuring import PROBE_CLIENT, PROBE_SECONDS, Measured, Phase, Sample, Settings

SLOWDOWN = 1.5
REFUSAL_SECONDS = 0.05
RECOVERY_SECONDS = 5.0
MIB = 2**20


def tables(settings: Settings, measured: Measured) -> list[Table]:
    """Returns all tables."""
    report = _Report(settings, measured)
    return [
        report.ends(),
        report.speed(),
        report.refusals(),
        report.probes(),
        report.memory(),
        report.reasons(),
        targets_table(report.targets()),
    ]


class _Report:
    """Figures of one measurement."""

    def __init__(self, settings: Settings, measured: Measured) -> None:
        self._settings = settings
        self._measured = measured

    def ends(self) -> Table:
        count = Counter(outcome.end for _, outcome in self._of(Phase.OVERLOAD))
        lags = [outcome.late for _, outcome in self._of(Phase.OVERLOAD)]
        row = [
            Phase.OVERLOAD,
            f"{count.total() / self._settings.seconds:.1f}",
            *(str(count[end]) for end in End),
            f"{quantile(lags, 0.5) * 1e3:.1f}, {quantile(lags, 1) * 1e3:.1f}",
        ]
        return Table(
            title=f"Requests; the capacity is {self._measured.capacity:.2f} per second",
            head=["", "per second", *End, "generator delay, ms"],
            rows=[row],
            note="Delay: median and maximum.",
        )

    def speed(self) -> Table:
        return Table(
            title="Milliseconds of admitted requests, at capacity and in the overload",
            head=["", "at capacity p50", "p95", "overload p50", "p95", "ratio of p50"],
            rows=[
                [
                    name,
                    *(
                        f"{quantile(values, share) * 1e3:.0f}"
                        for values in (before, during)
                        for share in (0.5, 0.95)
                    ),
                    f"{quantile(during, 0.5) / quantile(before, 0.5):.2f}",
                ]
                for name, before, during in self._speeds()
            ],
        )

    def refusals(self) -> Table:
        refused = self._refused()
        seconds = [outcome.total for outcome in refused]
        told = sum(outcome.retry_after is not None for outcome in refused)
        row = [f"{quantile(seconds, share) * 1e3:.1f}" for share in (0.5, 0.95, 0.99, 1)]
        return Table(
            title="Milliseconds until a refusal, measured at the client",
            head=["", "p50", "p95", "p99", "longest", "with RetryInfo"],
            rows=[["overload", *row, f"{told} of {len(refused)}"]] if refused else [],
        )

    def probes(self) -> Table:
        rows = []
        for phase in Phase:
            outcomes = [outcome for _, outcome in self._of(phase, probes=True)]
            answered = [each.total for each in outcomes if each.end is End.COMPLETED]
            rows.append(
                [
                    phase,
                    f"{len(answered)} of {len(outcomes)}",
                    *(f"{quantile(answered, share) * 1e3:.0f}" for share in (0.5, 0.95, 1)),
                ]
            )
        return Table(
            title="Probes of a separate client, milliseconds",
            head=["", "answered", "p50", "p95", "longest"],
            rows=rows,
            note=f"One every {PROBE_SECONDS:g} s.",
        )

    def memory(self) -> Table:
        samples = self._measured.memory
        at = {
            "begin": samples[:1],
            "begin of the overload": self._samples(Phase.BEFORE)[-1:],
            "most in the overload": self._samples(Phase.OVERLOAD),
            "end": samples[-1:],
        }
        return Table(
            title="Resident memory, MiB",
            head=["", *at],
            rows=[
                [
                    name,
                    *(
                        f"{max(getattr(each, name) for each in some) / MIB:.0f}"
                        if some
                        else NOTHING
                        for some in at.values()
                    ),
                ]
                for name in ("router", "worker")
            ],
        )

    def reasons(self) -> Table:
        count = Counter(
            outcome.reason.partition(":")[0]
            for outcome in self._measured.outcomes
            if outcome.reason
        )
        return Table(
            title="Statuses of incomplete requests, including probes",
            head=["", "requests"],
            rows=[[reason, str(number)] for reason, number in count.most_common()],
        )

    def targets(self) -> list[Target]:
        ratios = [
            Target(
                text=f"overload ÷ at capacity, p50: {name}",
                limit=SLOWDOWN,
                figure=_figure(quantile(during, 0.5) / quantile(before, 0.5)),
            )
            for name, before, during in self._speeds()
        ]
        refused = self._refused()
        untold = sum(outcome.retry_after is None for outcome in refused)
        return [
            *ratios,
            Target(
                text="seconds until a refusal, p99",
                limit=REFUSAL_SECONDS,
                figure=_figure(quantile([outcome.total for outcome in refused], 0.99)),
            ),
            Target(
                text="refusals that do not tell when to try again",
                limit=0,
                figure=_figure(untold if refused else math.nan),
            ),
            Target(
                text="seconds after the overload until probes are as before",
                limit=RECOVERY_SECONDS,
                figure=_figure(self._recovery_seconds()),
            ),
        ]

    def _speeds(self) -> Iterator[tuple[str, list[float], list[float]]]:
        """Times of admitted requests, at capacity and in the overload, as reported in responses."""
        before = self._measured.at_capacity
        during = [pair for pair in self._of(Phase.OVERLOAD) if pair[1].end is End.COMPLETED]
        yield (
            "to the first token, without the queue",
            [_first(outcome) for request, outcome in before if request.beams == 1],
            [_first(outcome) for request, outcome in during if request.beams == 1],
        )
        yield (
            "a token after it",
            [_token(*pair) for pair in before if _has_more(pair[0])],
            [_token(*pair) for pair in during if _has_more(pair[0])],
        )
        yield (
            "end to end, at the client",
            [outcome.total for _, outcome in before],
            [outcome.total for _, outcome in during],
        )

    def _refused(self) -> list[Outcome]:
        return [outcome for _, outcome in self._of(Phase.OVERLOAD) if outcome.end is End.REFUSED]

    def _recovery_seconds(self) -> float:
        """Time from the end of the overload to the last probe slower than all probes before it."""
        normal = [
            outcome.total
            for _, outcome in self._of(Phase.BEFORE, probes=True)
            if outcome.end is End.COMPLETED
        ]
        if not normal:
            return math.nan
        slow = [
            request.at - self._settings.overload_end + outcome.total
            for request, outcome in self._of(Phase.AFTER, probes=True)
            if outcome.end is not End.COMPLETED or outcome.total > max(normal)
        ]
        return max(slow, default=0.0)

    def _of(self, phase: Phase, *, probes: bool = False) -> Iterator[tuple[Request, Outcome]]:
        for request, outcome in zip(self._measured.requests, self._measured.outcomes, strict=True):
            of_phase = self._settings.phase(request.at) is phase
            if of_phase and (request.client == PROBE_CLIENT) == probes:
                yield request, outcome

    def _samples(self, phase: Phase) -> list[Sample]:
        return [each for each in self._measured.memory if self._settings.phase(each.at) is phase]


def _first(outcome: Outcome) -> float:
    timings = outcome.timings
    return timings["time_to_first_token_seconds"] - timings["queue_seconds"]


def _has_more(request: Request) -> bool:
    """Whether later tokens are streamed; beam search sends all tokens at the end."""
    return request.beams == 1 and request.new_tokens > 1


def _token(request: Request, outcome: Outcome) -> float:
    return outcome.timings["decode_seconds"] / (request.new_tokens - 1)


def _figure(value: float) -> Spread | None:
    return None if math.isnan(value) else Spread.of([value])
