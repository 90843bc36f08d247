"""Runs the steps of a Dockerfile without a container engine, and then the resulting image.

In a mount namespace of its own, so that paths are those of the image and nothing of this machine is
touched: the build stage with a fresh Python and no variable of ours; then the last stage as it
would run, which is as its user, with a read-only root, an empty /tmp and no capabilities. Needs
root, Linux, and Python 3.11 with venv at /usr/bin.

    python deploy/docker/rehearse.py deploy/docker/Dockerfile.router -- router --help
"""

import argparse
import fnmatch
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).parents[2]

# Directories of the images, which must not exist on this machine.
MADE = [Path("/opt/shaperouter"), Path("/build")]

SHELL = "set -euo pipefail"


def steps(dockerfile: Path, arguments: dict[str, str]) -> list[list[tuple[str, str]]]:
    """The stages of a Dockerfile, each a list of instructions and values, with ARGs filled in."""
    parser = DockerfileParser(fileobj=io.BytesIO(dockerfile.read_bytes()))
    stages: list[list[tuple[str, str]]] = []
    for step in parser.structure:
        instruction, value = step["instruction"], step["value"]
        if instruction == "FROM":
            stages.append([])
        elif instruction == "ARG":
            name, _, default = value.partition("=")
            arguments.setdefault(name, default)
        elif instruction != "COMMENT" and stages:
            # The shell of a RUN expands variables; those of ARGs are expanded here.
            filled = re.sub(r"\$\{(\w+)\}", lambda m: arguments.get(m[1], m[0]), value)
            stages[-1].append((instruction, filled))
    return stages


def environment(value: str) -> dict[str, str]:
    """The variables of an ENV."""
    return dict(pair.split("=", 1) for pair in shlex.split(value))


def ignored(dockerfile: Path, path: Path) -> bool:
    """Whether the Dockerfile's .dockerignore excludes a file."""
    patterns = Path(f"{dockerfile}.dockerignore").read_text(encoding="utf-8").splitlines()
    verdict = False
    names = [str(path), *map(str, path.parents)]
    for pattern in patterns:
        kept = pattern.startswith("!")
        plain = pattern.removeprefix("!").removeprefix("**/")
        if any(fnmatch.fnmatch(name, plain) or name.endswith(f"/{plain}") for name in names[:-1]):
            verdict = not kept
    return verdict


def copied(dockerfile: Path, source: str, context: Path) -> None:
    """Copies the files of a COPY: tracked files that are not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", source],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    kept = [name for name in listed if not ignored(dockerfile, Path(name))]
    if not kept:
        sys.exit(f"COPY {source}: nothing of it reaches the build")
    for name in kept:
        target = context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)


def building(dockerfile: Path, stage: list[tuple[str, str]], context: Path) -> Iterator[str]:
    """The build stage as lines of a shell script."""
    base = context / "base"
    yield f"/usr/bin/python3.11 -m venv {base}"
    yield f"export PATH={base}/bin:/usr/local/bin:/usr/bin:/bin"
    for instruction, value in stage:
        if instruction == "ENV":
            yield from (f"export {k}={shlex.quote(v)}" for k, v in environment(value).items())
        elif instruction == "WORKDIR":
            yield f"mkdir -p {value} && cd {value}"
        elif instruction == "COPY":
            source, target = value.split()
            copied(dockerfile, source, context / "files")
            yield f"cp -r {context}/files/{source} {target}"
        elif instruction == "RUN" and value.startswith("apt-get "):
            # The step must not change this machine, so its packages must be installed already.
            for package in re.findall(r"(\S+)=\S+", value):
                yield f"dpkg --status {package} > /dev/null"
        elif instruction == "RUN":
            yield f"echo {shlex.quote('==> ' + value)} >&2"
            # A separate shell, so that any failed command ends the rehearsal.
            yield f"( {value} )"
        else:
            sys.exit(f"the rehearsal knows no {instruction}")


def running(stage: list[tuple[str, str]], command: list[str]) -> Iterator[str]:
    """The last stage, as Kubernetes would run it, as lines of a shell script."""
    values = dict(stage)
    entry = re.findall(r'"([^"]*)"', values["ENTRYPOINT"])
    user, group = values["USER"].split(":")
    variables = {
        k: v.replace("$PATH", "/usr/bin:/bin") for k, v in environment(values["ENV"]).items()
    }
    yield "cd /"
    yield "umount /build"
    yield "mount -t tmpfs -o mode=1777 tmpfs /tmp"
    yield "mount -o remount,bind,ro /opt/shaperouter && mount -o remount,bind,ro /"
    words = [
        "env", "-i", *(f"{name}={value}" for name, value in variables.items()),
        "setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs",
        "--inh-caps=-all", "--bounding-set=-all", *entry, *command,
    ]  # fmt: skip
    yield shlex.join(words)


def rehearse(dockerfile: Path, arguments: dict[str, str], command: list[str]) -> int:
    """Builds and runs; returns its exit code."""
    first, *_, last = steps(dockerfile, arguments)
    for directory in MADE:
        if directory.exists():
            sys.exit(f"{directory} is there: the rehearsal would hide it")
    with tempfile.TemporaryDirectory(prefix="rehearsal-", dir="/var/tmp") as temporary:
        context = Path(temporary)
        # The user of the image must be able to enter.
        context.chmod(0o755)
        mounts = []
        try:
            for directory in MADE:
                directory.mkdir(parents=True)
                lower = context / directory.name
                lower.mkdir()
                mounts.append(f"mount --bind {lower} {directory}")
            script = [
                SHELL,
                *mounts,
                *building(dockerfile, first, context),
                *running(last, command),
            ]
            return subprocess.run(
                ["unshare", "--mount", "--fork", "bash", "-c", "\n".join(script)],
                env={"PATH": os.defpath, "HOME": str(context)},
                check=False,
            ).returncode
        finally:
            for directory in MADE:
                directory.rmdir()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dockerfile", type=Path)
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("command", nargs="*", help="what the image is run with")
    given = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("rehearse: needs root, for a mount namespace")
    chosen = dict(pair.split("=", 1) for pair in given.build_arg)
    sys.exit(rehearse(given.dockerfile.resolve(), chosen, given.command))
