"""The directory of workers' sockets is removed by its service or by the next one."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from shaperouter_service.roles.socket_directory import PREFIX, socket_directory

HOLD = """
import sys
from shaperouter_service.roles.socket_directory import socket_directory
with socket_directory() as directory:
    (directory / "worker-0.0.sock").touch()
    print(directory, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory, of this process and of others."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def held() -> tuple["subprocess.Popen[str]", Path]:
    """Another service, and its directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    return process, Path(process.stdout.readline().strip())


def test_the_directory_is_removed_at_the_end() -> None:
    with socket_directory() as directory:
        assert directory.is_dir()
        (directory / "worker-0.0.sock").touch()
    assert not directory.exists()


def test_the_next_start_removes_the_directory_of_a_killed_service(place: Path) -> None:
    process, left = held()
    with process:
        process.kill()
    assert left.is_dir()
    with socket_directory() as directory:
        assert list(place.iterdir()) == [directory]


def test_the_directory_of_a_living_service_is_kept() -> None:
    process, theirs = held()
    with process:
        with socket_directory() as ours:
            assert theirs != ours
            assert theirs.is_dir()
        process.communicate()
    assert not theirs.exists()


def test_foreign_files_and_directories_are_kept(place: Path) -> None:
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    (place / f"{PREFIX}link").symlink_to(elsewhere)
    (place / f"{PREFIX}file").touch()
    (place / "shaperouter-a1b2c3d4").mkdir()
    before = sorted(place.rglob("*"))
    with socket_directory():
        pass
    assert sorted(place.rglob("*")) == before
