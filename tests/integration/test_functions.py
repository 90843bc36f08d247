"""Functions and text encoders of a real service, over each of its doors."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from harness.other_clients import (
    run_with_litellm,
    run_with_openai,
    run_with_tfserving,
    run_with_tritonclient,
)
from harness.service import GOLDENS, START_TIMEOUT, Service, kept_compilations, serving
from harness.tools import real_model
from shaperouter import Client, InvalidArgumentError

TESTS = Path(__file__).parents[1]
LABELS = "roberta-labels"
# Seconds after which a call that waits for a worker's successor fails.
PATIENCE = 2 * START_TIMEOUT


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A function of any batch, a text encoder with real weights, and a tiny classifier."""
    directory = tmp_path_factory.mktemp("function")
    subprocess.run(
        [sys.executable, "-m", "harness.save_function", directory],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        check=True,
    )
    with serving(
        f"--model=function={directory}",
        f"--model=minilm={real_model('all-MiniLM-L6-v2')}",
        f"--model=labels={GOLDENS / LABELS}",
        env=kept_compilations(),
    ) as service:
        yield service


@pytest.fixture(scope="module")
def caller(functions: Service) -> Iterator[Client]:
    with Client(functions.address, timeout=PATIENCE) as client:
        yield client


def features(rows: int) -> "np.ndarray[Any, Any]":
    return np.arange(3 * rows, dtype=np.float32).reshape(rows, 3) / 100


def scores(features: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """What `save_function.py` saves."""
    powers = np.exp(features @ np.arange(6, dtype=np.float32).reshape(3, 2))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def test_batches_of_any_size_share_the_graphs_of_the_ladder(caller: Client) -> None:
    for rows in range(1, 34):
        found = caller.infer("function", {"features": features(rows)}).outputs["scores"]
        np.testing.assert_allclose(found, scores(features(rows)), rtol=1e-5)
    graphs = caller.graphs(model="function")
    assert len(graphs) <= 6
    assert {graph.traces for graph in graphs} <= {0, 1}


def test_a_wrong_input_is_refused_by_name(caller: Client) -> None:
    with pytest.raises(InvalidArgumentError, match=r"inputs\.features: dimension 1 must be 3"):
        caller.infer("function", {"features": features(2)[:, :2]})


def test_embeddings_of_texts_equal_the_reference(caller: Client) -> None:
    texts = [each["text"] for each in json.loads((GOLDENS / "minilm.json").read_text())]
    expected = load_file(GOLDENS / "minilm.safetensors")["embeddings"]
    found = np.array(caller.embed(texts, model="minilm").vectors)
    assert (found * expected).sum(axis=1).min() > 0.99999


def test_scores_of_token_ids_equal_the_reference(caller: Client) -> None:
    for case in json.loads((GOLDENS / f"{LABELS}.json").read_text())["cases"]:
        ids = np.array([case["input_ids"]])
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        found = caller.infer("labels", inputs).outputs["scores"]
        np.testing.assert_allclose(found[0], case["expected"], atol=1e-4)


def test_tritons_client_calls_functions_and_encoders(functions: Service, caller: Client) -> None:
    found = json.loads(
        run_with_tritonclient("triton_functions.py", functions.address, "function", "minilm")
    )
    np.testing.assert_allclose(found["function"]["scores"], scores(features(5)), rtol=1e-5)
    assert found["metadata"]["inputs"] == [
        {"name": "features", "datatype": "FP32", "shape": ["-1", "3"]}
    ]
    np.testing.assert_allclose(
        found["embeddings"]["embedding"],
        caller.embed(["a cat", "a dog"], model="minilm").vectors,
        atol=1e-6,
    )
    assert "dimension 1 must be 3, got 2" in found["error"]


def test_tritons_client_calls_them_over_http_in_both_forms(
    functions: Service, caller: Client
) -> None:
    models = ("function", "minilm", "labels")
    address = functions.http_url.removeprefix("http://")
    found = json.loads(run_with_tritonclient("triton_http_functions.py", address, *models))
    embeddings = caller.embed(["a cat", "a dog"], model="minilm").vectors
    ids = np.array([[5, 6, 7]])
    classes = caller.infer("labels", {"input_ids": ids, "attention_mask": np.ones_like(ids)})
    for form in (0, 1):
        scored = found["function"][form]["scores"]
        np.testing.assert_allclose(scored, scores(features(5)), rtol=1e-5)
        embedded = found["embeddings"][form]["embedding"]
        np.testing.assert_allclose(embedded, embeddings, atol=1e-6)
        scored = found["classes"][form]["scores"]
        np.testing.assert_allclose(scored, classes.outputs["scores"], atol=1e-6)
        assert found["classes"][form]["label"] == [
            each.decode() for each in classes.outputs["label"]
        ]
    assert found["error"].startswith("400: inputs.features: dimension 1 must be 3, got 2")


def test_tensorflow_servings_stubs_call_functions(functions: Service) -> None:
    found = json.loads(run_with_tfserving("tfserving_functions.py", functions.address, "function"))
    np.testing.assert_allclose(found["scores"], scores(features(5)), rtol=1e-5)
    assert found["error"].startswith("INVALID_ARGUMENT: ")
    assert "dimension 1 must be 3, got 2" in found["error"]
    assert found["metadata"].endswith("/tensorflow.serving.SignatureDefMap")
    assert found["status"] == [1, 30]  # AVAILABLE


def test_calls_outlive_their_worker(functions: Service, caller: Client) -> None:
    restarted = threading.Event()

    def call(rows: int) -> int:
        """Calls until the worker's successor is ready; returns the number of calls."""
        calls = 0
        while not restarted.is_set():
            found = caller.infer("function", {"features": features(rows)}).outputs["scores"]
            np.testing.assert_allclose(found, scores(features(rows)), rtol=1e-5)
            calls += 1
        return calls

    with ThreadPoolExecutor() as threads:
        callers = [threads.submit(call, rows) for rows in (1, 4, 40)]
        try:
            os.kill(functions.worker_pid(), signal.SIGKILL)
            functions.wait_until_ready(count=2)
        finally:
            restarted.set()
        assert all(each.result() > 0 for each in callers)


def test_embeddings_of_openais_client_are_ours(functions: Service, caller: Client) -> None:
    found = json.loads(run_with_openai("openai_embeddings.py", functions.http_url, "minilm"))
    expected = caller.embed(["a cat", "a dog"], model="minilm").vectors
    np.testing.assert_allclose(found, [expected, expected], rtol=1e-6)


def test_embeddings_of_litellm_are_ours(functions: Service, caller: Client) -> None:
    found = json.loads(
        run_with_litellm("litellm_calls.py", functions.http_url, "embeddings=minilm")
    )
    expected = caller.embed(["a cat", "a dog"], model="minilm").vectors
    np.testing.assert_allclose(found, expected, rtol=1e-6)
