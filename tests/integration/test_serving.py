"""Requests through the real client, router and worker."""

import json
import os
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc
import psutil
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from harness.service import GOLDENS, Service, serving
from harness.waiting import TIMEOUT, wait_until
from shaperouter import Client, FinishReason, GenerationOptions
from shaperouter.v1 import generation_pb2, generation_pb2_grpc
from shaperouter_service.system.process import NICE

EXPECTED = json.loads((GOLDENS / "gpt2-many-eos.json").read_text())
MAX_LENGTH = 128


def test_unary_and_stream_equal_the_reference(client: Client) -> None:
    for case in EXPECTED["cases"][::4]:
        prompt, limit = case["prompt_token_ids"], case["max_new_tokens"]
        whole = client.generate(prompt, model="ending", max_new_tokens=limit)
        assert list(whole.token_ids) == case["token_ids"]
        with client.stream(prompt, model="ending", max_new_tokens=limit) as stream:
            streamed = [token for delta in stream for token in delta.token_ids]
        assert streamed == case["token_ids"]
        assert stream.result.finish_reason is FinishReason[case["finish_reason"].upper()]


def test_requests_with_options_equal_the_reference_unary_and_streamed(client: Client) -> None:
    for case in EXPECTED["option_cases"][::3]:
        options = _client_options(case["options"])
        whole = client.generate(case["prompt_token_ids"], model="ending", **options)
        expected = [sequence["token_ids"] for sequence in case["sequences"]]
        assert [list(sequence.token_ids) for sequence in whole.sequences] == expected
        for sequence, right in zip(whole.sequences, case["sequences"], strict=True):
            assert sequence.finish_reason is FinishReason[right["finish_reason"].upper()]
            if "score" in right:
                assert sequence.score == pytest.approx(right["score"], rel=1e-4)
        with client.stream(case["prompt_token_ids"], model="ending", **options) as stream:
            for _ in stream:
                pass
        assert stream.result.sequences == whole.sequences


def _client_options(options: dict[str, Any]) -> GenerationOptions:
    """The options of a golden case for the client."""
    given = dict(options)
    if "early_stopping" in given:
        forms = {"heuristic": False, "first": True, "never": "never"}
        given["early_stopping"] = forms[given["early_stopping"]]
    if "bad_words_token_ids" in given:
        given["bad_words"] = given.pop("bad_words_token_ids")
    if "logit_bias" in given:
        given["logit_bias"] = dict(given["logit_bias"])
    return cast(GenerationOptions, given)


def test_a_response_reports_its_signatures_timings_and_usage(client: Client) -> None:
    result = client.generate([1, 2, 3], model="endless", max_new_tokens=20)
    prefill, *decode = result.graphs
    assert prefill.asked.shape == "prefill 1x16"
    assert prefill.served.length >= 16
    assert sum(use.calls for use in decode) >= 2
    assert result.usage.prompt_tokens == 3
    # With the native kernels, a short prompt is read in a short piece.
    assert 16 <= result.usage.padded_prompt_tokens <= prefill.calls * prefill.served.length
    assert result.usage.generated_tokens == len(result.token_ids) == 20
    timings = result.timings
    parts = (
        timings.route_seconds
        + timings.queue_seconds
        + timings.stall_seconds
        + timings.prefill_seconds
        + timings.decode_seconds
    )
    assert timings.route_seconds > 0
    assert 0 < timings.time_to_first_token_seconds < timings.total_seconds
    assert 0 < parts <= timings.total_seconds


def test_a_seed_that_the_service_chose_gives_the_same_tokens_again(client: Client) -> None:
    first = client.generate([1, 2, 3], model="endless", max_new_tokens=20, temperature=1.0)
    again = client.generate(
        [1, 2, 3], model="endless", max_new_tokens=20, temperature=1.0, seed=first.seed
    )
    other = client.generate([1, 2, 3], model="endless", max_new_tokens=20, temperature=1.0)
    assert again.token_ids == first.token_ids != other.token_ids


def test_raw_stubs_work(service: Service) -> None:
    with grpc.insecure_channel(service.address) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        response = stub.Generate(
            generation_pb2.GenerateRequest(
                model="endless",
                token_ids=generation_pb2.TokenIds(ids=[5, 6]),
                options=generation_pb2.GenerationOptions(max_new_tokens=3),
            ),
            timeout=60,
        )
    assert len(response.sequences[0].token_ids) == 3


def test_reflection_lists_and_describes_the_services(service: Service) -> None:
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(
            file_containing_symbol="shaperouter.v1.GenerationService"
        ),
    ]
    with grpc.insecure_channel(service.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        listed, described = stub.ServerReflectionInfo(iter(requests))
    names = {entry.name for entry in listed.list_services_response.service}
    assert names >= {
        "shaperouter.v1.GenerationService",
        "shaperouter.v1.ModelService",
        "shaperouter.v1.GraphService",
        "shaperouter.v1.TranscriptionService",
        "grpc.health.v1.Health",
    }
    file = descriptor_pb2.FileDescriptorProto.FromString(
        described.file_descriptor_response.file_descriptor_proto[0]
    )
    assert [method.name for method in file.service[0].method] == ["Generate", "GenerateStream"]


@pytest.mark.parametrize("name", ["", "liveness", "readiness"])
def test_health_is_serving(service: Service, name: str) -> None:
    with grpc.insecure_channel(service.address) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=name), timeout=TIMEOUT
        )
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_models_report_their_limits(client: Client) -> None:
    ending, endless = client.models()
    assert (ending.name, endless.name) == ("ending", "endless")
    assert (ending.max_length, ending.vocab_size, ending.slots) == (100, 120, 4)
    assert set(ending.default_options["eos_token_ids"]) == {0, 57, 119}
    assert ending.ready_workers == 1


def test_every_request_is_one_line_in_the_log(client: Client, service: Service) -> None:
    result = client.generate([1], model="endless", max_new_tokens=2)
    line = service.wait_for_log("request", request_id=result.request_id)
    assert (line["model"], line["code"], line["generated_tokens"]) == ("endless", "OK", 2)


def test_fifty_streams_with_cancellations_end_well_and_leave_no_slot_held(
    client: Client, service: Service
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    requests = []
    for _ in range(50):
        prompt = [rng.randrange(97) for _ in range(rng.randint(1, 60))]
        limit = rng.randint(1, MAX_LENGTH - len(prompt))
        leaves_after = rng.choice([None, None, rng.randint(1, limit)])
        requests.append((prompt, limit, leaves_after))
    received: dict[int, list[int]] = {}

    def stream(index: int) -> None:
        prompt, limit, leaves_after = requests[index]
        tokens: list[int] = []
        with client.stream(prompt, model="endless", max_new_tokens=limit) as deltas:
            for delta in deltas:
                tokens += delta.token_ids
                if leaves_after is not None and len(tokens) >= leaves_after:
                    break
        received[index] = tokens

    threads = [threading.Thread(target=stream, args=[index]) for index in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(received) == 50
    for index, (prompt, limit, _) in enumerate(requests):
        alone = client.generate(prompt, model="endless", max_new_tokens=limit)
        tokens = received[index]
        assert tokens == list(alone.token_ids[: len(tokens)])
    wait_until(lambda: service.metric("shaperouter_slots", model="endless", state="active") == 0)
    wait_until(lambda: service.metric("shaperouter_num_requests_running") == 0)
    assert service.metric("shaperouter_num_requests_waiting") == 0


@dataclass(frozen=True)
class Compiling:
    """A service that compiles all graphs, and the directory where XLA dumps them."""

    service: Service
    client: Client
    dumps: Path


@pytest.fixture(scope="module")
def compiling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiling]:
    dumps = tmp_path_factory.mktemp("dumps")
    with (
        serving(
            f"--model=tiny={GOLDENS / 'gpt2-untied'}",
            "--slots=2",
            env={"XLA_FLAGS": f"--xla_dump_to={dumps} --xla_dump_hlo_as_text"},
        ) as service,
        Client(service.address) as client,
    ):
        yield Compiling(service, client, dumps)


def test_threads_that_compile_have_a_lower_priority_than_serving_ones(compiling: Compiling) -> None:
    worker = psutil.Process(compiling.service.worker_pid())
    before = _thread_seconds(worker)
    with compiling.client.warm_graphs(["tiny decode 1x64 beams 4"]) as steps:
        for _ in steps:
            pass
    took = {
        thread: seconds - before.get(thread, 0.0)
        for thread, seconds in _thread_seconds(worker).items()
    }
    lowered = {
        thread: seconds for thread, seconds in took.items() if _nice(thread) == worker.nice() + NICE
    }
    tracing = max(seconds for thread, seconds in took.items() if thread not in lowered)
    # XLA's own threads do most of this work.
    assert sum(lowered.values()) > 0.8 * (sum(took.values()) - tracing)


def _nice(thread: int) -> int | None:
    """A thread's priority; None if it has ended."""
    try:
        return os.getpriority(os.PRIO_PROCESS, thread)
    except ProcessLookupError:
        return None


def _thread_seconds(process: psutil.Process) -> dict[int, float]:
    return {thread.id: thread.user_time + thread.system_time for thread in process.threads()}


def test_every_signature_is_compiled_once_according_to_xla(
    compiling: Compiling,
) -> None:
    """Compares the number of modules that XLA dumps with /metrics."""
    service, client = compiling.service, compiling.client
    for prompt_tokens in (1, 5, 20, 5, 1, 20, 16):
        for _ in client.warm_graphs(["tiny prefill 1x16", "tiny decode 2x64"]):
            pass
        client.generate([3] * prompt_tokens, max_new_tokens=20, temperature=0.5)
    # These, those that cover every request, and what was made before.
    made = {str(graph.signature) for graph in client.graphs() if graph.compiles}
    assert len(made) >= 4
    wait_until(lambda: service.metric("shaperouter_graphs", state="ready") == len(made))
    samples = service.metrics()
    traces = [v for (name, _), v in samples.items() if name == "shaperouter_graph_traces_total"]
    compiles = [
        value
        for (name, labels), value in samples.items()
        if name == "shaperouter_graph_compiles_total" and ("result", "compiled") in labels
    ]
    modules = list(compiling.dumps.glob("*tiny_*.before_optimizations.txt"))
    assert traces == compiles == [1] * len(made)
    assert len(modules) == len(made)
