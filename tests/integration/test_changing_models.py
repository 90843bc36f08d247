"""Models are loaded and unloaded while requests run; none fails or mixes two revisions."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.changing_models import NEW_TOKENS, PROMPTS, Switches, Traffic, complete, make_revision
from harness.service import (
    GOLDENS,
    Service,
    kept_compilations,
    process_exists,
    serving,
)
from harness.waiting import wait_until
from shaperouter import Client, InvalidArgumentError, ModelNotFoundError, ShaperouterError

DEMO = Path(__file__).parents[2] / "service" / "shaperouter_service" / "builtin" / "demo"
CALLERS = 6
# Answers between two changes, more than a dozen from each caller.
ANSWERS = 100
# Memory for one of the models of the repository, but not for two.
ONE_MODEL = "30MB"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three revisions of a model, one that cannot be loaded, and a text encoder."""
    directory = tmp_path_factory.mktemp("repository")
    for seed, name in enumerate(("first", "second", "third")):
        make_revision(DEMO, directory / name, seed=seed)
    shutil.copytree(DEMO, directory / "broken")
    (directory / "broken" / "config.json").write_text('{"model_type": "unheard-of"}')
    shutil.copytree(GOLDENS / "bert-embedder", directory / "embedder")
    return directory


@pytest.fixture(scope="module")
def service(repository: Path) -> Iterator[Service]:
    with serving(
        f"--model=demo={repository / 'first'}",
        f"--model-repository={repository}",
        f"--on-demand-memory={ONE_MODEL}",
        "--workers=2",
        env=kept_compilations(),
    ) as service:
        yield service


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[Client]:
    with Client(service.address) as client:
        yield client


def test_no_request_fails_while_revisions_change_and_workers_die(
    service: Service, client: Client
) -> None:
    switches = Switches(client, "demo")
    traffic = Traffic(service, "demo", callers=CALLERS)
    with traffic.flowing():
        traffic.wait_for(ANSWERS)
        switches.load("second", canary=lambda: traffic.wait_for(ANSWERS))
        traffic.wait_for(ANSWERS)
        os.kill(service.worker_pid(), signal.SIGKILL)
        service.wait_for_log("worker started", count=3)
        traffic.wait_for(ANSWERS)
        client.load_model("other", "third")
        switches.load("third")
        traffic.wait_for(ANSWERS)
        client.unload_model("other")
        switches.load("first")
        traffic.wait_for(ANSWERS)
    assert len({str(texts) for texts in switches.texts}) == 3
    assert switches.wrong(traffic.answers) == []


def test_a_generation_ends_on_the_revision_that_began_it(client: Client) -> None:
    client.load_model("demo", "first")
    expected = client.generate(PROMPTS[0], model="demo", max_new_tokens=200, eos_token_ids=[])
    with client.stream(PROMPTS[0], model="demo", max_new_tokens=200, eos_token_ids=[]) as stream:
        text = next(iter(stream)).text
        client.load_model("demo", "second")
        text += "".join(token.text for token in stream)
    assert text == expected.text
    after = client.generate(PROMPTS[0], model="demo", max_new_tokens=200, eos_token_ids=[])
    assert after.text != expected.text


def test_a_revision_that_does_not_load_leaves_the_old_one_serving(
    client: Client, service: Service
) -> None:
    before = client.load_model("demo", "first")
    with pytest.raises(ShaperouterError, match=r"model_type must be one of.*'unheard-of'"):
        client.load_model("demo", "broken")
    with pytest.raises(InvalidArgumentError, match="'missing' is not in the model repository"):
        client.load_model("demo", "missing")
    with pytest.raises(InvalidArgumentError, match="must be a path below the model repository"):
        client.load_model("demo", "../first")
    assert client.model("demo").revision == before.revision
    assert complete(service, "demo", PROMPTS[0])


def test_a_worker_that_restarts_gets_the_models_that_were_loaded(
    client: Client, service: Service
) -> None:
    client.load_model("demo", "second")
    expected = client.generate(PROMPTS[0], model="demo", max_new_tokens=NEW_TOKENS).text
    ready = len(service.events("revision ready"))
    for pid in {int(line["pid"]) for line in service.events("worker started")}:
        if process_exists(pid):
            os.kill(pid, signal.SIGKILL)
    service.wait_for_log("revision ready", count=ready + 2)
    wait_until(lambda: client.model("demo").ready_workers == 2)
    assert client.generate(PROMPTS[0], model="demo", max_new_tokens=NEW_TOKENS).text == expected
    told = service.events("the files of --model are not served")
    assert ("demo", "second") in {(line["model"], *line["served"]) for line in told}


def test_a_canary_answers_its_share_and_dies_without_a_lost_request(
    client: Client, service: Service
) -> None:
    before = client.load_model("demo", "first").revision
    canary = client.load_model("demo", "second", share=0.5)
    assert set(canary.targets.values()) == {0.5}
    answers = [client.generate(PROMPTS[0], model="demo", max_new_tokens=2) for _ in range(40)]
    assert len({answer.revision for answer in answers}) == 2
    texts = {answer.revision: answer.text for answer in answers}
    assert all(answer.text == texts[answer.revision] for answer in answers)
    os.kill(service.worker_pid(), signal.SIGKILL)
    answers = [client.generate(PROMPTS[0], model="demo", max_new_tokens=2) for _ in range(40)]
    assert all(answer.text == texts[answer.revision] for answer in answers)
    assert client.load_model("demo", "first").revision == before


def test_requests_load_the_models_that_they_name_while_there_is_memory(
    client: Client, service: Service
) -> None:
    ends = [
        client.generate(PROMPTS[0], model=name, max_new_tokens=NEW_TOKENS)
        for name in ("second", "third", "second")
    ]
    assert [end.model for end in ends] == ["second", "third", "second"]
    assert ends[0].text == ends[2].text != ends[1].text
    assert [line["model"] for line in service.events("idle model unloaded")] == ["second", "third"]
    client.unload_model("second")


def test_models_of_other_kinds_come_and_go(client: Client, service: Service) -> None:
    freed = len(service.events("revision freed"))
    client.load_model("embedder")
    assert [model.name for model in client.models()] == ["demo", "embedder"]
    # A worker that another test has killed gets it a little later.
    wait_until(lambda: client.model("embedder").ready_workers == 2)
    # It has no tokenizer.
    client.infer("embedder", {"input_ids": [[1, 2, 3]], "attention_mask": [[1, 1, 1]]})
    client.unload_model("embedder")
    with pytest.raises(ModelNotFoundError):
        client.infer("embedder", {"input_ids": [[1, 2, 3]], "attention_mask": [[1, 1, 1]]})
    service.wait_for_log("revision freed", count=freed + 2)
