"""The version before, from this repository's history, to run beside the present one."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

from cluster.manifests import Template

ROOT = Path(__file__).parents[2]
BUILDS = ROOT / "build" / "version-before"

# Where the definitions of released versions lie. They are written down anew with each compatible
# change of a version that is not released yet.
_RELEASED = "protos/released"


class VersionBefore:
    """The programs of an earlier commit.

    Attributes:
        commit: The commit.
        search_path: Where Python finds its packages before those of this one.
    """

    def __init__(self, revision: str = "") -> None:
        """Unpacks and builds it, once for each commit; its native kernels take a minute.

        Args:
            revision: What git calls it; by default the commit before the newest one that wrote
                definitions down.

        Raises:
            subprocess.CalledProcessError: This copy of the repository lacks the commit, or it
                cannot be built; standard error says why.
        """
        if not revision:
            written = _git("log", "-2", "--format=%H", "--", _RELEASED).split()
            revision = written[-1] if written else "HEAD"
        self.commit = _git("rev-parse", "--short=12", f"{revision}^{{commit}}").strip()
        directory = BUILDS / self.commit
        self.search_path = os.pathsep.join(str(directory / name) for name in ("service", "client"))
        built = directory / ".built"
        if built.exists():
            return
        directory.mkdir(parents=True, exist_ok=True)
        archive = ["git", "-C", str(ROOT), "archive", self.commit, "service", "client"]
        with subprocess.Popen(archive, stdout=subprocess.PIPE) as packed:
            subprocess.run(["tar", "-x", "-C", str(directory)], stdin=packed.stdout, check=True)
        build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        subprocess.run(build, cwd=directory / "service", check=True)
        built.touch()

    def of(self, template: Template) -> Template:
        """The same workload with the image of this version."""
        environment = {**template.environment, "PYTHONPATH": self.search_path}
        return dataclasses.replace(template, environment=environment)


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
