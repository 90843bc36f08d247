"""The tables of docs/scale.md, from the figures of all simulations and of the real runs."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.paths import DOCS
from common.publishing import publish_section
from common.tables import Table

from .reality import RESULT, Comparison

PAGE = DOCS / "scale.md"
HEADING, NEXT = "## Figures", "## What the simulation leaves out"

# A column: its head, and its text from the names and figures of a row.
Column = tuple[str, Callable[[Mapping[str, Any], Mapping[str, Any]], str]]


def _ms(figure: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], str]:
    return lambda _, figures: f"{1000 * figures[figure]:.0f}"


def _of(figure: str, form: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], str]:
    return lambda _, figures: format(figures[figure], form)


def _named(name: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], str]:
    return lambda names, _: str(names[name])


FIRST: Sequence[Column] = (
    ("first token p50 ms", _ms("first_p50")),
    ("p95", _ms("first_p95")),
    ("p99", _ms("first_p99")),
)
WHOLE: Sequence[Column] = (
    ("request p50 ms", _ms("whole_p50")),
    ("p95", _ms("whole_p95")),
    ("p99", _ms("whole_p99")),
)
TABLES: Sequence[tuple[str, str, Sequence[Column]]] = (
    (
        "sizes",
        "Load of a worker",
        (
            ("workers", _named("workers")),
            ("requests/s each", _named("rate")),
            ("device busy", _of("device", ".0%")),
            *FIRST,
        ),
    ),
    (
        "scale",
        "10 requests/s for each worker",
        (
            ("workers", _named("workers")),
            ("cells", _named("cells")),
            ("routers", _named("routers")),
            ("requests", _of("requests", "d")),
            ("router busy", _of("router", ".0%")),
            *FIRST,
        ),
    ),
    (
        "policies",
        "Ways to choose one of 8 workers, at 9 requests/s each",
        (
            ("shapes", _named("shapes")),
            ("chosen by", _named("policy")),
            ("device busy", _of("device", ".0%")),
            ("graphs compiled", _of("graphs", "d")),
            *FIRST,
            *WHOLE,
        ),
    ),
    (
        "ladders",
        "Ladders of 4 workers, at 9 requests/s each",
        (
            ("shapes", _named("shapes")),
            ("ladder", _named("ladder")),
            ("signatures", _of("rungs", "d")),
            ("graphs compiled", _of("graphs", "d")),
            ("prompt padding", _of("padding", ".0%")),
            ("device busy", _of("device", ".0%")),
            *FIRST,
            *WHOLE,
        ),
    ),
    (
        "failures",
        "Workers that die, of 8 at 7 requests/s each, in 30 s",
        (
            ("deaths", _named("deaths")),
            ("runs resumed", _of("resumed", "d")),
            ("lost", _of("lost", "d")),
            ("refused", _of("refused", "d")),
            *FIRST,
            *WHOLE,
        ),
    ),
    (
        "autoscaling",
        "Four times the load after 30 s",
        (
            ("fleet", _named("fleet")),
            ("refused", _of("refused", "d")),
            ("max. workers", lambda _, figures: str(max(figures["workers_at"].values()))),
            *FIRST,
        ),
    ),
    (
        "one router",
        "One router, at 0.7 of its core",
        (
            ("workers", _named("workers")),
            ("cores to watch", _of("watching", ".2f")),
            ("ms to decide", _of("deciding_ms", ".1f")),
            ("ms a request", _of("request_ms", ".1f")),
            ("requests/s", _of("rate", ".0f")),
        ),
    ),
    (
        "several routers",
        "8 workers at 10 requests/s each, by several routers",
        (
            ("routers", _named("routers")),
            ("router busy", _of("router", ".0%")),
            *FIRST,
            *WHOLE,
        ),
    ),
)


def publish(rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes all tables to the page."""
    tables = [_table(rows, *each) for each in TABLES]
    tables.append(_reality(RESULT))
    text = "\n\n".join(table.markdown() for table in tables)
    publish_section(HEADING, text, before=NEXT, document=PAGE)


def _table(
    rows: Sequence[Mapping[str, Any]], scenario: str, title: str, columns: Sequence[Column]
) -> Table:
    return Table(
        title=title,
        head=[head for head, _ in columns],
        rows=[
            [text(row["names"], row["figures"]) for _, text in columns]
            for row in rows
            if row["scenario"] == scenario
        ],
    )


def _reality(path: Path) -> Table:
    found = [Comparison(**each) for each in json.loads(path.read_text(encoding="utf-8"))]
    return Table(
        title="Predicted and measured (`make simulate-reality`)",
        head=["workers", "load", "figure", "simulated", "measured", "error", "others"],
        rows=[
            [
                str(each.workers),
                each.load,
                each.figure,
                f"{each.simulated:.3g}",
                f"{each.real:.3g}",
                f"{each.error:+.0%}",
                f"{each.others:.2f}",
            ]
            for each in found
        ],
    )
