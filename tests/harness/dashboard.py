"""The dashboard of deploy/, as Grafana reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards" / "shaperouter.json"

DASHBOARD: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))

# A collapsed row contains its panels; those of an open one follow it.
ROWS = [panel for panel in DASHBOARD["panels"] if panel["type"] == "row"]
OPEN = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
PANELS = [*OPEN, *(panel for row in ROWS for panel in row["panels"])]

ANNOTATIONS = DASHBOARD["annotations"]["list"]


def filled(expression: str, variables: Mapping[str, str]) -> str:
    """A query as Grafana sends it: with values of its variables."""
    return re.sub(r"\$(\w+)", lambda match: variables[match[1]], expression)
