"""A directory that other users could write to is not used as a compile cache."""

import os
from pathlib import Path
from typing import Any

import pytest

from harness.logs import capture_logs
from shaperouter_service.compile_cache import CompileCache


def opened(directory: Path) -> tuple[CompileCache | None, list[Any]]:
    """Opens a directory as a cache, and captures the log lines."""
    with capture_logs() as lines:
        return CompileCache.open(directory, max_bytes=10**9), list(lines)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory that existed before."""
    path = tmp_path / "cache"
    path.mkdir(mode=0o755)
    return path


def test_a_new_directory_is_private(tmp_path: Path) -> None:
    cache, lines = opened(tmp_path / "new")
    assert cache is not None
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert lines == []


def test_a_directory_readable_by_others_is_used(directory: Path) -> None:
    cache, lines = opened(directory)
    assert cache is not None
    assert lines == []


# The last is the mode of /tmp: others cannot remove our files but can add theirs.
@pytest.mark.parametrize("mode", [0o777, 0o702, 0o1777])
def test_a_world_writable_directory_is_not_used_and_left_empty(directory: Path, mode: int) -> None:
    directory.chmod(mode)
    cache, (line,) = opened(directory)
    assert cache is None
    assert list(directory.iterdir()) == []
    assert line["event"] == "no compile cache: others may have put code into its directory"
    assert line["reason"] == "all users can write to it"
    assert (line["directory"], line["owner"], line["mode"]) == (
        str(directory),
        os.geteuid(),
        f"{mode:04o}",
    )
    assert "chmod go-w" in line["fix"]


def test_a_directory_of_another_user_is_not_used(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = directory.stat().st_uid
    # If tests run as root, the directory is given to another user.
    if owner == 0:
        owner = 12345
        os.chown(directory, owner, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    cache, (line,) = opened(directory)
    assert cache is None
    assert line["reason"] == (
        f"it belongs to user {owner}, and neither to root nor to us, user 54321"
    )


def test_a_group_writable_directory_is_used_with_a_warning(directory: Path) -> None:
    directory.chmod(0o2775)
    cache, (line,) = opened(directory)
    assert cache is not None
    assert line["event"] == "a group can write to the compile cache, and workers run the code in it"
    assert (line["directory"], line["mode"]) == (str(directory), "2775")
