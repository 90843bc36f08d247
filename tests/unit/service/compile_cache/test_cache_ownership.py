"""What others may have put code into is not used as a compile cache."""

import os
from pathlib import Path
from typing import Any

import pytest

from harness.logs import capture_logs
from shaperouter_service.compile_cache import CompileCache


def opened(directory: Path) -> tuple[CompileCache | None, list[Any]]:
    """The cache of a directory, and what is told of it."""
    with capture_logs() as lines:
        return CompileCache.open(directory, max_bytes=10**9), list(lines)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory that existed before."""
    path = tmp_path / "cache"
    path.mkdir(mode=0o755)
    return path


def test_a_new_directory_is_ours_alone(tmp_path: Path) -> None:
    cache, lines = opened(tmp_path / "new")
    assert cache is not None
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert lines == []


def test_a_directory_that_others_can_only_read_is_used(directory: Path) -> None:
    cache, lines = opened(directory)
    assert cache is not None
    assert lines == []


# The last is that of /tmp, where others can't remove what is ours and yet add to it.
@pytest.mark.parametrize("mode", [0o777, 0o702, 0o1777])
def test_a_directory_that_all_can_write_to_is_not_used_and_nothing_is_put_there(
    directory: Path, mode: int
) -> None:
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
    assert "chmod go-w" in line["remedy"]


def test_a_directory_of_another_user_is_not_used(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = directory.stat().st_uid
    # Where tests run as root, who owns everything, the directory is another's.
    if owner == 0:
        owner = 12345
        os.chown(directory, owner, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    cache, (line,) = opened(directory)
    assert cache is None
    assert line["reason"] == (
        f"it belongs to user {owner}, and neither to root nor to us, user 54321"
    )


def test_a_directory_that_a_group_can_write_to_is_used_with_a_warning(directory: Path) -> None:
    directory.chmod(0o2775)
    cache, (line,) = opened(directory)
    assert cache is not None
    assert line["event"] == "a group can write to the compile cache, and workers run the code in it"
    assert (line["directory"], line["mode"]) == (str(directory), "2775")
