"""Recording rules and alerts: they parse, read what is there, and fire when they should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.prometheus import quickened
from harness.promql import groupings_of, labels_of, series_of
from harness.registry import metrics
from harness.tools import tool

ROOT = Path(__file__).parents[3]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = PROMETHEUS / "rules.yml"
TESTS = Path(__file__).parent / "rules" / "alerts.yml"
RUNBOOKS = ROOT / "docs" / "runbooks"
# The address of an example, which operators replace.
ADDRESS = "https://shaperouter.example/runbooks"

# Labels that Prometheus and Kubernetes add to scraped series.
ADDED_LABELS = {"job", "instance", "namespace", "le"}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


RECORDED = {rule["record"] for rule in rules() if "record" in rule}
# Of the component `scale-to-zero`; elsewhere it has no value.
RECORDED_ELSEWHERE = {"shaperouter:scales_to_zero"}
ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}


def promtool(*arguments: str, cwd: Path = PROMETHEUS) -> None:
    command = [tool("promtool"), *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_are_rules() -> None:
    promtool("check", "rules", "--lint-fatal", RULES.name)


def test_the_scrape_configuration_is_one() -> None:
    promtool("check", "config", "prometheus.yml")


def test_alerts_fire_when_they_should_and_not_otherwise(tmp_path: Path) -> None:
    text = TESTS.read_text(encoding="utf-8").replace("RULES", str(RULES))
    (tmp_path / "alerts.yml").write_text(text, encoding="utf-8")
    promtool("test", "rules", "alerts.yml", cwd=tmp_path)


def test_rules_for_a_quick_day_differ_in_durations_alone(tmp_path: Path) -> None:
    slow = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    quick = quickened(slow, 10)
    (tmp_path / "quick.yml").write_text(yaml.safe_dump(quick), encoding="utf-8")
    promtool("check", "rules", "quick.yml", cwd=tmp_path)
    duration = re.compile(r"\b[0-9]+(ms|[smhd])\b|(?<=< )[0-9]+(?=\))")
    assert duration.sub("", json.dumps(quick)) == duration.sub("", json.dumps(slow))
    [down] = [r for g in quick["groups"] for r in g["rules"] if r.get("alert") == "ShaperouterDown"]
    # Processes start as slowly as before.
    assert down["for"] == "40s"
    [misses] = [
        r for g in quick["groups"] for r in g["rules"] if r.get("alert") == "ShaperouterCacheMisses"
    ]
    assert "< 120)" in misses["expr"]
    assert misses["for"] == "12000ms"


def test_every_alert_is_seen_to_fire() -> None:
    cases = yaml.safe_load(TESTS.read_text(encoding="utf-8"))["tests"]
    tests = [test for case in cases for test in case.get("alert_rule_test", [])]
    assert {test["alertname"] for test in tests if test["exp_alerts"]} == set(ALERTS)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("record") or rule["alert"])
def test_a_rule_reads_series_that_are_there(rule: dict[str, Any]) -> None:
    known = {series: metric for metric in metrics().values() for series in metric.series}
    assert series_of(rule["expr"]) <= set(known) | RECORDED | RECORDED_ELSEWHERE | {"up"}
    for series, labels in labels_of(rule["expr"]):
        if series in known:
            assert labels <= set(known[series].labels) | ADDED_LABELS
    all_labels = {label for metric in metrics().values() for label in metric.labels}
    made = set(re.findall(r'"(\w+)", "\$1"', rule["expr"]))
    assert groupings_of(rule["expr"]) <= all_labels | ADDED_LABELS | made


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_page(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in ("critical", "warning")
    # Absolute, so that a person who is paged can follow it.
    assert alert["annotations"]["runbook_url"] == f"{ADDRESS}/{name}.md"
    page = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}\n")
    headings = re.findall(r"^## (.+)$", page, flags=re.M)
    assert headings == ["What it means", "What users notice", "Find the cause", "What to do"]
    index = (RUNBOOKS / "README.md").read_text(encoding="utf-8")
    assert f"| [{name}]({name}.md) | {alert['labels']['severity']} |" in index


def test_every_page_is_of_an_alert() -> None:
    assert {page.stem for page in RUNBOOKS.glob("Shaperouter*.md")} == set(ALERTS)


def test_kubernetes_has_the_same_rules() -> None:
    made = yaml.safe_load((PROMETHEUS / "prometheusrule.yaml").read_text(encoding="utf-8"))
    assert made["spec"] == yaml.safe_load(RULES.read_text(encoding="utf-8"))


def test_the_address_of_the_runbooks_is_changed_in_one_place(tmp_path: Path) -> None:
    ours = "https://git.example.com/ours/runbooks"
    for name in ("rules.yml", "prometheusrule.yaml", "make_prometheusrule.py"):
        shutil.copy(PROMETHEUS / name, tmp_path)
    make = [sys.executable, str(tmp_path / "make_prometheusrule.py")]
    subprocess.run([*make, "--runbooks", f"{ours}/"], check=True)
    subprocess.run([*make, "--check"], check=True)
    for name in ("rules.yml", "prometheusrule.yaml"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert ADDRESS not in text
        assert text.count(f"runbook_url: {ours}/Shaperouter") == len(ALERTS)
