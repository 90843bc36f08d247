"""A real Prometheus: started, asked, and given the rules of deploy/."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from harness.tools import tool
from harness.waiting import wait_until

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules.yml"

PORT = 9090

_DURATION = re.compile(r"\b(\d+)([smhd])\b")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# The age of a process, which is compared with seconds.
_AGE = re.compile(r"(time\(\) - [^<]*< )(\d+)\b")

# A process starts no faster on a quick day, and until then its machine answers no scrape.
_START_SECONDS = 40

Sample = dict[str, Any]


def quickened(rules: Mapping[str, Any], factor: int) -> dict[str, Any]:
    """The rules for a day that passes so many times as fast.

    Every window and offset of an expression, every `for`, and every age of a process that is
    compared is shorter by the factor, but none that waits for a scrape shorter than processes take
    to start. All else is as it was: thresholds, what is compared, names
    (burn_rate1h is then of six minutes, if the factor is ten), labels and annotations.
    """

    def shorter(match: re.Match[str]) -> str:
        return f"{int(match[1]) * _SECONDS[match[2]] * 1000 // factor}ms"

    def quick(rule: Mapping[str, Any]) -> dict[str, Any]:
        younger = _AGE.sub(lambda match: f"{match[1]}{int(match[2]) // factor}", rule["expr"])
        changed = {"expr": _DURATION.sub(shorter, younger)}
        if "for" in rule:
            waits = _DURATION.sub(shorter, rule["for"])
            changed["for"] = f"{_START_SECONDS}s" if "up{" in rule["expr"] else waits
        return {**rule, **changed}

    groups = [
        {**group, "rules": [quick(rule) for rule in group["rules"]]} for group in rules["groups"]
    ]
    return {**rules, "groups": groups}


class Prometheus:
    """One that runs, and answers questions."""

    def __init__(self, address: str) -> None:
        """Takes HOST:PORT."""
        self.address = address

    def ask(self, expression: str, **over: float) -> list[Sample]:
        """The result of a query: now, or over a range with start, end and step."""
        path = "query_range" if over else "query"
        query = urllib.parse.urlencode({"query": expression} | over)
        url = f"http://{self.address}/api/v1/{path}?{query}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            found: list[Sample] = json.load(answer)["data"]["result"]
        return found

    def value(self, expression: str) -> float:
        """The one value of an expression.

        Raises:
            AssertionError: It has none, or several.
        """
        found = self.ask(expression)
        assert len(found) == 1, f"{expression} has {len(found)} values: {found}"
        return float(found[0]["value"][1])

    def holds(self, expression: str) -> bool:
        """Whether a comparison holds anywhere: it has values."""
        return bool(self.ask(expression))

    def wait_until(self, expression: str, *, timeout: float) -> None:
        """Waits until a comparison holds.

        Raises:
            TimeoutError: It does not hold within the timeout.
        """
        try:
            wait_until(lambda: self.holds(expression), timeout=timeout, pause=0.5)
        except TimeoutError:
            raise TimeoutError(f"{expression} did not hold within {timeout:g} s") from None

    @property
    def is_ready(self) -> bool:
        """Whether it answers questions."""
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=5):
                return True
        except OSError:
            return False


@contextmanager
def running(
    directory: Path,
    scrapes: Sequence[Mapping[str, Any]],
    rules: Mapping[str, Any],
    *,
    interval: int,
    host: str = "127.0.0.1",
    port: int = PORT,
    enter: Callable[[Sequence[str]], Sequence[str]] = list,
) -> Iterator[Prometheus]:
    """Runs one inside of the context.

    Args:
        directory: For its configuration, data and log; made if it is not there.
        scrapes: Its scrape configurations.
        rules: That it evaluates.
        interval: Seconds between two scrapes, and between two evaluations.
        host: Address that it listens on.
        port: Port that it listens on.
        enter: Adapts its command line before it is run.
    """
    directory.mkdir(parents=True, exist_ok=True)
    config = {
        "global": {"scrape_interval": f"{interval}s", "evaluation_interval": f"{interval}s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": list(scrapes),
    }
    for name, content in (("prometheus.yml", config), ("rules.yml", rules)):
        (directory / name).write_text(yaml.safe_dump(dict(content)), encoding="utf-8")
    prometheus = Prometheus(f"{host}:{port}")
    command = [
        tool("prometheus"),
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={prometheus.address}",
        "--log.level=warn",
    ]
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            enter(command), stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        wait_until(lambda: prometheus.is_ready or process.poll() is not None, pause=0.2)
        assert process.poll() is None, (directory / "prometheus.log").read_text()
        yield prometheus
    finally:
        process.terminate()
        process.wait()
