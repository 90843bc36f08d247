"""docs/sizing.md: its queries are queries, and it names the limits of the base."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from harness.manifests import workloads
from harness.promql import series_of
from harness.registry import metrics
from harness.tools import tool

PAGE = (Path(__file__).parents[3] / "docs" / "sizing.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```promql\n(.*?)```", PAGE, flags=re.S)


def test_all_its_series_are_in_queries() -> None:
    # A rate outside of one has no range, and would not be valid.
    others = re.sub(r"```promql\n.*?```", "", PAGE, flags=re.S)
    assert QUERIES
    assert "rate(shaperouter" not in others


@pytest.mark.parametrize("query", QUERIES)
def test_its_queries_read_series_that_are_there(query: str, tmp_path: Path) -> None:
    rule = {"record": "sizing:query", "expr": query}
    rules = tmp_path / "rules.yml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "sizing", "rules": [rule]}]}))
    checked = subprocess.run(
        [tool("promtool"), "check", "rules", rules], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    known = {series for metric in metrics().values() for series in metric.series}
    assert series_of(re.sub(r"#.*", "", query)) <= known


def test_it_names_the_size_of_the_bases_cache() -> None:
    [worker] = [each for each in workloads("base") if each.command == "worker"]
    size = worker.options["compile_cache_size"] / 1e9
    volume = worker.volume_at(Path(worker.options["compile_cache"]))["emptyDir"]["sizeLimit"]
    section = " ".join(PAGE.split("## Cache\n")[1].split("\n## ")[0].split())
    assert f"limits it to {size:.0f} GB" in section
    assert f"volume of {volume.removesuffix('Gi')} GiB" in section
