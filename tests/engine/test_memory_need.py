"""The memory of a model is known before anything is allocated, and sequences can be limited."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.call_engine import CallBench
from harness.engine import GOLDENS, Bench, Golden, assert_equals
from harness.functions import FUNCTIONS
from shaperouter_service.checkpoints.digest import model_digest
from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.errors import StartupError
from shaperouter_service.models import load_model
from shaperouter_service.models.encoders import load_encoder
from shaperouter_service.models.loading import read_family
from shaperouter_service.worker import memory_need, models
from shaperouter_service.worker.memory_need import (
    WORKER_BYTES,
    CallMemoryNeed,
    MemoryCheck,
    MemoryNeed,
    call_need,
    require_memory,
)

DECODER = GOLDENS / "gpt2-odd-heads"


def need(
    name: str, *, slots: int = 4, length: int | None = None, number_bytes: int = 4
) -> MemoryNeed:
    checkpoint = Checkpoint(GOLDENS / name, only_headers=True)
    family = read_family(checkpoint).limited(length)
    return MemoryNeed.of(
        checkpoint, family, dtype="float32", packed=True, number_bytes=number_bytes, slots=slots
    )


@pytest.mark.parametrize("name", ["gpt2-untied", "llama", "t5-gated"])
def test_the_need_of_weights_is_what_they_take(name: str) -> None:
    model = load_model(name, GOLDENS / name, "float32")
    assert need(name).weights == model.weight_bytes


def test_caches_are_counted_for_all_slots_and_a_search_at_the_longest_length() -> None:
    # Keys and values of 2 layers with 3 heads of 8 numbers, 128 positions each.
    assert need("llama", slots=5).caches == (5 + 4) * 128 * 2 * 2 * 3 * 8 * 4
    assert need("llama", slots=5, length=64).caches == need("llama", slots=5).caches // 2
    assert need("llama", slots=5, number_bytes=2).caches == need("llama", slots=5).caches // 2
    # T5 has as many positions for the source.
    assert need("t5-tied", slots=1).positions == 256


def test_what_does_not_fit_is_refused_with_the_numbers_and_a_length_that_fits() -> None:
    large = MemoryNeed(
        weights=2 * 10**9, position=100_000, positions=32768, max_length=32768, slots=8
    )
    require_memory({"m": large}, available=WORKER_BYTES + 42 * 10**9)
    with pytest.raises(StartupError) as refused:
        require_memory({"m": large}, available=WORKER_BYTES + 10 * 10**9)
    assert str(refused.value) == (
        "model m: needs about 42.3 GB of memory, but 11.0 GB are available: 2.0 GB for weights, "
        "39.3 GB for the caches of 8 requests and of a search with 4 beams, 32768 tokens each, "
        "1.0 GB for TensorFlow and graphs; use --max-length 4096, or fewer --slots"
    )


def test_models_that_no_length_makes_fit_need_fewer_slots_or_bits() -> None:
    large = MemoryNeed(weights=10**10, position=1, positions=512, max_length=512, slots=1)
    with pytest.raises(StartupError, match="use fewer --slots, or weights of fewer bits"):
        require_memory({"m": large}, available=10**9)


@pytest.mark.parametrize("name", ["bert-reranker", "distilbert-embedder", "mpnet-classifier"])
def test_the_need_of_a_text_encoder_is_what_its_weights_take(name: str) -> None:
    model = load_encoder(name, GOLDENS / name, "float32")
    need = call_need(GOLDENS / name, "float32", packed=False)
    assert need == CallMemoryNeed(weights=model.weight_bytes, is_converted=True)


def test_the_need_of_a_function_is_the_size_of_its_files(tmp_path: Path) -> None:
    path = FUNCTIONS["dense"].save(tmp_path / "dense")
    need = call_need(path, "float32", packed=True)
    assert need is not None
    assert need.weights == sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def test_models_that_generate_tokens_are_no_models_that_answer_once() -> None:
    assert call_need(GOLDENS / "llama", "float32", packed=True) is None


@pytest.mark.parametrize(
    ("is_converted", "advice"),
    [
        (True, "weights of fewer bits (--dtype), or more memory"),
        (False, "fewer models, or more memory"),
    ],
)
def test_models_that_answer_once_and_do_not_fit_are_refused_with_the_numbers(
    is_converted: bool, advice: str
) -> None:
    large = CallMemoryNeed(weights=2 * 10**9, is_converted=is_converted)
    require_memory({"m": large}, available=WORKER_BYTES + 2 * 10**9, prefix_growth=10**9)
    with pytest.raises(StartupError) as refused:
        require_memory({"m": large}, available=WORKER_BYTES + 10**9)
    assert str(refused.value) == (
        "model m: needs about 3.0 GB of memory, but 2.0 GB are available: 2.0 GB for weights, "
        f"1.0 GB for TensorFlow and graphs; use {advice}"
    )


@pytest.fixture(params=["function", "encoder"])
def answering_once(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A function and a text encoder."""
    if request.param == "function":
        return FUNCTIONS["dense"].save(tmp_path / "dense")
    return GOLDENS / "bert-embedder"


def test_a_worker_does_not_start_to_read_a_model_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, answering_once: Path
) -> None:
    monkeypatch.setattr(memory_need, "device_memory_left", lambda: WORKER_BYTES)
    for load in ("load_function", "load_encoder"):
        monkeypatch.setattr(models, load, lambda *_, **__: pytest.fail("it is read"))
    with pytest.raises(StartupError, match=r"model m: needs about .* for weights"):
        CallBench({"m": answering_once})


def test_a_model_that_does_not_fit_beside_those_that_serve_is_refused(
    monkeypatch: pytest.MonkeyPatch, answering_once: Path
) -> None:
    engine = CallBench({"first": GOLDENS / "bert-embedder"}).engine
    monkeypatch.setattr(memory_need, "device_memory_left", lambda: 0)
    with pytest.raises(StartupError, match=r"model m: needs about .* for weights"):
        engine.load("m", answering_once, model_digest(answering_once))


@pytest.mark.parametrize("kernels", ["off", "auto"])
def test_memory_that_models_take_while_they_are_loaded_is_not_needed_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kernels: str
) -> None:
    left = iter([2 * WORKER_BYTES])
    # Later, weights that were read have taken the rest.
    monkeypatch.setattr(memory_need, "device_memory_left", lambda: next(left, 0))
    function = FUNCTIONS["dense"].save(tmp_path / "dense")
    paths = {"function": function, "decoder": DECODER, "encoder": GOLDENS / "bert-embedder"}
    CallBench(paths, kernels=kernels)


def test_models_share_the_memory() -> None:
    one = MemoryNeed(weights=10**9, position=1, positions=512, max_length=512, slots=1)
    require_memory({"a": one, "b": one}, available=WORKER_BYTES + 21 * 10**8)
    with pytest.raises(StartupError, match=r"model b: .* 1\.0 GB for other models"):
        require_memory({"a": one, "b": one}, available=WORKER_BYTES + 19 * 10**8)


def test_memory_that_weights_hold_already_is_not_needed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = MemoryNeed(weights=10**9, position=1, positions=512, max_length=512, slots=1)
    monkeypatch.setattr(memory_need, "device_memory_left", lambda: WORKER_BYTES + 10**8)

    def check(held: int) -> MemoryCheck:
        memory: Any = SimpleNamespace(populated=held)
        return MemoryCheck({"m": memory}, prefix_growth=0, cache_growth=None)

    check(10**9).require("m", model)
    with pytest.raises(StartupError, match=r"2\.0 GB of memory, but 1\.6 GB are available"):
        check(5 * 10**8).require("m", model)


def test_memory_for_prefixes_is_needed_only_by_models_without_an_encoder() -> None:
    decoder, encoder = need("llama"), need("t5-tied")
    available = WORKER_BYTES + 10**8
    require_memory({"e": encoder}, available=available, prefix_growth=10**9)
    for needs in ({"d": decoder}, {"d": decoder, "e": encoder}):
        require_memory(needs, available=available + 10**9, prefix_growth=10**9)
        with pytest.raises(StartupError, match=r"1\.0 GB for --prefix-cache-memory"):
            require_memory(needs, available=available, prefix_growth=10**9)


def test_a_limited_model_gives_the_same_answers_and_refuses_longer_sequences() -> None:
    golden = Golden.read("llama")
    bench = Bench({golden.name: golden.directory}, slots=2, max_length=64)
    assert bench.engine.model(golden.name).max_length == 64
    case = next(case for case in golden.cases if len(case["prompt_token_ids"]) == 9)
    assert_equals(bench.submit_case(golden, case), case)


def test_transcribers_keep_their_length(tmp_path: Path) -> None:
    family = read_family(Checkpoint(GOLDENS / "whisper-uneven", only_headers=True))
    assert family.limited(8) is family
