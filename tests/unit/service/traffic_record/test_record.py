"""The record of traffic on disk: complete files, merged when there are many."""

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.logs import capture_logs
from harness.traffic import MODEL, decode, prefill
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.traffic import Traffic
from shaperouter_service.routing.traffic_json import to_json
from shaperouter_service.traffic_record import TrafficRecorder, read_record
from shaperouter_service.traffic_record import files as files_module
from shaperouter_service.traffic_record import recorder as recorder_module
from shaperouter_service.traffic_record.files import ABANDONED_SECONDS, MERGED_FROM

LADDERS = Ladders.default(max_length=128, slots=2)


def about(count: float, *, within: float = 1e-3) -> Any:
    """A count after a few minutes of decay at most; counts halve in a week."""
    return pytest.approx(count, rel=within)


Recorder = Callable[..., TrafficRecorder]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Directory of the record, which does not exist yet."""
    return tmp_path / "cache" / "traffic"


@pytest.fixture
def recorder(directory: Path) -> Recorder:
    """Creates the recorder of a new process."""
    return lambda *models: TrafficRecorder(directory, dict.fromkeys(models or (MODEL,), LADDERS))


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def files(directory: Path, model: str = MODEL) -> list[Path]:
    return sorted((directory / model).glob("*"))


def prompts(directory: Path) -> dict[int, float]:
    return read_record(directory)[MODEL].prompts


def abandon(directory: Path) -> None:
    """Makes all files look abandoned."""
    before = time.time() - 2 * ABANDONED_SECONDS
    for path in files(directory):
        os.utime(path, (before, before))


def fill(directory: Path, recorder: Recorder, processes: int) -> None:
    """Writes the files of ended processes, each with a prompt of 7 tokens."""
    for _ in range(processes):
        ended = recorder()
        ended.prompt(MODEL, 7)
        ended.save()
    abandon(directory)


def test_a_saved_record_is_read(directory: Path, recorder: Recorder) -> None:
    process = recorder()
    process.prompt(MODEL, 12)
    process.run(MODEL, 4, 60)
    process.record_request(prefill(1, 16))
    process.served(prefill(1, 16), 0.5)
    process.served(decode(1, 64), 0.25, steps=10)
    process.record_missed_savings(decode(2, 64), 0.125)
    process.compiled(decode(1, 64), 3.0)
    process.save()
    traffic = read_record(directory)[MODEL]
    assert traffic.ladders == LADDERS
    assert traffic.prompts == {12: 1}
    assert traffic.runs == {(4, 60): 1}
    assert traffic.of(prefill(1, 16)).asked == 1
    assert traffic.of(prefill(1, 16)).device_seconds == 0.5
    assert (traffic.of(decode(1, 64)).calls, traffic.of(decode(1, 64)).steps) == (1, 10)
    assert traffic.of(decode(2, 64)).missed_seconds == 0.125
    assert traffic.of(decode(1, 64)).compile_seconds == 3.0


def test_a_record_has_its_time_and_duration(directory: Path, recorder: Recorder) -> None:
    before, started = time.time(), time.monotonic()
    process = recorder()
    process.served(prefill(1, 16), 0.5)
    process.save()
    traffic = read_record(directory)[MODEL]
    assert before <= traffic.of(prefill(1, 16)).last_used <= traffic.as_of <= time.time()
    assert 0 < traffic.seconds <= time.monotonic() - started


def test_time_without_traffic_is_added_to_the_next_traffic(
    directory: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 100.0])
    with monkeypatch.context() as patch:
        patch.setattr(
            "shaperouter_service.traffic_record.recorder.time.monotonic", lambda: next(times)
        )
        process = recorder()
        process.save()
        process.prompt(MODEL, 1)
        process.save()
    assert read_record(directory)[MODEL].seconds == pytest.approx(100.0)


def test_each_save_adds_to_the_last(directory: Path, recorder: Recorder) -> None:
    process = recorder()
    for _ in range(3):
        process.prompt(MODEL, 12)
        process.save()
    assert len(files(directory)) == 1
    assert prompts(directory) == {12: about(3)}


def test_nothing_is_written_before_there_is_traffic(directory: Path, recorder: Recorder) -> None:
    recorder().save()
    assert not directory.exists()


def test_nothing_is_written_again_without_new_traffic(directory: Path, recorder: Recorder) -> None:
    process = recorder()
    process.prompt(MODEL, 12)
    process.save()
    abandon(directory)
    before = files(directory)[0].stat().st_mtime
    process.save()
    assert files(directory)[0].stat().st_mtime == before


def test_the_records_of_processes_add_up(directory: Path, recorder: Recorder) -> None:
    for _ in range(2):
        process = recorder()
        process.prompt(MODEL, 12)
        process.save()
    assert prompts(directory) == {12: about(2)}


def test_models_have_records_of_their_own(directory: Path, recorder: Recorder) -> None:
    process = recorder("gpt2.5", "opt")
    process.prompt("opt", 12)
    process.prompt("gpt2.5", 13)
    process.save()
    record = read_record(directory)
    assert {name: traffic.prompts for name, traffic in record.items()} == {
        "gpt2.5": {13: 1},
        "opt": {12: 1},
    }


def test_a_recorder_without_a_directory_writes_nothing(tmp_path: Path) -> None:
    process = TrafficRecorder(None, {MODEL: LADDERS})
    process.prompt(MODEL, 12)
    process.save()
    assert list(tmp_path.iterdir()) == []


def test_threads_may_count_while_another_saves(directory: Path, recorder: Recorder) -> None:
    process, times = recorder(), 5000

    def count() -> None:
        for _ in range(times):
            process.prompt(MODEL, 12)

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        process.save()
    process.save()
    assert prompts(directory) == {12: about(3 * times, within=2e-5)}


def test_a_missing_record_is_empty(directory: Path, logs: list[Any]) -> None:
    assert read_record(directory) == {}
    assert logs == []


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: path.write_bytes(b""), id="emptied"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-9]), id="cut off"),
        pytest.param(lambda path: path.write_bytes(b"\xff" * 99), id="overwritten"),
        pytest.param(lambda path: (path.unlink(), path.mkdir()), id="a directory"),
        pytest.param(lambda path: (path.unlink(), path.symlink_to(path)), id="a circle of links"),
        pytest.param(
            lambda path: path.write_text(path.read_text().replace(MODEL, "opt")),
            id="of another model, with a wrong checksum",
        ),
        pytest.param(
            lambda path: path.write_text(to_json(Traffic(model="opt", ladders=LADDERS, as_of=0.0))),
            id="of another model",
        ),
    ],
)
def test_a_damaged_file_is_skipped_with_one_warning(
    directory: Path, recorder: Recorder, logs: list[Any], damage: Callable[[Path], Any]
) -> None:
    for tokens in (12, 13):
        process = recorder()
        process.prompt(MODEL, tokens)
        process.save()
    damaged = files(directory)[0]
    kept = read_record(directory)[MODEL].prompts
    damage(damaged)
    left = prompts(directory)
    assert len(left) == 1
    assert left.keys() < kept.keys()
    assert [line["file"] for line in logs if line["log_level"] == "warning"] == [str(damaged)]


def test_a_file_dated_in_the_future_does_not_age_the_others(
    directory: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = recorder()
    process.prompt(MODEL, 12)
    process.save()
    ahead = recorder()
    ahead.prompt(MODEL, 13)
    years = time.time() + 1e8
    with monkeypatch.context() as patch:
        patch.setattr("shaperouter_service.traffic_record.recorder.time.time", lambda: years)
        ahead.save()
    assert prompts(directory) == {12: about(1), 13: about(1)}


@pytest.fixture
def clock_ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Sets the clock years ahead until the patch is undone."""
    years = time.time() + 1e8
    ahead = SimpleNamespace(time=lambda: years, monotonic=time.monotonic)
    with monkeypatch.context() as patch:
        patch.setattr(recorder_module, "time", ahead)
        patch.setattr(files_module, "time", ahead)
        yield patch


def test_traffic_saved_while_the_clock_was_ahead_does_not_age_later_traffic(
    directory: Path, recorder: Recorder, clock_ahead: pytest.MonkeyPatch
) -> None:
    process = recorder()
    process.prompt(MODEL, 12)
    process.save()
    clock_ahead.undo()
    process.prompt(MODEL, 13)
    process.save()
    assert prompts(directory) == {12: about(1), 13: about(1)}


def test_traffic_that_could_not_be_saved_while_the_clock_was_ahead_does_not_age_later_traffic(
    directory: Path,
    recorder: Recorder,
    clock_ahead: pytest.MonkeyPatch,
    full_disk: pytest.MonkeyPatch,
) -> None:
    process = recorder()
    process.prompt(MODEL, 12)
    process.save()
    full_disk.undo()
    clock_ahead.undo()
    process.prompt(MODEL, 13)
    process.save()
    assert prompts(directory) == {12: about(1), 13: about(1)}


# --- Failures ------------------------------------------------------------------------------------


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Makes writes fail until the patch is undone."""

    def fail(path: Path, *_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", fail)
        yield patch


def test_a_full_disk_logs_one_warning_and_loses_no_traffic(
    directory: Path, recorder: Recorder, logs: list[Any], full_disk: pytest.MonkeyPatch
) -> None:
    process = recorder()
    for _ in range(3):
        process.prompt(MODEL, 12)
        process.save()
    assert [line["event"] for line in logs] == ["traffic record not saved"]
    assert files(directory) == []
    full_disk.undo()
    process.save()
    assert prompts(directory) == {12: about(3)}


def test_a_directory_that_cannot_be_created_logs_one_warning(
    directory: Path, recorder: Recorder, logs: list[Any]
) -> None:
    directory.parent.parent.joinpath(directory.parent.name).write_text("in the way")
    process = recorder()
    for _ in range(2):
        process.prompt(MODEL, 12)
        process.save()
    assert [line["event"] for line in logs] == ["traffic record not saved"]
    assert read_record(directory) == {}


def test_a_failure_for_one_model_does_not_affect_others(
    directory: Path, recorder: Recorder
) -> None:
    directory.mkdir(parents=True)
    (directory / "gpt2").write_text("in the way")
    process = recorder("gpt2", "opt")
    process.prompt("gpt2", 12)
    process.prompt("opt", 12)
    process.save()
    assert list(read_record(directory)) == ["opt"]


def test_an_interrupted_save_leaves_the_previous_file(
    directory: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = recorder()
    process.prompt(MODEL, 12)
    process.save()

    def cut_short(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[:20])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    process.prompt(MODEL, 13)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", cut_short)
        process.save()
    assert prompts(directory) == {12: 1}
    assert len(files(directory)) == 1


# --- Merging -------------------------------------------------------------------------------------


def test_many_abandoned_files_are_merged(directory: Path, recorder: Recorder) -> None:
    fill(directory, recorder, MERGED_FROM)
    process = recorder()
    process.prompt(MODEL, 9)
    process.save()
    assert len(files(directory)) == 2
    assert prompts(directory) == {7: about(MERGED_FROM), 9: about(1)}


def test_few_abandoned_files_are_not_merged(directory: Path, recorder: Recorder) -> None:
    fill(directory, recorder, MERGED_FROM - 1)
    process = recorder()
    process.prompt(MODEL, 9)
    process.save()
    assert len(files(directory)) == MERGED_FROM


def test_files_of_living_processes_are_not_merged(directory: Path, recorder: Recorder) -> None:
    for _ in range(MERGED_FROM + 1):
        process = recorder()
        process.prompt(MODEL, 7)
        process.save()
    assert len(files(directory)) == MERGED_FROM + 1


def test_traffic_of_a_merged_living_process_counts_once(
    directory: Path, recorder: Recorder
) -> None:
    idle = recorder()
    idle.prompt(MODEL, 5)
    idle.save()
    fill(directory, recorder, MERGED_FROM)
    merging = recorder()
    merging.prompt(MODEL, 9)
    merging.save()
    idle.prompt(MODEL, 6)
    idle.save()
    assert prompts(directory) == {
        5: about(1),
        6: about(1),
        7: about(MERGED_FROM),
        9: about(1),
    }


def test_traffic_counts_once_if_processes_merge_at_the_same_time(
    directory: Path, recorder: Recorder
) -> None:
    fill(directory, recorder, 4 * MERGED_FROM)
    merging = [recorder() for _ in range(4)]
    for process in merging:
        process.prompt(MODEL, 9)
    threads = [threading.Thread(target=process.save) for process in merging]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert prompts(directory) == {7: about(4 * MERGED_FROM), 9: about(4)}


def test_unreadable_files_are_not_merged(directory: Path, recorder: Recorder) -> None:
    fill(directory, recorder, MERGED_FROM)
    newer = directory / MODEL / "newer.json"
    newer.write_text('{"version": 2, "checksum": "", "traffic": {}}')
    abandon(directory)
    process = recorder()
    process.prompt(MODEL, 9)
    process.save()
    assert newer in files(directory)
    assert len(files(directory)) == 3


def test_a_disk_that_fills_during_a_merge_loses_no_traffic(
    directory: Path, recorder: Recorder, logs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(directory, recorder, MERGED_FROM)
    process = recorder()
    process.prompt(MODEL, 9)
    written: list[Path] = []
    write = Path.write_bytes

    def fill_up(path: Path, *args: Any, **options: Any) -> int:
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(path)
        return write(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", fill_up)
        process.save()
    assert [line["event"] for line in logs] == ["traffic records not merged"]
    assert prompts(directory) == {7: about(MERGED_FROM), 9: about(1)}


def test_old_unfinished_files_are_removed(directory: Path, recorder: Recorder) -> None:
    (directory / MODEL).mkdir(parents=True)
    (directory / MODEL / "old.unfinished").write_text("{")
    abandon(directory)
    (directory / MODEL / "new.unfinished").write_text("{")
    process = recorder()
    process.prompt(MODEL, 9)
    process.save()
    assert [path.name for path in files(directory) if path.suffix == ".unfinished"] == [
        "new.unfinished"
    ]


def test_removing_a_file_forgets_its_traffic(directory: Path, recorder: Recorder) -> None:
    process = recorder()
    process.prompt(MODEL, 12)
    process.save()
    files(directory)[0].unlink()
    process.prompt(MODEL, 13)
    process.save()
    assert prompts(directory) == {13: 1}
