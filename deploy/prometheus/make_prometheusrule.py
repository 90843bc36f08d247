"""Makes Kubernetes' PrometheusRule of rules.yml, or checks that they match."""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).parent
RULES, MADE = HERE / "rules.yml", HERE / "prometheusrule.yaml"

HEAD = """\
# Made of rules.yml by `make rules`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: shaperouter
spec:
"""


def prometheus_rule(rules: str) -> str:
    """The resource: the rules, indented, below a head."""
    groups = rules[rules.index("groups:\n") :]
    return HEAD + "".join(
        f"  {line}" if line.strip() else line for line in groups.splitlines(keepends=True)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if it is of other rules")
    made = prometheus_rule(RULES.read_text(encoding="utf-8"))
    if not parser.parse_args().check:
        MADE.write_text(made, encoding="utf-8")
    elif MADE.read_text(encoding="utf-8") != made:
        sys.exit(f"{MADE} is of other rules: run `make rules`")
