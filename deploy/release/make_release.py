"""Makes a release of the commit that is checked out: the same bytes whenever and wherever.

Writes into one folder: wheels and source distributions of both packages, the manifests and the Helm
chart, a list of the packages of each image (CycloneDX) and SHA256SUMS. Everything is made of a copy
of what git has at HEAD; files that are not committed take no part. All times in archives are that
of the commit.
"""

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]

# The distributions, and the lock files of the images that hold them.
DISTRIBUTIONS = ("client", "service")
IMAGES = {
    "router": "service/router.lock",
    "worker": "service/worker.lock",
    "worker-gpu": "deploy/docker/worker-gpu.lock",
}

# What an operator applies, and what that refers to.
MANIFESTS = ("deploy/kubernetes", "deploy/prometheus", "deploy/grafana", "deploy/kserve")
CHART = "deploy/helm/shaperouter"

# Builds one distribution as its own build backend, without an environment of its own: what it needs
# (deploy/docker/build.lock) is beside this Python.
_BUILD = """
import sys
from setuptools import build_meta
build_meta.build_{kind}(sys.argv[1])
"""


def git(*arguments: str) -> bytes:
    """The output of a command of git."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


@contextmanager
def committed() -> Iterator[Path]:
    """A copy of what is committed."""
    with tempfile.TemporaryDirectory() as directory:
        archive = io.BytesIO(git("archive", "--format=tar", "HEAD"))
        with tarfile.open(fileobj=archive) as members:
            members.extractall(directory)  # noqa: S202 (our own archive)
        yield Path(directory)


def archive(target: Path, tree: Path, members: Sequence[Path], *, prefix: str, time: int) -> None:
    """Writes a .tar.gz that depends only on names, contents and what may be executed.

    Args:
        target: The file.
        tree: What names of members are relative to.
        members: Files and folders.
        prefix: Folder in the archive that contains them.
        time: The time of all files, in seconds since 1970.
    """
    files = sorted(
        {path for member in members for path in (member, *member.rglob("*")) if path.is_file()}
    )
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in files:
            info = tarfile.TarInfo(f"{prefix}/{path.relative_to(tree)}")
            info.size = path.stat().st_size
            info.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            info.mtime = time
            with path.open("rb") as data:
                tar.addfile(info, data)
    # The archive must contain neither a file name nor a time of its own.
    target.write_bytes(gzip.compress(content.getvalue(), mtime=0))


def build_distributions(tree: Path, output: Path, time: int) -> None:
    """Writes wheels and source distributions."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(time), "PYTHONHASHSEED": "0"}
    for name in DISTRIBUTIONS:
        for kind in ("wheel", "sdist"):
            command = [sys.executable, "-c", _BUILD.format(kind=kind), str(output)]
            done = subprocess.run(
                command,
                cwd=tree / name,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                # Wheels contain the modes of files.
                umask=0o022,
            )
            if done.returncode:
                sys.exit(f"{name} {kind}: {done.stderr}")
    for path in output.glob("*.tar.gz"):
        # Its backend writes the times of the build into it.
        with tempfile.TemporaryDirectory() as directory, tarfile.open(path) as members:
            members.extractall(directory)  # noqa: S202 (our own archive)
            members.close()
            [root] = Path(directory).iterdir()
            archive(path, root, [root], prefix=root.name, time=time)


def list_packages(tree: Path, output: Path, cyclonedx: Path) -> None:
    """Writes an SBOM for the Python packages of each image."""
    for image, lock in IMAGES.items():
        target = output / f"sbom-{image}.cdx.json"
        command = [
            str(cyclonedx), "requirements", lock, "--pyproject", "service/pyproject.toml",
            "--short-PURLs", "--output-reproducible", "--of", "JSON", "-o", str(target),
        ]  # fmt: skip
        subprocess.run(command, cwd=tree, check=True)


def write_checksums(output: Path) -> None:
    """Writes SHA256SUMS, which `sha256sum --check` reads."""
    files = sorted(path for path in output.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (output / "SHA256SUMS").write_text("".join(lines), encoding="ascii")


def make(output: Path, cyclonedx: Path) -> None:
    """Makes the release in a folder, whose former contents are removed."""
    time = int(git("show", "--no-patch", "--format=%ct", "HEAD"))
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    with committed() as tree:
        text = (tree / "service" / "pyproject.toml").read_text(encoding="utf-8")
        version = tomllib.loads(text)["project"]["version"]
        if not (tree / "protos" / "released" / f"{version}.binpb").exists():
            sys.exit(
                f"no definitions are kept: commit what `python protos/freeze.py {version}` writes"
            )
        build_distributions(tree, output, time)
        archive(
            output / f"shaperouter-manifests-{version}.tar.gz",
            tree,
            [tree / name for name in MANIFESTS],
            prefix=f"shaperouter-{version}",
            time=time,
        )
        chart = tree / CHART
        archive(
            output / f"shaperouter-chart-{version}.tgz",
            chart,
            [chart],
            prefix=chart.name,
            time=time,
        )
        list_packages(tree, output, cyclonedx)
    write_checksums(output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path, help="folder that the release is written to")
    parser.add_argument("--cyclonedx", type=Path, required=True, help="the program cyclonedx-py")
    given = parser.parse_args()
    make(given.output.resolve(), given.cyclonedx.absolute())
    sys.stdout.write((given.output / "SHA256SUMS").read_text(encoding="ascii"))
