"""Triton's own client, unmodified, against a real service."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.other_clients import run_with_tritonclient, write_definitions
from harness.service import Service
from shaperouter import Client
from shaperouter_service.edge.inference.stubs import grpc_service_pb2


@pytest.fixture(scope="module")
def found(demo: Service) -> dict[str, Any]:
    """What the calls of `triton_calls.py` found."""
    result: dict[str, Any] = json.loads(run_with_tritonclient("triton_calls.py", demo.address))
    return result


@pytest.fixture(scope="module")
def http(demo: Service) -> dict[str, Any]:
    """What the calls of `triton_http_calls.py` found."""
    address = demo.http_url.removeprefix("http://")
    result: dict[str, Any] = json.loads(run_with_tritonclient("triton_http_calls.py", address))
    return result


@pytest.fixture(scope="module")
def expected(demo: Service) -> str:
    """The text that the calls should get."""
    with Client(demo.address) as client:
        return client.generate("TensorFlow is", max_new_tokens=8).text


def test_our_definitions_agree_with_tritonclients(tmp_path: Path) -> None:
    write_definitions(
        tmp_path / "ours", grpc_service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    )
    modules = ("tritonclient.grpc.service_pb2", "tritonclient.grpc.model_config_pb2")
    assert run_with_tritonclient("definitions.py", str(tmp_path / "ours"), *modules) == ""


def test_the_service_is_live_and_ready(found: dict[str, Any]) -> None:
    blocking = found["blocking"]
    assert [blocking[name] for name in ("live", "ready", "model_ready")] == [True] * 3


def test_models_are_described(found: dict[str, Any]) -> None:
    blocking = found["blocking"]
    assert blocking["server"]["name"] == "shaperouter"
    assert blocking["metadata"]["inputs"][0]["name"] == "text_input"
    assert blocking["config"]["config"]["model_transaction_policy"] == {"decoupled": True}
    assert blocking["index"]["models"] == [{"name": "demo", "version": "1", "state": "READY"}]


def test_statistics_count_all_requests(found: dict[str, Any]) -> None:
    (statistics,) = found["blocking"]["statistics"]["model_stats"]
    assert int(statistics["inference_stats"]["success"]["count"]) >= 5
    assert int(statistics["inference_stats"]["fail"]["count"]) >= 2


def test_texts_are_those_of_our_own_protocol(found: dict[str, Any], expected: str) -> None:
    assert found["blocking"]["infer"]["text_output"] == [expected]
    assert found["blocking"]["infer"]["num_output_tokens"] == [8]
    assert found["asynchronous"]["infer"]["text_output"] == [expected]


def test_parameters_of_a_request_are_options(found: dict[str, Any], expected: str) -> None:
    first, second = found["blocking"]["sampled"]
    assert first["text_output"] == second["text_output"] != [expected]


def test_requests_of_a_stream_are_answered_by_their_ids(
    found: dict[str, Any], expected: str
) -> None:
    texts = found["blocking"]["stream"]["texts"]
    assert "".join(texts["0"]) == expected
    assert texts["1"] == [expected]
    assert len(texts["0"]) > 1


def test_an_error_in_a_stream_is_one_of_its_responses(found: dict[str, Any]) -> None:
    (error,) = found["blocking"]["stream"]["errors"]
    assert "max_tokens: must be at least 1 unless prompt_logprobs is set, got 0" in error


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("model", "NOT_FOUND", "no model 'gpt3'; this service has demo"),
        ("option", "INVALID_ARGUMENT", "max_tokens: must be at most"),
        ("stream", "INVALID_ARGUMENT", "stream: must be false"),
        ("load", "FAILED_PRECONDITION", "models cannot be loaded"),
        ("shared memory", "UNIMPLEMENTED", "Method not found"),
        ("deadline", "DEADLINE_EXCEEDED", ""),
    ],
)
def test_errors_have_a_status_and_a_message(
    found: dict[str, Any], name: str, status: str, message: str
) -> None:
    error = found["blocking"]["errors"][name]
    assert error["status"] == f"StatusCode.{status}"
    assert message in error["message"]


def test_the_way_of_the_sample_client_for_vllm_streams_texts(found: dict[str, Any]) -> None:
    assert found["asynchronous"]["errors"] == []
    texts = found["asynchronous"]["texts"]
    assert texts.keys() == {"0", "1", "2", "3"}
    assert all("".join(parts) for parts in texts.values())


# Over HTTP.


def test_the_service_is_live_and_ready_over_http(http: dict[str, Any]) -> None:
    blocking = http["blocking"]
    assert [blocking[name] for name in ("live", "ready", "model_ready")] == [True] * 3
    assert http["asynchronous"]["ready"] is True


def test_models_are_described_alike_over_http(found: dict[str, Any], http: dict[str, Any]) -> None:
    blocking = http["blocking"]
    assert blocking["server"]["name"] == "shaperouter"
    assert blocking["index"] == [{"name": "demo", "version": "1", "state": "READY", "reason": ""}]
    assert blocking["config"]["model_transaction_policy"] == {"decoupled": True}
    over_grpc = found["blocking"]["metadata"]
    for name in ("inputs", "outputs"):
        # Protobuf's JSON has texts for these sizes.
        assert blocking["metadata"][name] == [
            each | {"shape": [int(size) for size in each["shape"]]} for each in over_grpc[name]
        ]
    assert http["asynchronous"]["metadata"] == blocking["metadata"]


def test_texts_over_http_are_those_of_our_own_protocol(http: dict[str, Any], expected: str) -> None:
    blocking = http["blocking"]
    for name in ("infer", "json", "compressed", "deferred"):
        assert blocking[name]["text_output"] == [expected], name
    assert blocking["infer"]["num_output_tokens"] == [8]
    assert http["asynchronous"]["texts"] == [[expected]] * 4


def test_a_seed_gives_the_same_text_over_http_and_grpc(
    found: dict[str, Any], http: dict[str, Any]
) -> None:
    over_grpc = found["blocking"]["sampled"][0]["text_output"]
    assert [each["text_output"] for each in http["blocking"]["sampled"]] == [over_grpc] * 2


def test_the_generate_extension_answers_and_streams(http: dict[str, Any], expected: str) -> None:
    blocking = http["blocking"]
    assert blocking["generated"]["text_output"] == expected
    assert "".join(each["text_output"] for each in blocking["events"]) == expected
    assert len(blocking["events"]) > 1
    assert blocking["events"][-1]["finish_reason"] == blocking["generated"]["finish_reason"]


def test_statistics_count_all_requests_over_http(http: dict[str, Any]) -> None:
    (statistics,) = http["blocking"]["statistics"]["model_stats"]
    assert statistics["inference_stats"]["success"]["count"] >= 6


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("model", "404", "no model 'gpt3'; this service has demo"),
        ("version", "404", "demo has only version 1, got '2'"),
        ("option", "400", "max_tokens: must be at most"),
        ("stream", "400", "stream: must be false"),
        ("sequence", "400", "parameters.sequence_id: is unknown"),
        ("load", "400", "models cannot be loaded"),
        ("shared memory", "501", "/v2/systemsharedmemory/status is not served"),
        ("trace", "501", "/v2/models/demo/trace/setting is not served"),
    ],
)
def test_errors_over_http_have_a_status_and_a_message(
    http: dict[str, Any], name: str, status: str, message: str
) -> None:
    error = http["blocking"]["errors"][name]
    assert error["status"] == status
    assert message in error["message"]
