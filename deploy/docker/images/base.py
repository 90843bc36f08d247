"""The base of the images: the pinned one, or a bootstrapped one where no registry is reachable."""

import re
import tempfile
from pathlib import Path

from images.engine import EngineError, output_of, podman, say

BOOTSTRAPPED = "localhost/shaperouter/python:3.11-bookworm"

# Apt and dpkg leave out what nobody reads in a container. Licences stay.
_WITHOUT = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
)


def base_of(dockerfile: Path) -> str:
    """Returns the base of a Dockerfile's stages, or a bootstrapped one in its place.

    Raises:
        EngineError: Neither a registry nor Debian's packages can be reached.
    """
    [pinned] = re.findall(r"^ARG PYTHON=(\S+)$", dockerfile.read_text(encoding="utf-8"), re.M)
    try:
        podman("pull", "--quiet", f"docker.io/library/{pinned}")
    except EngineError as error:
        say(f"No registry has {pinned}: {str(error).splitlines()[-1]}")
        _bootstrap()
        return BOOTSTRAPPED
    return str(pinned)


def _bootstrap() -> None:
    """Makes a Debian with the same Python, and pip where the pinned base has it."""
    if podman("images", "--quiet", BOOTSTRAPPED):
        say(f"Using {BOOTSTRAPPED}, which was made before")
        return
    say(f"Bootstrapping {BOOTSTRAPPED} with its security updates")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        files = Path(directory) / "base.tar"
        # A virtual environment in /usr/local, because Debian's own Python refuses to let pip
        # install anything.
        output_of(
            "mmdebstrap", "--quiet", "--variant=minbase",
            "--include=python3.11-venv,ca-certificates",
            '--aptopt=Apt::Install-Recommends "false"',
            *(f"--dpkgopt={option}" for option in _WITHOUT),
            '--customize-hook=chroot "$1" python3.11 -m venv /usr/local',
            "bookworm", str(files),
        )  # fmt: skip
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        podman("import", "--quiet", f"--change=ENV {path}", str(files), BOOTSTRAPPED)
