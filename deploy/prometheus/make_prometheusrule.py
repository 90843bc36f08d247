"""Makes Kubernetes' PrometheusRule of rules.yml, or checks that they match.

With --runbooks, it first writes the address of the runbooks into rules.yml.
"""

import argparse
import re
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
  labels:
    # kube-prometheus-stack reads what has the name of its release.
    release: kube-prometheus-stack
  annotations:
    # Where docs/runbooks can be read; transformers/runbooks puts it in front of every runbook_url.
    shaperouter-runbooks: {runbooks}
spec:
"""

_RUNBOOK_URL = re.compile(r"(?<=runbook_url: )(\S+)(?=/Shaperouter\w+\.md$)", re.M)


def with_runbooks(rules: str, address: str) -> str:
    """The rules with another address of the runbooks."""
    return _RUNBOOK_URL.sub(address.rstrip("/"), rules)


def prometheus_rule(rules: str) -> str:
    """The resource: the rules, indented, below a head."""
    [runbooks] = set(_RUNBOOK_URL.findall(rules))
    groups = rules[rules.index("groups:\n") :]
    return HEAD.format(runbooks=runbooks) + "".join(
        f"  {line}" if line.strip() else line for line in groups.splitlines(keepends=True)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if it is of other rules")
    parser.add_argument("--runbooks", metavar="URL", help="where docs/runbooks can be read")
    given = parser.parse_args()
    if given.runbooks:
        changed = with_runbooks(RULES.read_text(encoding="utf-8"), given.runbooks)
        RULES.write_text(changed, encoding="utf-8")
    made = prometheus_rule(RULES.read_text(encoding="utf-8"))
    if not given.check:
        MADE.write_text(made, encoding="utf-8")
    elif MADE.read_text(encoding="utf-8") != made:
        sys.exit(f"{MADE} is of other rules: run `make rules`")
