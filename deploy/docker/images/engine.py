"""Programs that build and run images on this machine, and how they are called.

Buildah builds, podman and runc run; all are Debian packages without a daemon. Podman asks for
control groups of its own file system, which hosts without systemd have, too.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Debian packages by the program that each is needed for.
PACKAGES = ("buildah", "podman", "runc", "mmdebstrap")

# Read by builds, if this machine has them: the authorities that it trusts, and where its pip finds
# packages. Their contents do not stay in an image; an empty file does where one was mounted.
MACHINE = (Path("/etc/ssl/certs"), Path("/etc/pip.conf"))

# As the manifests run the images. A host may refuse to raise limits, but never to lower them.
CONFINED = (
    "--read-only", "--read-only-tmpfs=false", "--tmpfs=/tmp", "--cap-drop=all",
    "--security-opt=no-new-privileges", "--ulimit=nofile=16384:16384", "--ulimit=nproc=4096:4096",
)  # fmt: skip


class EngineError(Exception):
    """A program has failed; the message has its last lines."""


def install() -> None:
    """Installs the programs that are missing.

    Raises:
        EngineError: They cannot be installed here.
    """
    missing = [name for name in PACKAGES if shutil.which(name) is None]
    if os.geteuid() != 0:
        raise EngineError("building and running images needs root")
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise EngineError(f"install {', '.join(missing)}: only on Debian can they be installed")
    say(f"Installing {', '.join(missing)}")
    environment = {"DEBIAN_FRONTEND": "noninteractive"}
    output_of("apt-get", "update", environment=environment)
    output_of(
        "apt-get", "install", "--yes", "--no-install-recommends", *missing, environment=environment
    )


def output_of(*command: str, environment: dict[str, str] | None = None) -> str:
    """The output of a program that must succeed.

    Raises:
        EngineError: It has failed.
    """
    done = subprocess.run(
        command,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise EngineError("\n".join([f"{command[0]} has failed:", *lines[-12:]]))
    return done.stdout.strip()


def podman(*arguments: str) -> str:
    """The output of a command of podman that must succeed.

    Raises:
        EngineError: It has failed.
    """
    return output_of("podman", "--runtime=runc", "--cgroup-manager=cgroupfs", *arguments)


def python(image: str, program: str, *options: str) -> Any:
    """What a Python program prints as JSON in a confined container without a network.

    Args:
        image: The image, which has the environment of the service.
        program: Its source.
        options: Further options of the container.

    Raises:
        EngineError: It has failed.
    """
    printed = podman(
        "run", "--rm", *CONFINED, *options, "--network=none",
        "--entrypoint=/opt/shaperouter/bin/python", image, "-c", program,
    )  # fmt: skip
    return json.loads(printed)


def build(dockerfile: Path, tag: str, context: Path, arguments: Sequence[str]) -> None:
    """Builds an image from its Dockerfile, whose steps are printed.

    Args:
        dockerfile: The file; its .dockerignore is beside it.
        tag: Name of the image.
        context: What is copied from.
        arguments: Values of the file's ARGs, as NAME=VALUE.

    Raises:
        EngineError: A step has failed.
    """
    command = [
        "buildah", "build", "--isolation=oci", "--runtime=runc", "--network=host",
        "--format=docker", "--layers=false", f"--ignorefile={dockerfile}.dockerignore",
        *(f"--volume={path}:{path}:ro" for path in MACHINE if path.exists()),
        *(f"--build-arg={argument}" for argument in arguments),
        f"--file={dockerfile}", f"--tag={tag}", str(context),
    ]  # fmt: skip
    say(f"Building {tag}")
    if subprocess.run(command, check=False).returncode:
        raise EngineError(f"{tag} was not built")


def say(text: str) -> None:
    """Prints a step."""
    sys.stdout.write(f"==> {text}\n")
    sys.stdout.flush()
