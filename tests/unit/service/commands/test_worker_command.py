"""`shaperouterd worker`."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.roles import Run, Started
from shaperouter_service.errors import StartupError


def test_a_single_worker_uses_all_cores(started: Started, run: Run) -> None:
    run("worker", "--name=w")
    assert started.config.engine.threads is None


@pytest.mark.parametrize(("cores", "compile_threads"), [(1, 1), (2, 1), (4, 2), (16, 2)])
def test_compile_threads_leave_cores_for_requests(
    started: Started, run: Run, monkeypatch: pytest.MonkeyPatch, cores: int, compile_threads: int
) -> None:
    monkeypatch.setattr("shaperouter_service.commands.worker.usable_cores", lambda: cores)
    run("worker")
    assert started.config.engine.compile_threads == compile_threads


@pytest.mark.parametrize(("limit", "cap"), [(10_000, 7_000), (None, 0)])
def test_the_memory_cap_is_a_share_of_the_containers_memory(
    started: Started, run: Run, monkeypatch: pytest.MonkeyPatch, limit: int | None, cap: int
) -> None:
    monkeypatch.setattr("shaperouter_service.system.sizes.memory_limit", lambda: limit)
    run("worker")
    assert started.config.engine.max_memory_bytes == cap


def test_default_names_differ_between_workers_of_a_host(started: Started, run: Run) -> None:
    names = set()
    for address in ("127.0.0.1:50052", "127.0.0.1:50053", "unix:/run/worker"):
        run("worker", f"--listen={address}")
        names.add(started.config.name)
    assert len(names) == 3
    run("worker", "--name=w")
    assert started.config.name == "w"


def test_a_worker_gets_the_graphs_to_warm(started: Started, run: Run) -> None:
    run("worker", "--name=w", "--compile-mode=warm", "--warm=a decode 4x128 beams 2")
    (signature,) = started.config.engine.warm
    assert (signature.rows, signature.length, signature.beams) == (4, 128, 2)


def test_a_variable_can_list_several_graphs_to_warm(started: Started, run: Run) -> None:
    wanted = ["a decode 4x128 beams 2", "a prefill 1x64"]
    run("worker", "--compile-mode=warm", SHAPEROUTER_WARM=", ".join(wanted) + "\n")
    assert [str(each) for each in started.config.engine.warm] == wanted


def test_a_successor_does_not_warm_recorded_graphs(started: Started, run: Run) -> None:
    run("worker", "--name=w", "--successor")
    assert not started.config.engine.make_recorded
    assert "successor" not in run("worker", "--help").output


def test_lengths_apply_to_the_named_model_or_to_all_others(started: Started, run: Run) -> None:
    models = ["--model=a", "--model=b", "--model=c"]
    run("worker", *models, "--prefill-lengths=b=16,24", "--prefill-lengths=32,48")
    others = (32, 48)
    chosen = started.config.engine.prefill_lengths
    # Those without a name are for models that are loaded later.
    assert chosen == {"": others, "a": others, "b": (16, 24), "c": others}


def test_a_model_without_chosen_lengths_has_the_default_ones(started: Started, run: Run) -> None:
    run("worker", "--model=a", "--model=b", "--decode-lengths=b=64,256")
    assert started.config.engine.prefill_lengths == started.config.engine.encode_lengths == {}
    assert started.config.engine.decode_lengths == {"b": (64, 256)}


def test_a_compile_cache_makes_tensorflow_keep_executables_in_memory(
    started: Started, run: Run
) -> None:
    run("worker", "--compile-cache=/cache", "--compile-cache-size=5MB")
    assert started.config.compile_cache == Path("/cache")
    assert started.config.compile_cache_size == 5_000_000
    assert "ram://" in os.environ["TF_XLA_FLAGS"]


def test_the_users_flags_are_kept(
    started: Started, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_clustering_debug")
    for _ in range(2):
        run("worker", "--compile-cache=/cache")
    assert os.environ["TF_XLA_FLAGS"].split()[0] == "--tf_xla_clustering_debug"
    assert len(os.environ["TF_XLA_FLAGS"].split()) == 2


def test_without_a_compile_cache_tensorflow_keeps_no_executables(
    started: Started, run: Run
) -> None:
    run("worker", "--compile-cache=off")
    assert started.config.compile_cache is None
    assert os.environ["TF_XLA_FLAGS"] == ""


@pytest.mark.parametrize("given", ["", "--xla_dump_to=/dumps"])
def test_xla_sums_in_the_same_order_in_all_graphs(
    started: Started, run: Run, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("XLA_FLAGS", given)
    run("worker", "--kernels=off")
    *others, ours = os.environ["XLA_FLAGS"].split()
    assert others == given.split()
    assert ours == "--xla_cpu_experimental_ynn_fusion_type=-LIBRARY_FUSION_TYPE_REDUCE"


@pytest.mark.parametrize(
    ("family", "library", "expected"),
    [("gpt2", __file__, True), ("gpt2", "/missing.so", False), ("t5", __file__, False)],
    ids=["kernels", "no kernels", "an encoder"],
)
@pytest.mark.usefixtures("started")
def test_graphs_compile_faster_where_kernels_compute_most(
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    *,
    family: str,
    library: str,
    expected: bool,
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    monkeypatch.setattr("shaperouter_service.commands.worker.KERNELS", Path(library))
    run("worker", f"--model={tmp_path}")
    ours = {"--xla_cpu_use_fusion_emitters=false", "--xla_backend_optimization_level=1"}
    flags = set(os.environ["XLA_FLAGS"].split())
    assert (ours <= flags) == expected
    assert bool(ours & flags) == expected


def test_the_user_can_override_xla_flags(
    started: Started, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = (
        "--xla_cpu_experimental_ynn_fusion_type=LIBRARY_FUSION_TYPE_REDUCE "
        "--xla_cpu_use_fusion_emitters=true --xla_backend_optimization_level=3"
    )
    monkeypatch.setenv("XLA_FLAGS", given)
    run("worker")
    assert os.environ["XLA_FLAGS"] == given


def test_a_missing_tensorflow_is_reported_with_the_package_to_install(
    started: Started, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "shaperouter_service.roles.worker")

    class NoTensorFlow:
        """Refuses to find TensorFlow."""

        def find_spec(self, name: str, *_: Any) -> None:
            if name in ("tensorflow", "shaperouter_service.roles.worker"):
                raise ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow")

    monkeypatch.setattr(sys, "meta_path", [NoTensorFlow(), *sys.meta_path])
    with pytest.raises(StartupError, match=r"tensorflow .*shaperouter-service\[worker\]"):
        run("worker")
