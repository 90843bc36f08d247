"""Installs programs that checks need, from Debian packages."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping


def have_programs(packages: Mapping[str, str], purpose: str) -> None:
    """Installs missing programs; exits with a message if that fails.

    Args:
        packages: Names of packages by program.
        purpose: Purpose of the programs, for the message.
    """
    missing = {name: package for name, package in packages.items() if not shutil.which(name)}
    if not missing:
        return
    needed = f"{' and '.join(missing)} needed {purpose}"
    wanted = ["apt-get", "install", "--yes", "--no-install-recommends"]
    wanted += sorted({*missing.values()})
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.exit(f"{needed}: install what is missing, e.g. by `sudo {' '.join(wanted)}`")
    for command in (["apt-get", "update"], wanted):
        if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
            sys.exit(f"{needed}, and `{' '.join(command)}` failed")
