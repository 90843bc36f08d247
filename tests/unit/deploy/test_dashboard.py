"""The dashboard: plain, portable, and of series that are there."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from harness.promql import groupings_of, labels_of, series_of
from harness.registry import metrics
from harness.tools import tool

ROOT = Path(__file__).parents[3]
FILE = ROOT / "deploy" / "grafana" / "dashboards" / "shaperouter.json"
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"

DASHBOARD: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
ROWS = [panel for panel in DASHBOARD["panels"] if panel["type"] == "row"]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [(panel, target) for panel in PANELS for target in panel["targets"]]

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
ADDED_LABELS = {"job", "instance", "namespace", "le"}


def recorded() -> set[str]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}


def plain(expression: str) -> str:
    """An expression as Grafana sends it."""
    for variable, value in (("__rate_interval", "1m"), ("__range", "1h")):
        expression = expression.replace(f"${variable}", value)
    return re.sub(r"\$(model|instance)\b", ".*", expression)


def test_it_is_found_again_by_its_uid() -> None:
    assert DASHBOARD["uid"] == "shaperouter"


def test_it_asks_the_source_that_is_chosen() -> None:
    [variable] = [each for each in DASHBOARD["templating"]["list"] if each["type"] == "datasource"]
    assert variable["query"] == "prometheus"
    others = [each for each in DASHBOARD["templating"]["list"] if each["type"] != "datasource"]
    assert all(each["datasource"] == SOURCE for each in [*others, *PANELS])
    assert all(target["datasource"] == SOURCE for _, target in TARGETS)


def test_its_rows_are_the_questions_in_their_order() -> None:
    assert [row["title"] for row in ROWS] == [
        "Is it healthy?",
        "What do users feel?",
        "What does the router do?",
        "Graphs",
        "Device",
        "Fleet",
    ]


def test_every_panel_says_what_it_shows_and_in_which_unit() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]


def test_panels_lie_beside_each_other() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]


def test_every_query_reads_series_that_are_there() -> None:
    known = {series: metric for metric in metrics().values() for series in metric.series}
    all_labels = {label for metric in known.values() for label in metric.labels} | ADDED_LABELS
    for panel, target in TARGETS:
        expression = plain(target["expr"])
        assert series_of(expression) <= set(known) | recorded() | {"up"}, panel["title"]
        for series, labels in labels_of(expression):
            if series in known:
                assert labels <= set(known[series].labels) | ADDED_LABELS, panel["title"]
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert shown | groupings_of(expression) <= all_labels, panel["title"]


def test_every_label_in_a_legend_is_grouped_by() -> None:
    for panel, target in TARGETS:
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        if "sum" in target["expr"]:
            assert shown <= groupings_of(target["expr"]), panel["title"]


def test_every_query_is_promql(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{index}", "expr": plain(target["expr"])}
        for index, (_, target) in enumerate(TARGETS)
    ]
    groups = {"groups": [{"name": "dashboard", "rules": rules}]}
    (tmp_path / "queries.yml").write_text(yaml.safe_dump(groups), encoding="utf-8")
    command = [tool("promtool"), "check", "rules", str(tmp_path / "queries.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
