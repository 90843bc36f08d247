"""docs/metrics.md describes the metrics there are, and no page names others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.registry import KnownMetric, metrics

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \| ([^|]+) \| ([^|]+) \|$")

# Names of the same form that are not metrics.
OTHERS = {
    "shaperouter_service",  # the package
    "shaperouter_demand",  # what autoscalers know the rule shaperouter:demand by
}

OURS = {
    name: each
    for name, each in metrics().items()
    if name.startswith(("shaperouter_", "grpc_server_", "http_server_"))
}


def table() -> dict[str, re.Match[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [match for match in map(ROW.match, lines) if match]
    assert len({row[1] for row in rows}) == len(rows)
    return {row[1]: row for row in rows}


def test_the_table_has_the_metrics_that_there_are() -> None:
    assert set(table()) == set(OURS)


@pytest.mark.parametrize("metric", OURS.values(), ids=lambda metric: metric.name)
def test_the_table_says_what_a_metric_is(metric: KnownMetric) -> None:
    row = table()[metric.name]
    _, kind, unit, labels, *_ = row.groups()
    assert kind == metric.kind
    assert tuple(sorted(re.findall(r"`(\w+)`", labels))) == tuple(sorted(metric.labels))
    named = re.search(r"_(seconds|bytes|tokens)(_total)?$", metric.name)
    assert unit.strip() == (named[1] if named else unit.strip())
    assert metric.help


def test_every_event_in_the_table_is_defined() -> None:
    text = PAGE.read_text(encoding="utf-8")
    cells = re.findall(r"^\| (\*\*[^|]+\*\*) \|", text, flags=re.M)
    events = {event for cell in cells for event in re.findall(r"\*\*([^*]+)\*\*", cell)}
    named = {event for row in table().values() for event in re.findall(r"\*\*([^*]+)\*\*", row[6])}
    assert named == events


def pages() -> list[Path]:
    return [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_metrics_that_are_there(page: Path) -> None:
    known = {series for metric in OURS.values() for series in metric.series} | set(OURS)
    named = set(re.findall(r"\bshaperouter_\w*", page.read_text(encoding="utf-8")))
    for name in named - OTHERS:
        # What ends so stands for all that begin so.
        assert name in known or (name.endswith("_") and any(k.startswith(name) for k in known)), (
            name
        )
