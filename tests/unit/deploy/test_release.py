"""`make release`: the same bytes twice, of what is committed."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from harness.tools import skip

ROOT = Path(__file__).parents[3]
TIME = 1_700_000_000


@pytest.fixture(scope="module")
def release() -> ModuleType:
    path = ROOT / "deploy" / "release" / "make_release.py"
    spec = importlib.util.spec_from_file_location("make_release", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def digests(directory: Path) -> Mapping[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()
    }


def twice(tmp_path: Path, make: Callable[[Path], None]) -> Path:
    """Makes it twice, and returns a folder with it once both are equal."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
        make(folder)
    one, two = map(digests, folders)
    assert one
    assert one == two
    return folders[0]


def test_distributions_are_the_same_bytes_twice(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The service would take minutes, most of them for its kernels.
    monkeypatch.setattr(release, "DISTRIBUTIONS", ("client",))

    def make(folder: Path) -> None:
        # As elsewhere and later: another folder, and another umask.
        before = os.umask(0o077 if folder.name == "two" else 0o022)
        try:
            with release.committed() as tree:
                release.build_distributions(tree, folder, TIME)
        finally:
            os.umask(before)

    made = twice(tmp_path, make)
    [wheel], [source] = made.glob("*.whl"), made.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as files:
        assert {"shaperouter/py.typed", "shaperouter/__init__.py"} <= set(files.namelist())
    with tarfile.open(source) as members:
        assert {each.mtime for each in members} == {TIME}


def test_an_archive_depends_on_names_and_contents_alone(
    release: ModuleType, tmp_path: Path
) -> None:
    def make(folder: Path) -> None:
        tree = tmp_path / f"tree-{folder.name}"
        tree.mkdir()
        # In another order, at another time.
        names = ["b.yaml", "a.yaml"] if folder.name == "one" else ["a.yaml", "b.yaml"]
        for index, name in enumerate(names):
            (tree / name).write_text(name)
            os.utime(tree / name, (index, index))
        release.archive(folder / "made.tar.gz", tree, [tree], prefix="made", time=TIME)

    made = twice(tmp_path, make)
    with tarfile.open(made / "made.tar.gz") as members:
        assert [(each.name, each.mtime) for each in members] == [
            ("made/a.yaml", TIME),
            ("made/b.yaml", TIME),
        ]


@pytest.fixture
def cyclonedx() -> Path:
    """The program that lists packages."""
    program = ROOT / ".venvs" / "release" / "bin" / "cyclonedx-py"
    if not program.exists():
        skip("cyclonedx-py is not here: `make test` installs it")
    return program


def test_a_list_of_packages_is_the_same_bytes_twice(
    release: ModuleType, tmp_path: Path, cyclonedx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The lists of the other images are made in the same way, from longer files.
    monkeypatch.setattr(release, "IMAGES", {"router": release.IMAGES["router"]})
    twice(tmp_path, lambda folder: release.list_packages(ROOT, folder, cyclonedx))


def test_every_package_of_an_image_is_in_its_list(
    release: ModuleType, tmp_path: Path, cyclonedx: Path
) -> None:
    release.list_packages(ROOT, tmp_path, cyclonedx)
    for image, lock in release.IMAGES.items():
        lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
        pinned = {line.split("==")[0].lower() for line in lines if "==" in line}
        listed = json.loads((tmp_path / f"sbom-{image}.cdx.json").read_text(encoding="utf-8"))
        assert listed["bomFormat"] == "CycloneDX"
        assert {each["name"].lower() for each in listed["components"]} == pinned


def test_checksums_are_those_of_all_files(release: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"a")
    release.write_checksums(tmp_path)
    lines = (tmp_path / "SHA256SUMS").read_text().splitlines()
    assert lines == [f"{hashlib.sha256(b'a').hexdigest()}  a.whl"]


def test_what_is_released_is_here(release: ModuleType) -> None:
    for path in (*release.MANIFESTS, *release.IMAGES.values(), release.CHART):
        assert (ROOT / path).exists()
