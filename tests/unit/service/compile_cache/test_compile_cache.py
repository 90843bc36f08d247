"""The compile cache: complete files or none, and no failure because of the disk."""

import errno
import hashlib
import json
import os
import shutil
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.logs import capture_logs
from shaperouter_service.compile_cache import (
    CacheKey,
    CompileCache,
    Part,
    Section,
    checksummed_file,
)
from shaperouter_service.compile_cache import cache as cache_module
from shaperouter_service.compile_cache.cache import (
    UNFINISHED_SECONDS,
    least_valuable,
)
from shaperouter_service.compile_cache.directory import default_directory
from shaperouter_service.compile_cache.disk import Disk
from shaperouter_service.compile_cache.key import processor
from shaperouter_service.routing.decay import HALF_LIFE
from shaperouter_service.system.files import UNFINISHED

KEY = CacheKey(label="gpt2", parts={"n_layer": 2})
GRAPH = "decode_1x128_beams1"
PAYLOAD = bytes(range(256)) * 40


def open_cache(directory: Path, max_bytes: int = 10**9) -> CompileCache:
    cache = CompileCache.open(directory, max_bytes=max_bytes)
    assert cache is not None
    return cache


@pytest.fixture
def section(tmp_path: Path) -> Section:
    return open_cache(tmp_path).section(KEY)


def keep(section: Section, graph: str = GRAPH, payload: bytes = PAYLOAD) -> None:
    for part in Part:
        section.write(graph, part, payload, seconds=1.5, of=part)


def path_of(directory: Path, part: Part, graph: str = GRAPH) -> Path:
    return directory / KEY.name / f"{graph}.{part}"


def test_a_missing_key_names_the_parts_that_changed(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    for parts in ({"n": 2, "code": "a", "threads": 2}, {"n": 2, "code": "b", "threads": 1}):
        keep(cache.section(CacheKey(label="gpt2-5m", parts=parts)))
    keep(cache.section(CacheKey(label="gpt2", parts={"n": 2, "code": "c", "threads": 2})))

    def changed(label: str = "gpt2-5m", **parts: object) -> list[str]:
        return cache.changed_parts(CacheKey(label=label, parts=parts))

    assert changed(n=2, code="b", threads=3) == ["threads"]
    assert changed(n=2, code="c", threads=2) == ["code"]
    assert changed(n=2, code="b", threads=1) == []
    assert changed(n=2, code="b", threads=1, processor="new") == ["processor"]
    assert changed(label="opt", n=2, code="b", threads=3) == []


@pytest.mark.parametrize("part", Part)
def test_another_process_reads_what_was_written(tmp_path: Path, part: Part) -> None:
    keep(open_cache(tmp_path).section(KEY))
    found = open_cache(tmp_path).section(KEY).read(GRAPH, part)
    assert found == checksummed_file.Contents(payload=PAYLOAD, seconds=1.5, details={"of": part})


def test_a_missing_graph_reads_as_none(section: Section) -> None:
    assert section.read(GRAPH, Part.MODULE) is None


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def _replace_by_directory(path: Path) -> None:
    path.unlink()
    (path / "within").mkdir(parents=True)


def _replace_by_foreign_file(path: Path) -> None:
    path.write_text("something else altogether, of another program\n" * 10)


def _replace_by_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent)


def _write_as_another_version(path: Path) -> None:
    content = path.read_bytes()
    prefix = struct.Struct(f"<{len(checksummed_file.MAGIC)}s32sI")
    size = prefix.unpack_from(content)[2]
    header = json.loads(content[prefix.size : prefix.size + size]) | {"further": 1}
    written = json.dumps(header).encode()
    digest = hashlib.blake2b(written, digest_size=32).digest()
    start = prefix.pack(checksummed_file.MAGIC, digest, len(written))
    path.write_bytes(start + written + content[prefix.size + size :])


DAMAGE = [
    _truncate,
    _empty,
    _lengthen,
    _replace_by_directory,
    _replace_by_foreign_file,
    _replace_by_link,
    _write_as_another_version,
]


@pytest.mark.parametrize("part", Part)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_logged_removed_and_written_again(
    tmp_path: Path, section: Section, part: Part, damage: Callable[[Path], None]
) -> None:
    keep(section)
    path = path_of(tmp_path, part)
    damage(path)
    with capture_logs() as logs:
        assert section.read(GRAPH, part) is None
        assert section.read(GRAPH, part) is None
    assert [entry["path"] for entry in logs] == [str(path)]
    assert not path.exists()
    (other,) = set(Part) - {part}
    assert section.read(GRAPH, other) is not None
    keep(section)
    assert section.read(GRAPH, part) is not None


def test_any_flipped_bit_is_detected(tmp_path: Path, section: Section) -> None:
    section.write(GRAPH, Part.MODULE, b"module", seconds=1.0)
    path = path_of(tmp_path, Part.MODULE)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(checksummed_file.DamagedFileError):
            checksummed_file.read(path)


def test_a_file_truncated_anywhere_is_detected(tmp_path: Path, section: Section) -> None:
    section.write(GRAPH, Part.MODULE, b"module", seconds=1.0)
    path = path_of(tmp_path, Part.MODULE)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(checksummed_file.DamagedFileError):
            checksummed_file.read(path)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EMFILE, errno.EIO, errno.ESTALE])
def test_a_file_that_cannot_be_read_now_counts_as_missing_and_stays(
    tmp_path: Path, section: Section, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    keep(section)

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", fail)
    with capture_logs() as logs:
        assert section.read(GRAPH, Part.MODULE) is None
    assert os.strerror(code) in logs[0]["reason"]
    assert path_of(tmp_path, Part.MODULE).exists()


def test_without_threads_files_count_as_missing_and_are_not_kept(
    tmp_path: Path, section: Section, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(section)

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as starved:
        starved.setattr(threading.Thread, "start", fail)
        assert section.read(GRAPH, Part.MODULE) is None
        assert not section.has(GRAPH)
        keep(section, graph="another")
        assert CompileCache(tmp_path, max_bytes=1).changed_parts(KEY) == []
    assert section.has(GRAPH)
    assert not section.has("another")


def test_a_graph_is_kept_though_the_cache_cannot_be_tidied(
    section: Section, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanished(*_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(Path, "glob", vanished)
    keep(section)
    assert section.read(GRAPH, Part.MODULE) is not None


def test_only_one_thread_tidies_the_cache_and_the_others_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = open_cache(tmp_path)
    begun, go_on = threading.Event(), threading.Event()

    def tidy(_: CompileCache) -> None:
        begun.set()
        assert go_on.wait(60)

    monkeypatch.setattr(CompileCache, "_evict", tidy)
    tidying = threading.Thread(target=cache.evict)
    tidying.start()
    assert begun.wait(60)
    begun.clear()
    cache.evict()
    assert not begun.is_set()
    go_on.set()
    tidying.join()


def test_a_full_disk_is_logged_once_and_leaves_no_files(
    tmp_path: Path, section: Section, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_half(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write_half)
        with capture_logs() as logs:
            keep(section)
            keep(section, "decode_2x128_beams1")
    assert ["No space left" in entry["reason"] for entry in logs] == [True]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "CACHEDIR.TAG"]
    keep(section)
    assert section.read(GRAPH, Part.MODULE) is not None


def _deny(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Makes methods of paths fail as on a read-only file system; root could write otherwise."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for name in names:
        monkeypatch.setattr(Path, name, fail)


def test_a_read_only_cache_is_read_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(open_cache(tmp_path).section(KEY))
    _deny(monkeypatch, "write_bytes", "unlink", "replace")
    with capture_logs() as logs:
        section = open_cache(tmp_path).section(KEY)
        assert section.read(GRAPH, Part.EXECUTABLE) is not None
        keep(section, "decode_2x128_beams1")
    assert ["Read-only file system" in entry["reason"] for entry in logs] == [True]


def test_an_unreadable_directory_is_no_cache(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with capture_logs() as logs:
        assert CompileCache.open(file / "cache", max_bytes=1) is None
    assert len(logs) == 1


def test_a_missing_directory_is_created_for_its_owner_alone(tmp_path: Path) -> None:
    open_cache(tmp_path / "new" / "cache")
    assert (tmp_path / "new" / "cache").stat().st_mode & 0o777 == 0o700


def test_readers_find_complete_files_while_others_write(tmp_path: Path) -> None:
    payloads = [bytes([number]) * 100_000 for number in range(8)]
    ended = threading.Event()
    found: list[bytes | None] = []

    def read() -> None:
        section = open_cache(tmp_path).section(KEY)
        while not ended.is_set():
            kept = section.read(GRAPH, Part.MODULE)
            found.append(kept and kept.payload)

    def write(payload: bytes) -> None:
        section = open_cache(tmp_path).section(KEY)
        for _ in range(20):
            section.write(GRAPH, Part.MODULE, payload, seconds=1.0)

    write(payloads[0])
    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=[payload]) for payload in payloads]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    ended.set()
    reader.join()
    assert found
    assert set(found) <= set(payloads)
    assert not list(tmp_path.rglob(UNFINISHED))


def test_a_keys_name_depends_on_its_parts_but_not_on_their_order() -> None:
    one = CacheKey(label="gpt2", parts={"n_layer": 2, "n_head": 3})
    assert one.name == CacheKey(label="gpt2", parts={"n_head": 3, "n_layer": 2}).name
    for parts in ({"n_layer": 3, "n_head": 3}, {"n_layer": 2}, {"n_layer": "2", "n_head": 3}):
        assert CacheKey(label="gpt2", parts=parts).name != one.name
    assert CacheKey.is_name(one.name)


def test_a_section_keeps_the_parts_of_its_key(tmp_path: Path, section: Section) -> None:
    keep(section)
    assert open_cache(tmp_path).key_parts(KEY.name) == KEY.parts
    (tmp_path / KEY.name / "key.json").write_text("[")
    assert open_cache(tmp_path).key_parts(KEY.name) == {}
    keep(section)
    assert open_cache(tmp_path).key_parts(KEY.name) == KEY.parts


def test_the_processor_part_is_stable_json() -> None:
    found = processor()
    assert found["cores"] >= 1
    assert json.dumps(found) == json.dumps(processor())


# --- Size ----------------------------------------------------------------------------------------


def keep_some(cache: CompileCache, *, seconds: dict[str, float], size: int = 10_000) -> None:
    section = cache.section(KEY)
    for graph, duration in seconds.items():
        section.write(graph, Part.EXECUTABLE, os.urandom(size), seconds=duration)


def graphs(cache: CompileCache) -> set[str]:
    return {entry.graph for entry in cache.entries()}


def test_the_least_valuable_graph_is_evicted(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, max_bytes=25_000)
    keep_some(cache, seconds={"dear": 9.0, "cheap": 1.0})
    keep_some(cache, seconds={"middle": 5.0})
    assert graphs(cache) == {"dear", "middle"}


def test_unused_graphs_are_evicted_first(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    keep_some(cache, seconds={"used": 1.0, "unused": 1.0})
    for graph in ("used", "unused"):
        long_ago = cache.entries()[0].used - 2 * HALF_LIFE
        os.utime(path_of(tmp_path, Part.EXECUTABLE, graph), (long_ago, long_ago))
    assert cache.section(KEY).read("used", Part.EXECUTABLE) is not None
    entries = cache.entries()
    (removed,) = least_valuable(entries, 15_000, max(entry.used for entry in entries))
    assert removed.graph == "unused"


def test_value_is_the_time_saved_per_byte(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    keep_some(cache, seconds={"large": 9.0}, size=50_000)
    keep_some(cache, seconds={"small": 1.0}, size=1_000)
    entries = cache.entries()
    (removed,) = least_valuable(entries, 50_500, max(entry.used for entry in entries))
    assert removed.graph == "large"


def test_old_unfinished_files_are_removed(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    keep(cache.section(KEY))
    left = [tmp_path / KEY.name / f"{name}.unfinished" for name in ("old", "new")]
    for path in left:
        path.touch()
    old = left[1].stat().st_mtime - 2 * UNFINISHED_SECONDS
    os.utime(left[0], (old, old))
    cache.evict()
    assert [path.exists() for path in left] == [False, True]


def test_foreign_files_are_not_removed(tmp_path: Path) -> None:
    foreign = [tmp_path / "plugins" / "a.module", tmp_path / "notes.txt"]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(1000))
    cache = open_cache(tmp_path, max_bytes=1)
    keep_some(cache, seconds={"one": 1.0})
    assert graphs(cache) == set()
    assert all(path.exists() for path in foreign)


def test_an_empty_section_is_removed(tmp_path: Path, section: Section) -> None:
    keep(section)
    cache = open_cache(tmp_path)
    assert cache.remove(cache.entries()) > 0
    assert not (tmp_path / KEY.name).exists()
    keep(section)
    assert graphs(cache) == {GRAPH}


def test_a_section_deleted_under_a_worker_is_created_again(
    tmp_path: Path, section: Section
) -> None:
    keep(section)
    shutil.rmtree(tmp_path / KEY.name)
    assert section.read(GRAPH, Part.MODULE) is None
    keep(section)
    assert section.read(GRAPH, Part.MODULE) is not None


def test_the_default_directory_is_in_the_users_cache_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert default_directory() == Path("/caches/shaperouter")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert default_directory() == Path("/home/somebody/.cache/shaperouter")


def test_a_pipe_in_place_of_a_file_counts_as_damage_and_does_not_block(
    tmp_path: Path, section: Section
) -> None:
    keep(section)
    path = path_of(tmp_path, Part.MODULE)
    path.unlink()
    os.mkfifo(path)
    assert section.read(GRAPH, Part.MODULE) is None
    assert not path.exists()


def test_a_pipe_in_place_of_the_key_is_replaced(tmp_path: Path, section: Section) -> None:
    (tmp_path / KEY.name).mkdir()
    os.mkfifo(tmp_path / KEY.name / "key.json")
    keep(section)
    assert json.loads((tmp_path / KEY.name / "key.json").read_text()) == KEY.parts


@pytest.fixture
def hung_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Makes reads of the cache hang until the test ends; set at each read."""
    tried, ended = threading.Event(), threading.Event()

    def hang(path: Path) -> None:
        tried.set()
        ended.wait()

    monkeypatch.setattr(checksummed_file, "read", hang)
    yield tried
    ended.set()


def test_a_disk_that_hung_is_not_used_again(tmp_path: Path, hung_disk: threading.Event) -> None:
    made = CompileCache.open(tmp_path, max_bytes=10**9)
    assert made is not None
    keep(made.section(KEY))
    cache = CompileCache.open(tmp_path, max_bytes=10**9, disk=Disk(timeout=5.0))
    assert cache is not None
    section = cache.section(KEY)
    with capture_logs() as lines:
        assert section.read(GRAPH, Part.MODULE) is None
        assert hung_disk.is_set()
        hung_disk.clear()
        assert section.read(GRAPH, Part.MODULE) is None
        assert not section.has(GRAPH)
    assert not hung_disk.is_set()
    assert [line["event"] for line in lines] == [
        "the compile cache was turned off until this process restarts: its disk hung"
    ]


def test_a_disk_that_hangs_at_the_start_means_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(cache_module, "write_atomically", lambda *_: ended.wait())
    assert CompileCache.open(tmp_path, max_bytes=1, disk=Disk(timeout=0.05)) is None
    ended.set()
