"""`shaperouterd serve`: what its workers get."""

from pathlib import Path

import pytest

from harness.roles import Run, Started


def test_workers_of_serve_get_its_options(started: Started, run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    run(
        "serve",
        "--model=a",
        "--model=b",
        "--workers=3",
        "--dtype=bfloat16",
        "--kernels=off",
        "--kv-cache-dtype=float32",
        "--slots=4",
        "--max-length=640",
        "--queue-limit=5",
        "--compile-threads=6",
        "--compile-mode=frozen",
        "--warm=a decode 1x64",
        "--warm=b decode 4x128 beams 2",
        "--beam-cover=off",
        "--max-graphs=20",
        "--max-memory=4000",
        "--prefix-cache-memory=1MB",
        "--speculate=off",
        f"--draft=b={tmp_path}",
        "--max-queue-seconds=3",
        "--prefill-lengths=b=16,24",
        "--prefill-lengths=32",
        "--decode-lengths=64,100",
        "--encode-lengths=b=24,48",
        "--threads=2",
        "--hang-timeout=8",
        "--signature-histograms=off",
        "--compile-cache=/cache",
        "--compile-cache-size=1kB",
        "--grace=7",
        "--log-level=warning",
        "--log-format=json",
    )
    assert started.config.own_workers
    assert started.workers.count == 3
    assert started.workers.hang_timeout == 8
    assert started.config.max_queue_seconds == 3
    assert not started.config.signature_histograms
    assert sorted(started.workers.arguments) == sorted(
        [
            "--model=a=/models/a",
            "--model=b=/models/b",
            "--metrics-listen=off",
            "--dtype=bfloat16",
            "--kernels=off",
            "--kv-cache-dtype=float32",
            "--slots=4",
            "--max-length=640",
            "--queue-limit=5",
            "--compile-threads=6",
            "--compile-mode=frozen",
            "--warm=a decode 1x64",
            "--warm=b decode 4x128 beams 2",
            "--beam-cover=off",
            "--check-padding=0.01",
            "--max-graphs=20",
            "--max-memory=4000",
            "--prefix-cache-memory=1000000",
            "--speculate=off",
            f"--draft=b={tmp_path}",
            "--prefill-lengths=b=16,24",
            "--prefill-lengths=32",
            "--decode-lengths=64,100",
            "--encode-lengths=b=24,48",
            "--threads=2",
            "--hang-timeout=8.0",
            "--signature-histograms=off",
            "--compile-cache=/cache",
            "--compile-cache-size=1000",
            "--grace=7.0",
            "--log-level=warning",
            "--log-format=json",
            "--tracing=off",
            "--exit-with-parent",
        ]
    )


@pytest.mark.parametrize(("workers", "threads"), [(1, 6), (2, 3), (4, 1), (9, 1)])
def test_workers_of_serve_share_the_cores(
    started: Started, run: Run, monkeypatch: pytest.MonkeyPatch, workers: int, threads: int
) -> None:
    monkeypatch.setattr("shaperouter_service.commands.serve.usable_cores", lambda: 6)
    run("serve", f"--workers={workers}")
    assert f"--threads={threads}" in started.workers.arguments


@pytest.mark.parametrize(("workers", "threads"), [(1, 2), (2, 1), (4, 1), (9, 1)])
def test_compile_threads_of_workers_depend_on_their_cores(
    started: Started, run: Run, monkeypatch: pytest.MonkeyPatch, workers: int, threads: int
) -> None:
    monkeypatch.setattr("shaperouter_service.commands.serve.usable_cores", lambda: 6)
    run("serve", f"--workers={workers}")
    assert f"--compile-threads={threads}" in started.workers.arguments


@pytest.mark.parametrize(("workers", "cap"), [(1, 7_000), (4, 1_750)])
def test_workers_of_serve_share_the_containers_memory(
    started: Started, run: Run, monkeypatch: pytest.MonkeyPatch, workers: int, cap: int
) -> None:
    monkeypatch.setattr("shaperouter_service.system.sizes.memory_limit", lambda: 10_000)
    run("serve", f"--workers={workers}")
    assert f"--max-memory={cap}" in started.workers.arguments


@pytest.mark.parametrize(
    ("gpus", "workers"), [("", 1), ("0", 1), ("1,3", 2), ("GPU-a, GPU-b,GPU-c", 3), ("0,-1,2", 1)]
)
def test_auto_starts_one_worker_per_gpu(
    started: Started, run: Run, gpus: str, workers: int
) -> None:
    run("serve", "--workers=auto", CUDA_VISIBLE_DEVICES=gpus)
    assert started.workers.count == workers


def test_each_worker_of_serve_sees_its_own_gpu(started: Started, run: Run) -> None:
    run("serve", "--workers=3", CUDA_VISIBLE_DEVICES="2,5")
    seen = [started.workers.environment(index) for index in range(3)]
    assert [variables["CUDA_VISIBLE_DEVICES"] for variables in seen] == ["2", "5", "2"]


def test_workers_on_a_cpu_get_no_variables(started: Started, run: Run) -> None:
    run("serve", "--workers=2", CUDA_VISIBLE_DEVICES="")
    assert started.workers.environment(1) == {}


def test_a_worker_accepts_the_arguments_of_serve(started: Started, run: Run) -> None:
    run("serve", "--slots=4", "--dtype=float32")
    arguments = started.workers.arguments
    result = run("worker", "--name=worker-2", "--listen=unix:/w", *arguments)
    assert result.exit_code == 0, result.output
    config = started.config
    assert (config.name, config.listen, config.engine.slots) == ("worker-2", "unix:/w", 4)
    assert config.engine.dtype == "float32"
    assert config.metrics_listen is None
    assert config.exit_with_parent
    assert config.engine.make_recorded
