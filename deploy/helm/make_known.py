"""Writes what the program knows into files/known.yaml of the chart, or checks that it is there.

The chart refuses settings that no role reads and built-in models that do not exist.
"""

import argparse
import sys
from importlib.resources import files
from pathlib import Path

import click
import yaml

from shaperouter_service.commands.group import cli

KNOWN = Path(__file__).parent / "shaperouter" / "files" / "known.yaml"

HEAD = """\
# What the program of this version knows. Made by `.venv/bin/python deploy/helm/make_known.py`.
"""


def known() -> str:
    """The variables of each role and the names of built-in models, as YAML."""
    models = (files("shaperouter_service") / "builtin").iterdir()
    found = {
        **{role: variables(role) for role in ("router", "worker")},
        "models": sorted(each.name for each in models if each.is_dir()),
    }
    return HEAD + yaml.safe_dump(found, sort_keys=False)


def variables(role: str) -> list[str]:
    """The variables that a role of `shaperouterd` reads."""
    options = [each for each in cli.commands[role].params if isinstance(each, click.Option)]
    return sorted(each.envvar for each in options if isinstance(each.envvar, str))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the file is out of date")
    if not parser.parse_args().check:
        KNOWN.write_text(known(), encoding="utf-8")
    elif KNOWN.read_text(encoding="utf-8") != known():
        sys.exit(f"{KNOWN} is out of date: run `.venv/bin/python {sys.argv[0]}`")
