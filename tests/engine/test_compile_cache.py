"""A worker that finds its graphs in the compile cache traces and compiles nothing."""

import ast
import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from structlog.testing import capture_logs

import shaperouter_service
from harness import cached_engine
from harness.engine import GOLDENS, Bench, few_rungs
from shaperouter_service import kernels
from shaperouter_service.compile_cache import CacheKey, CompileCache, Part, checksummed_file
from shaperouter_service.decoding import PrefillProgram
from shaperouter_service.decoding.tf_internals import named
from shaperouter_service.graphs import CachedGraphBuilder, cache_key
from shaperouter_service.graphs.cache_keys import SOURCES
from shaperouter_service.models import DeviceKind, Model, load_model
from shaperouter_service.system.devices import usable_cores

GRAPHS = ("prefill1", "decode1", "decode2")

COMPILED = {"traces": 1, "compiles": 1, "loads": 0, "failures": 0, "error": ""}
LOADED = {"traces": 0, "compiles": 0, "loads": 1, "failures": 0, "error": ""}


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model("tiny", GOLDENS / "gpt2-odd-heads", "float32")


def assert_right(report: dict[str, Any]) -> None:
    """Checks the report; the run itself has compared the tokens with the golden cases."""
    assert report["cases"] > 10
    assert report["caches_moved"] == []


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compile cache with the graphs."""
    directory = tmp_path_factory.mktemp("cache")
    report, _ = cached_engine.run(directory, list(GRAPHS))
    assert_right(report)
    assert report["graphs"] == dict.fromkeys(GRAPHS, COMPILED)
    return directory


@pytest.fixture
def files(filled: Path) -> dict[tuple[str, Part], Path]:
    """The files of the cache, by kind of graph and part."""
    found = {
        (f"{kind}{beams}", part): next(filled.glob(f"*/{kind}_*{suffix}.{part}"))
        for kind, beams, suffix in (
            ("prefill", 1, ""),
            ("decode", 1, "_beams1"),
            ("decode", 2, "_beams2"),
        )
        for part in Part
    }
    assert sorted(found.values()) == sorted(filled.glob("*/*_*"))
    return found


@pytest.fixture(scope="module")
def loaded(filled: Path) -> tuple[dict[str, Any], str]:
    """The report of a worker that loads them in another order and under another name."""
    return cached_engine.run(filled, list(reversed(GRAPHS)), name="renamed")


def test_all_graphs_are_loaded_in_another_order_and_under_another_name(
    loaded: tuple[dict[str, Any], str],
) -> None:
    report, errors = loaded
    assert_right(report)
    assert report["graphs"] == dict.fromkeys(GRAPHS, LOADED)
    # Messages that TensorFlow logs as errors when it loads an executable, although nothing is
    # wrong.
    assert "text-format" not in errors
    assert "SIGILL" not in errors


def test_loaded_graphs_report_their_compile_times(
    loaded: tuple[dict[str, Any], str], files: dict[tuple[str, Part], Path]
) -> None:
    report, _ = loaded
    assert report["make_seconds"] == pytest.approx(
        {
            graph: sum(checksummed_file.read_header(files[graph, part]).seconds for part in Part)
            for graph in GRAPHS
        }
    )


def test_graphs_of_a_model_with_an_encoder_are_loaded_too(tmp_path: Path) -> None:
    order = ["encode1", "prefill1", "decode1"]
    for expected in (COMPILED, LOADED):
        report, _ = cached_engine.run(tmp_path, order, checkpoint="t5-gated")
        assert_right(report)
        assert report["graphs"] == dict.fromkeys(order, expected)


def test_damaged_files_are_compiled_again(
    filled: Path, files: dict[tuple[str, Part], Path]
) -> None:
    module, executable = files["prefill1", Part.MODULE], files["decode1", Part.EXECUTABLE]
    os.truncate(module, module.stat().st_size // 2)
    content = executable.read_bytes()
    executable.write_bytes(content[:-9] + bytes(9))
    for part in Part:
        os.truncate(files["decode2", part], 0)
    report, _ = cached_engine.run(filled, list(GRAPHS))
    assert_right(report)
    assert report["graphs"] == {
        # The trace had the same result, so the executable was found.
        "prefill1": LOADED | {"traces": 1},
        "decode1": COMPILED | {"traces": 0},
        "decode2": COMPILED,
    }
    cache = CompileCache(filled, max_bytes=10**9)
    assert list(cache.damaged_files()) == []
    assert len(list(cache.files())) == len(files)


def test_cached_files_name_no_file_of_the_installation(
    files: dict[tuple[str, Part], Path],
) -> None:
    """Such a name would make the graphs of each installation different."""
    for path in files.values():
        assert b".py" not in checksummed_file.read(path).payload


def test_files_that_tensorflow_refuses_are_compiled_again_and_dropped(
    filled: Path, files: dict[tuple[str, Part], Path]
) -> None:
    """Files with valid checksums and invalid content."""
    for path, change in (
        (files["prefill1", Part.EXECUTABLE], lambda payload: payload[:-100]),
        (files["decode1", Part.MODULE], lambda _: b"module {"),
    ):
        kept = checksummed_file.read(path)
        checksummed_file.write(
            path, change(kept.payload), graph=path.stem, seconds=1.0, details=kept.details
        )
    report, _ = cached_engine.run(filled, list(GRAPHS))
    assert_right(report)
    assert report["graphs"] == {"prefill1": COMPILED, "decode1": COMPILED, "decode2": LOADED}
    assert not any(
        files[graph, part].exists() for graph in ("prefill1", "decode1") for part in Part
    )


def test_graphs_are_compiled_even_if_functions_cannot_be_named(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shaperouter_service.decoding.program.named", lambda function, _: function)
    section = CompileCache(tmp_path, max_bytes=10**9).section(cache_key(model))
    for traces in (1, 0):
        program = PrefillProgram("prefill", model, rows=1, length=16, piece=16)
        builder = CachedGraphBuilder(program, section)
        builder.trace()
        assert builder.compile() is False
        assert program.traces == traces
    assert [path.suffix for path in tmp_path.glob("*/prefill*")] == [".module"]


def test_a_compilation_that_lacks_memory_drops_nothing_from_the_cache(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise MemoryError

    # Its files would be in the directory that only a worker gives TensorFlow.
    monkeypatch.setattr("shaperouter_service.graphs.xla_cache_dir.available", lambda: True)
    section = CompileCache(tmp_path, max_bytes=10**9).section(cache_key(model))
    programs = [PrefillProgram("prefill", model, rows=1, length=16, piece=16) for _ in range(2)]
    builders = [CachedGraphBuilder(program, section) for program in programs]
    builders[0].trace()
    builders[0].compile()
    kept = sorted(tmp_path.glob("*/prefill*"))
    monkeypatch.setattr(programs[1], "compile", fail)
    builders[1].trace()
    with pytest.raises(MemoryError):
        builders[1].compile()
    assert programs[1].traces == 0
    assert kept
    assert sorted(tmp_path.glob("*/prefill*")) == kept


def test_a_graph_that_could_not_be_loaded_for_lack_of_memory_is_made_at_the_next_attempt(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise MemoryError

    monkeypatch.setattr("shaperouter_service.graphs.xla_cache_dir.available", lambda: True)
    section = CompileCache(tmp_path, max_bytes=10**9).section(cache_key(model))
    programs = [PrefillProgram("prefill", model, rows=1, length=32, piece=32) for _ in range(2)]
    builders = [CachedGraphBuilder(program, section) for program in programs]
    section.write(programs[0].label, Part.EXECUTABLE, b"any", seconds=1.0, file="any.pb")
    monkeypatch.setattr(programs[0], "compile", fail)
    builders[0].trace()
    with pytest.raises(MemoryError):
        builders[0].compile()
    # TensorFlow would repeat the failure of that name.
    builders[1].trace()
    assert programs[1].compiled_name != programs[0].compiled_name
    assert builders[1].compile() is False


def test_nothing_is_written_while_other_graphs_wait_to_be_traced(
    model: Model, tmp_path: Path
) -> None:
    section = CompileCache(tmp_path, max_bytes=10**9).section(cache_key(model))
    builder = CachedGraphBuilder(PrefillProgram("p", model, rows=1, length=16, piece=16), section)
    builder.trace()
    assert list(tmp_path.iterdir()) == []
    builder.compile()
    assert len(list(tmp_path.glob("*/prefill*.module"))) == 1


# --- What the key depends on --------------------------------------------------------------------


def test_the_key_excludes_a_models_name_and_weights(model: Model) -> None:
    other = load_model("other", GOLDENS / "gpt2-odd-heads", "float32")
    other.weights["wte.weight"].assign_add(tf.ones_like(other.weights["wte.weight"]))
    assert cache_key(other) == cache_key(model)


@pytest.mark.parametrize("changed", [{"layer_norm_epsilon": 1e-6}, {"scale_attn_weights": False}])
def test_the_key_includes_every_dimension(model: Model, changed: dict[str, Any]) -> None:
    family = dataclasses.replace(model.family, **changed)
    other = dataclasses.replace(model, family=family)
    assert cache_key(other).name != cache_key(model).name


def test_the_key_includes_the_type_and_the_flags_of_xla(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = load_model("tiny", GOLDENS / "gpt2-odd-heads", "bfloat16")
    assert cache_key(other).name != cache_key(model).name
    before = cache_key(model).name
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert cache_key(model).name != before


def test_the_key_includes_the_kernels_of_products(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphs that call the kernels are not found without them, or with another version."""
    names = {cache_key(model).name}
    for dtype in ("float32", "int8", "int4"):
        packed = load_model("tiny", GOLDENS / "gpt2-odd-heads", dtype, packed=True)
        names.add(cache_key(packed).name)
    monkeypatch.setattr(kernels, "VERSION", kernels.VERSION + 1)
    names.add(cache_key(packed).name)
    assert len(names) == 5


def test_the_key_includes_the_number_of_threads(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []
    for threads in (0, usable_cores(), usable_cores() + 1):
        monkeypatch.setattr(
            tf.config.threading, "get_intra_op_parallelism_threads", lambda n=threads: n
        )
        names.append(cache_key(model).name)
    by_default, one_a_core, more = names
    assert by_default == one_a_core != more


@pytest.mark.parametrize(("device", "keys"), [(DeviceKind.CPU, 2), (DeviceKind.GPU, 1)])
def test_the_key_includes_the_hosts_processor_only_if_it_computes(
    model: Model, device: DeviceKind, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.weights, "device", device)
    names = set()
    for hosts in ({"flags": "avx2", "cores": 8}, {"flags": "avx512f", "cores": 16}):
        module = "shaperouter_service.graphs.cache_keys"
        monkeypatch.setattr(f"{module}.processor", lambda host=hosts: host)
        names.add(cache_key(model).name)
    assert len(names) == keys


@pytest.mark.parametrize(("part", "is_told"), [("threads", True), ("dimensions", False)])
def test_a_worker_logs_why_its_cached_graphs_do_not_match(
    tmp_path: Path, part: str, is_told: bool
) -> None:
    cache = CompileCache.open(tmp_path, max_bytes=10**9)
    assert cache is not None

    def start() -> list[list[str]]:
        with capture_logs() as lines:
            bench = Bench(
                {"tiny": GOLDENS / "gpt2-odd-heads"},
                ladders=few_rungs,
                compile_threads=0,
                compile_cache=cache,
            )
        key = bench.parts.programs.sections["tiny"].key
        of_another = CacheKey(label=key.label, parts=dict(key.parts) | {part: "another"})
        cache.section(of_another).write("a graph", Part.MODULE, b"", seconds=1.0)
        return [line["changed"] for line in lines if line["event"] == "no cached graph matched"]

    assert start() == []
    assert start() == ([[part]] if is_told else [])


def _imported_modules(node: ast.ImportFrom) -> list[str]:
    """Names of the modules that a statement imports, as far as they are the project's own."""
    source = Path(shaperouter_service.__file__).parent.parent
    names = [f"{node.module}.{alias.name}" for alias in node.names]
    modules = [name for name in names if (source / f"{name.replace('.', '/')}.py").is_file()]
    return modules or [str(node.module)]


def test_the_key_covers_all_code_that_makes_graphs() -> None:
    """Other modules that this code imports make no difference to graphs."""
    root = Path(shaperouter_service.__file__).parent
    covered = tuple(source.removesuffix(".py").replace("/", ".") for source in SOURCES)
    imported = {
        name.removeprefix("shaperouter_service.")
        for source in SOURCES
        for path in [root / source, *(root / source).rglob("*.py")]
        if path.is_file()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and node.module is not None
        and node.module.startswith("shaperouter_service.")
        for name in _imported_modules(node)
    }
    assert {name for name in imported if not name.startswith(covered)} == {
        "checkpoints.number_types",
        "checkpoints.safetensors_reader",
        # The code that reads a text encoder's modules is part of its key.
        "checkpoints.sentence_transformers",
        "errors",
        "generation.resolution",
        # Graphs depend on given sizes and tensors, not on descriptions for routers.
        "routing.call_ladders",
        "routing.ladder",
        # The size of what is copied between caches, outside of graphs.
        "routing.prefixes",
        "routing.served_model",
        "speech.transcription",
        # Where weights are, which graphs do not depend on.
        "system.populated_memory",
        "tensors.dtypes",
        "tensors.specs",
    }


def test_a_compiled_function_gets_the_name_it_is_given() -> None:
    """Depends on private parts of TensorFlow, without which cached executables are not found."""
    variables = [tf.Variable(factor) for factor in (2.0, 3.0)]

    def make(variable: tf.Variable) -> Any:
        function = tf.function(
            lambda structure: {"product": structure["x"] * variable.read_value()},
            jit_compile=True,
            autograph=False,
        )
        traced = function.get_concrete_function({"x": tf.TensorSpec([2])})
        return named(traced, "ours"), traced

    # Two functions that differ only in what they captured may share the name.
    for variable, (function, _) in [(variable, make(variable)) for variable in variables]:
        assert function.name == b"ours"
        product = function({"x": tf.ones([2])})["product"]
        assert product.numpy().tolist() == [variable.numpy()] * 2


def test_a_different_function_does_not_take_over_a_name() -> None:
    functions = [
        tf.function(lambda x, n=number: x + n, autograph=False).get_concrete_function(
            tf.TensorSpec([])
        )
        for number in range(2)
    ]
    renamed = [named(function, "taken") for function in functions]
    assert renamed[0].name == b"taken"
    assert renamed[1] is functions[1]
