"""Faulty kernels are not used, and XLA computes without them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from harness.engine import GOLDENS, Bench, Golden, assert_equals, few_rungs, last_logits
from harness.kernels import compiled
from harness.logs import capture_logs
from shaperouter_service import kernels
from shaperouter_service.checkpoints.number_types import DType
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.errors import StartupError
from shaperouter_service.kernels import KernelsUnavailableError, library, selection
from shaperouter_service.kernels.library import DIGEST_SUFFIX, LIBRARY, digest, register
from shaperouter_service.kernels.selfcheck import attention, require, text_attention, unpack
from shaperouter_service.models import load_model
from shaperouter_service.system.populated_memory import PopulatedMemory

pytestmark = pytest.mark.usefixtures("native_kernels")

# A family of each kind.
ONE_OF_EACH_KIND = ("gpt2-untied", "opt-pre", "gemma2", "t5-gated")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for path in (LIBRARY, Path(f"{LIBRARY}{DIGEST_SUFFIX}")):
        shutil.copy(path, tmp_path)
    return tmp_path / LIBRARY.name


def test_a_missing_library_is_not_used(copied: Path) -> None:
    copied.unlink()
    with pytest.raises(KernelsUnavailableError, match="is missing"):
        register(copied)


@pytest.mark.parametrize("damage", [lambda content: content[:1000], lambda content: content + b"x"])
def test_a_damaged_library_is_not_loaded(copied: Path, damage: Callable[[bytes], bytes]) -> None:
    copied.write_bytes(damage(copied.read_bytes()))
    with pytest.raises(KernelsUnavailableError, match="is damaged"):
        register(copied)


def test_a_file_that_is_no_library_is_not_used(copied: Path) -> None:
    copied.write_bytes(b"nothing")
    Path(f"{copied}{DIGEST_SUFFIX}").write_text(digest(copied), encoding="ascii")
    with pytest.raises(KernelsUnavailableError, match="can't be loaded"):
        register(copied)


def test_a_library_of_another_version_is_not_used(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "VERSION", library.VERSION + 1)
    with pytest.raises(KernelsUnavailableError, match=f"has version {library.VERSION - 1}"):
        register(copied)


def test_kernels_with_wrong_products_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "shaperouter_service.kernels.selfcheck.unpack", lambda panels: 1 + unpack(panels)
    )
    require.cache_clear()
    with pytest.raises(KernelsUnavailableError, match="differs from the reference"):
        require()


def test_kernels_with_wrong_attention_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "shaperouter_service.kernels.selfcheck.attention", lambda *tensors: 1 + attention(*tensors)
    )
    require.cache_clear()
    with pytest.raises(KernelsUnavailableError, match="attention"):
        require()


def test_kernels_with_wrong_attention_of_texts_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "shaperouter_service.kernels.selfcheck.text_attention",
        lambda *tensors: 1 + text_attention(*tensors),
    )
    require.cache_clear()
    with pytest.raises(KernelsUnavailableError, match="attention of texts"):
        require()


def test_without_kernels_the_log_says_the_effect_and_the_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> str:
        raise KernelsUnavailableError("it was not built")

    monkeypatch.setattr(selection, "require", refuse)
    with capture_logs() as lines:
        assert kernels.choose("auto") is None
    (line,) = lines
    assert line["reason"] == "it was not built"
    assert "int8" in line["effect"]
    assert "g++" in line["fix"]


def test_kernels_that_are_off_log_nothing() -> None:
    with capture_logs() as lines:
        assert kernels.choose("off") is None
    assert not lines


@pytest.mark.parametrize("fault", ["is missing", "is damaged", "has version"])
def test_an_engine_serves_without_a_usable_library(
    copied: Path,
    fault: str,
    kept_compilations: CompileCache,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if fault == "is missing":
        copied.unlink()
    elif fault == "is damaged":
        copied.write_bytes(copied.read_bytes()[:-1])
    else:
        monkeypatch.setattr(library, "VERSION", library.VERSION + 1)
    monkeypatch.setattr("shaperouter_service.kernels.selfcheck.register", lambda: register(copied))
    require.cache_clear()
    golden = Golden.read("gpt2-untied")
    with capture_logs() as lines:
        bench = Bench(
            {golden.name: golden.directory},
            slots=2,
            ladders=few_rungs,
            compile_cache=kept_compilations,
        )
    assert_equals(bench.submit_case(golden, golden.cases[0]), golden.cases[0])
    assert bench.engine.model(golden.name).kernels == ""
    (line,) = (line for line in lines if line["event"].startswith("no native kernels"))
    assert fault in line["reason"]


# All other tests run with the kernels.
@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_answers_equal_the_reference_without_kernels(
    name: str, kept_compilations: CompileCache
) -> None:
    golden = Golden.read(name)
    bench = Bench(
        {name: golden.directory},
        slots=2,
        ladders=few_rungs,
        kernels="off",
        compile_cache=kept_compilations,
    )
    assert bench.engine.model(name).kernels == ""
    search = next(case for case in golden.option_cases if case["options"].get("num_beams", 1) > 1)
    cases = [*golden.cases[:4], search]
    runs = [(bench.submit_case(golden, case), case) for case in cases]
    for run, case in runs:
        assert_equals(run, case)


@pytest.mark.parametrize("name", ["gpt2-untied", "t5-gated"])
@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "int4"])
def test_weights_of_fewer_bits_are_served_and_reported(
    name: str, dtype: str, kept_compilations: CompileCache
) -> None:
    golden = Golden.read(name)
    bench = Bench(
        {name: golden.directory},
        slots=2,
        ladders=few_rungs,
        dtype=dtype,
        compile_cache=kept_compilations,
    )
    run = bench.submit_case(golden, golden.cases[0])
    run.wait()
    message = bench.engine.model(name)
    assert (message.weight_dtype, message.dtype) == (dtype, "float32")
    assert message.kernels == require()
    full = load_model(name, golden.directory, "float32", packed=True)
    assert message.weight_bytes < full.weight_bytes
    assert message.parameters == full.parameters


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
def test_weights_in_populated_memory_are_the_same(dtype: DType) -> None:
    directory = GOLDENS / "gpt2-untied"
    expected = load_model("m", directory, dtype, packed=True).weights
    for size in (2**12, 2**24):  # too little for all of them, and more than enough
        memory = PopulatedMemory(size)
        found = load_model("m", directory, dtype, packed=True, populated=memory).weights
        assert memory.take(2**12) is None
        for name, weight in expected.items():
            np.testing.assert_array_equal(found[name].numpy(), weight.numpy())


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_probabilities_in_bfloat16_are_close_to_the_reference(name: str) -> None:
    golden = Golden.read(name)
    model = load_model(name, golden.directory, "bfloat16", packed=True)
    case = golden.probabilities[0]
    logits = compiled(lambda prompt: last_logits(model, prompt, golden.source(case)))
    prompt = tf.constant([golden.prompt(case)])
    found = tf.nn.softmax(logits(prompt) / case["temperature"])[0].numpy()
    expected = np.asarray(case["probabilities"])
    # Numbers have 8 significant bits.
    assert np.abs(found - expected).max() <= 0.1 * expected.max()


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_whole_numbers_without_kernels_are_refused_with_the_reason(dtype: str) -> None:
    with pytest.raises(StartupError, match=f"dtype {dtype} needs a CPU with the native kernels"):
        Bench({"m": GOLDENS / "gpt2-bare"}, dtype=dtype, kernels="off")


def test_with_int4_embeddings_have_eight_bits() -> None:
    golden = Golden.read("gpt2-untied")
    model = load_model("m", golden.directory, "int4", packed=True)
    assert model.weights["h.mlp.c_fc.weight"].dtype == tf.uint8
    for name in ("wte.weight", "lm_head.weight"):
        assert model.weights[name].dtype == tf.int8
