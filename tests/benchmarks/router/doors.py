"""HTTP's cost beside gRPC's: the same requests to two doors of one router."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from common.tables import Spread, Table, Target, targets_table

from .answers import LONG, TOKENS
from .client import CHAT_STREAM, COMPLETION, COMPLETION_STREAM, STREAM, UNARY, Figures

# Number of requests under way.
COMPARED = 32
# Target.
MOST_OF_GRPC = 1.5
HEADING = "## What HTTP costs beside gRPC (`make bench-router BENCH=--doors`)"
INTRODUCTION = """One router and the same engine; its doors take turns. Each of 32 callers has a
request under way. Answers have 32 tokens in 4 chunks, which are ready at once. The cost of a
chunk is that of answers in 48 chunks; every 20 ms each request gets one."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The same request to several doors.

    Attributes:
        name: What is compared.
        methods: The ways to send the request, that of gRPC first.
        tokens: Number of tokens of an answer.
        is_of_chunks: Whether to report the cost of a chunk instead of that of a request.
    """

    name: str
    methods: Sequence[str]
    tokens: int = TOKENS
    is_of_chunks: bool = False


COMPARISONS = (
    Comparison(name="a request", methods=(UNARY, COMPLETION)),
    Comparison(name="a stream", methods=(STREAM, COMPLETION_STREAM, CHAT_STREAM)),
    Comparison(
        name="a chunk of a stream",
        methods=(STREAM, COMPLETION_STREAM, CHAT_STREAM),
        tokens=LONG,
        is_of_chunks=True,
    ),
)
_PATHS = {
    COMPLETION: "`/v1/completions`",
    COMPLETION_STREAM: "`/v1/completions`",
    CHAT_STREAM: "`/v1/chat/completions`",
}


def door_tables(found: Mapping[str, Sequence[Sequence[Figures]]]) -> Iterator[Table]:
    """The tables of figures and of targets.

    Args:
        found: Of each comparison by its name, the figures of each round, in the order of methods.
    """
    rows: list[list[str]] = []
    targets: list[Target] = []
    for comparison in COMPARISONS:
        of = Figures.router_chunk_milliseconds
        of = of if comparison.is_of_chunks else Figures.router_milliseconds
        rounds = [[of(figures) for figures in each] for each in found[comparison.name]]
        for index, method in enumerate(comparison.methods[1:], start=1):
            ratio = Spread.of([each[index] / each[0] for each in rounds])
            name = f"{comparison.name}, {_PATHS[method]}"
            grpc, http = (Spread.of([each[place] for each in rounds]) for place in (0, index))
            rows.append([name, f"{grpc.median:.3f}", f"{http.median:.3f}", ratio.show()])
            targets.append(Target(text=name, limit=MOST_OF_GRPC, figure=ratio))
    yield Table(
        title="CPU time of the router, in milliseconds",
        head=["", "gRPC", "HTTP", "HTTP ÷ gRPC"],
        rows=rows,
        note="Medians of the rounds; of ratios, with the largest deviation. A chunk has a share of "
        "the rest of its request.",
    )
    yield targets_table(targets)
