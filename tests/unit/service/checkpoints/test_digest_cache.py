"""Digests of models are found without reading files that have not changed."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from shaperouter_service.checkpoints import digest_cache
from shaperouter_service.checkpoints.digest import model_digest
from shaperouter_service.checkpoints.digest_cache import DigestCache
from shaperouter_service.compile_cache import CompileCache


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(b"weights")
    return directory


@pytest.fixture
def cache(tmp_path: Path) -> DigestCache:
    return DigestCache(CompileCache(tmp_path, max_bytes=2**20))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The models whose files are read, an hour later, as if they had not changed since."""
    models: list[Path] = []

    def counted(path: Path) -> str:
        models.append(path)
        return model_digest(path)

    monkeypatch.setattr(digest_cache, "model_digest", counted)
    later = SimpleNamespace(time_ns=lambda: time.time_ns() + 3600 * 10**9)
    monkeypatch.setattr(digest_cache, "time", later)
    return models


def test_unchanged_files_are_read_once(
    model: Path, cache: DigestCache, read: list[Path], tmp_path: Path
) -> None:
    expected = model_digest(model)
    link = tmp_path / "link"
    link.symlink_to(model)
    assert [cache.digest(path) for path in (model, model, link)] == [expected] * 3
    assert read == [model]


def _write(model: Path) -> None:
    file = model / "model.safetensors"
    before = file.stat()
    file.write_bytes(b"WEIGHTS")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replace(model: Path) -> None:
    other = model / "other"
    other.write_bytes(b"WEIGHTS")
    other.replace(model / "model.safetensors")


def _rename(model: Path) -> None:
    (model / "model.safetensors").rename(model / "weights.safetensors")


@pytest.mark.parametrize("change", [_write, _replace, _rename])
def test_changed_files_are_read_again(
    model: Path, cache: DigestCache, read: list[Path], change: Callable[[Path], None]
) -> None:
    before = cache.digest(model)
    change(model)
    assert cache.digest(model) == model_digest(model) != before
    assert len(read) == 2


def test_files_that_were_just_written_are_read_again(
    model: Path, cache: DigestCache, read: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = max(file.stat().st_ctime_ns for file in model.iterdir())
    monkeypatch.setattr(digest_cache, "time", SimpleNamespace(time_ns=lambda: written + 1))
    assert cache.digest(model) == cache.digest(model)
    assert len(read) == 2


def test_files_that_change_while_they_are_read_are_read_again(
    model: Path, cache: DigestCache, read: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def changing(path: Path) -> str:
        read.append(path)
        _write(model)
        return model_digest(path)

    monkeypatch.setattr(digest_cache, "model_digest", changing)
    assert cache.digest(model) == cache.digest(model)
    assert len(read) == 2


def test_a_damaged_digest_is_not_used(
    model: Path, cache: DigestCache, read: list[Path], tmp_path: Path
) -> None:
    expected = cache.digest(model)
    (kept,) = (tmp_path / "digests").iterdir()
    content = bytearray(kept.read_bytes())
    for place in range(len(content)):
        damaged = content.copy()
        damaged[place] ^= 1
        kept.write_bytes(damaged)
        assert cache.digest(model) == expected
    assert len(read) == 1 + len(content)


@pytest.mark.parametrize("directory", [None, "file"])
def test_digests_are_found_without_a_directory_for_them(
    model: Path, read: list[Path], tmp_path: Path, directory: str | None
) -> None:
    (tmp_path / "file").touch()
    cache = DigestCache(
        None if directory is None else CompileCache(tmp_path / directory, max_bytes=2**20)
    )
    assert cache.digest(model) == cache.digest(model) == model_digest(model)
    assert len(read) == 2
