"""The dashboard: plain, portable, and of series that are there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

from harness.dashboard import ANNOTATIONS, DASHBOARD, OPEN, PANELS, ROWS, filled
from harness.promql import groupings_of, labels_of, series_of
from harness.registry import metrics
from harness.tools import tool

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"

VARIABLES = DASHBOARD["templating"]["list"]
TARGETS = [(panel, target) for panel in PANELS for target in panel["targets"]]

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
ADDED_LABELS = {"job", "instance", "namespace", "cluster", "le"}


def recorded() -> set[str]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}


def plain(expression: str) -> str:
    """An expression as Grafana sends it."""
    chosen = dict.fromkeys((each["name"] for each in VARIABLES), ".*")
    return filled(expression, chosen | {"__rate_interval": "1m", "__range": "1h"})


def test_it_is_found_again_by_its_uid() -> None:
    assert DASHBOARD["uid"] == "shaperouter"


def test_it_asks_the_source_that_is_chosen() -> None:
    [variable] = [each for each in VARIABLES if each["type"] == "datasource"]
    assert variable["query"] == "prometheus"
    others = [each for each in VARIABLES if each["type"] != "datasource"]
    assert all(each["datasource"] == SOURCE for each in [*others, *PANELS, *ANNOTATIONS])
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


def test_only_the_first_row_is_open() -> None:
    first, *others = ROWS
    assert (first["collapsed"], first["panels"]) == (False, [])
    assert all(row["collapsed"] is True and row["panels"] for row in others)


def test_it_shows_one_installation_of_several() -> None:
    names = [each["name"] for each in VARIABLES]
    # Each is chosen among those of what is chosen before it.
    assert names == ["datasource", "cluster", "namespace", "model", "instance"]
    for panel, target in TARGETS:
        selected = list(labels_of(target["expr"]))
        assert {name for name, _ in selected} == series_of(plain(target["expr"])), panel["title"]
        for _, labels in selected:
            assert {"cluster", "namespace"} <= labels, panel["title"]


# Labels of a counter whose series are there from the start, most of them zero for ever.
CLOSED_SETS = {"reason", "result", "kind", "fit", "code", "limit", "client", "grpc_code", "rows"}


def test_no_panel_fills_its_legend_with_series_of_zeros() -> None:
    for panel, target in TARGETS:
        expression = target["expr"]
        counts = re.match(r"(topk\(20, )?sum by \(([^)]*)\) \((rate|increase)\(", expression)
        if counts and CLOSED_SETS & set(counts[2].split(", ")) and "/" not in expression:
            assert expression.endswith(" > 0"), panel["title"]


def test_lattices_are_in_the_order_of_numbers() -> None:
    lattices = [panel for panel in PANELS if panel["title"].startswith("Lattice")]
    assert lattices
    for panel in lattices:
        steps = [(each["id"], each["options"]) for each in panel["transformations"]]
        names = [name for name, _ in steps]
        to_number_and_sorted = ["convertFieldType", "sortBy"]
        # Columns come in the order of the rows that they are made of.
        assert names == [*to_number_and_sorted, "groupingToMatrix", *to_number_and_sorted]
        matrix = steps[2][1]
        fields = [matrix["columnField"], f"{matrix['rowField']}\\{matrix['columnField']}"]
        for field, (_, converted), (_, ordered) in zip(
            fields, (steps[0], steps[3]), (steps[1], steps[4]), strict=True
        ):
            assert converted["conversions"] == [{"targetField": field, "destinationType": "number"}]
            assert ordered["sort"] == [{"field": field}]


def test_rollouts_starts_and_changes_of_models_are_marked() -> None:
    assert [each["name"] for each in ANNOTATIONS] == [
        "Rollouts",
        "Starts of processes",
        "Models changed",
    ]
    rollouts, starts, models = (plain(each["expr"]) for each in ANNOTATIONS)
    assert series_of(rollouts) == {"shaperouter_build_info"}
    assert groupings_of(rollouts) >= {"role", "version"}
    # Seconds since 1970, which Grafana takes as milliseconds.
    assert series_of(starts) == {"process_start_time_seconds"}
    assert starts.endswith("* 1000")
    assert ANNOTATIONS[1]["useValueForTime"] is True
    assert series_of(models) == {"shaperouter_model_changes_total"}
    assert groupings_of(models) >= {"model", "result"}


def test_every_panel_says_what_it_shows_and_in_which_unit() -> None:
    ids = [panel["id"] for panel in [*ROWS, *PANELS]]
    assert len(set(ids)) == len(ids)
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]


def test_panels_lie_beside_each_other() -> None:
    # What is seen at first, and each row as it is opened.
    for shown in ([*ROWS, *OPEN], *(row["panels"] for row in ROWS)):
        taken: dict[tuple[int, int], str] = {}
        for panel in shown:
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


def test_its_picture_says_that_it_is_none_of_grafana() -> None:
    picture = (ROOT / "docs" / "dashboard.svg").read_text(encoding="utf-8")
    assert "Not a screenshot." in picture
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    assert "This is not a screenshot of Grafana" in page


def test_every_query_is_promql(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{index}", "expr": plain(target["expr"])}
        for index, target in enumerate([*(target for _, target in TARGETS), *ANNOTATIONS])
    ]
    groups = {"groups": [{"name": "dashboard", "rules": rules}]}
    (tmp_path / "queries.yml").write_text(yaml.safe_dump(groups), encoding="utf-8")
    command = [tool("promtool"), "check", "rules", str(tmp_path / "queries.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
