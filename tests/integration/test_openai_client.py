"""OpenAI's own client, unmodified, against a real service."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

import shaperouter_service
from harness.other_clients import run_with_litellm, run_with_openai
from harness.service import START_TIMEOUT, Service, kept_compilations, serving
from shaperouter import Client

DEMO = Path(shaperouter_service.__file__).parent / "builtin" / "demo"


@pytest.fixture(scope="module")
def talking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The demo model, a copy that has a chat template, and one whose template has tools, too."""
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    templates = {"talking": template, "calling": template + "{{ tools }}{# <tool_call> #}"}
    models = ["--model=demo"]
    for name, each in templates.items():
        copy = shutil.copytree(DEMO, tmp_path_factory.mktemp("models") / name)
        (copy / "chat_template.jinja").write_text(each)
        models.append(f"--model={name}={copy}")
    with serving(*models, env=kept_compilations()) as service:
        yield service


@pytest.fixture(scope="module")
def found(talking: Service) -> dict[str, Any]:
    """What the calls of `openai_calls.py` found."""
    result: dict[str, Any] = json.loads(
        run_with_openai("openai_calls.py", talking.http_url, "talking")
    )
    return result


@pytest.fixture(scope="module")
def client(talking: Service) -> Iterator[Client]:
    with Client(talking.address) as client:
        yield client


def test_models_are_listed(found: dict[str, Any]) -> None:
    assert found["blocking"]["models"] == ["calling", "demo", "talking"]


def test_texts_are_those_of_our_own_protocol(found: dict[str, Any], client: Client) -> None:
    expected = client.generate("TensorFlow is", model="demo", max_new_tokens=8, do_sample=False)
    blocking = found["blocking"]
    assert blocking["text"] == blocking["streamed"] == expected.text
    assert found["asynchronous"]["texts"] == [expected.text] * 3
    assert blocking["finish_reason"] == "length"
    assert "".join(blocking["tokens"]) == expected.text
    beams = client.generate("TensorFlow is", model="demo", max_new_tokens=8, num_beams=2)
    assert blocking["beams"] == beams.text


def test_a_seed_gives_the_same_texts_through_both_protocols(
    found: dict[str, Any], client: Client
) -> None:
    expected = client.generate(
        "TensorFlow is",
        model="demo",
        max_new_tokens=8,
        seed=7,
        do_sample=True,
        num_return_sequences=2,
    )
    assert found["blocking"]["sampled"] == [each.text for each in expected.sequences]


def test_tokens_are_counted(found: dict[str, Any]) -> None:
    usage = found["blocking"]["usage"]
    assert (usage["completion_tokens"], usage["total_tokens"]) == (8, usage["prompt_tokens"] + 8)
    assert found["blocking"]["streamed_usage"] == usage


def test_errors_are_those_of_the_clients_classes(found: dict[str, Any]) -> None:
    assert found["blocking"]["errors"] == {
        "model": ["NotFoundError", 404, None],
        "option": ["BadRequestError", 400, "temperature"],
        "stream": ["BadRequestError", 400, "top_p"],
        "chat": ["BadRequestError", 400, "messages"],
    }


def test_a_conversation_is_answered_like_its_rendered_text(
    found: dict[str, Any], client: Client
) -> None:
    expected = client.generate("Hello", model="talking", max_new_tokens=6, do_sample=False)
    chat = found["chat"]
    assert chat["content"] == chat["streamed"] == expected.text
    assert chat["role"] == "assistant"
    assert chat["top"] == [2] * 6
    assert chat["prompt_tokens"] == expected.usage.prompt_tokens


def test_answers_are_parsed_into_types(talking: Service, client: Client) -> None:
    script, models = "openai_structured.py", ("talking", "calling")
    found = json.loads(run_with_openai(script, talking.http_url, *models))
    assert found["whole"] == found["streamed"]
    assert found["whole"].keys() == {"name", "age", "mood"}
    assert found["finish_reason"] == "stop"
    assert found["anything"].startswith("{")
    assert found["chosen"] in ("rainy", "sunny")
    name, mood = found["called"]
    assert name == "remember"
    assert mood in ("glad", "sad")


def test_a_response_has_the_text_of_a_conversation(found: dict[str, Any]) -> None:
    assert found["responses"] == {
        "text": found["chat"]["content"],
        "streamed": found["chat"]["content"],
        "status": "incomplete",
        "output_tokens": 6,
    }


def test_litellm_gets_the_same_texts(talking: Service, found: dict[str, Any]) -> None:
    result = json.loads(run_with_litellm("litellm_calls.py", talking.http_url, "talking"))
    text = found["chat"]["content"]
    assert result["chat"] == {
        "whole": text,
        "streamed": text,
        "parts": text,
        "async": text,
        "tokens": 6,
    }
    whole, streamed = result["completions"]
    assert whole == streamed
    assert found["blocking"]["text"].startswith(whole)
    # The template has no place for tools.
    assert result["errors"] == [[400, True], [400, False]]


def test_a_call_of_a_tool_continues_after_a_lost_worker(talking: Service) -> None:
    texts = {"type": "string", "maxLength": 8}
    names = {"type": "array", "minItems": 16, "maxItems": 16, "items": texts}
    parameters = {
        "type": "object",
        "properties": {"names": names},
        "required": ["names"],
        "additionalProperties": False,
    }
    asked = {
        "model": "calling",
        "messages": [{"role": "user", "content": "All: "}],
        "tools": [{"type": "function", "function": {"name": "list", "parameters": parameters}}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "seed": 7,
        "temperature": 1.2,
        "max_tokens": 300,
        "stream": True,
    }

    def choices(kill: Callable[[], None] | None = None) -> list[dict[str, Any]]:
        """The pieces of the only choice, without the id of its call."""
        found: list[dict[str, Any]] = []
        url = f"{talking.http_url}/v1/chat/completions"
        with httpx.stream("POST", url, json=asked, timeout=START_TIMEOUT) as response:
            for line in response.iter_lines():
                if not line.startswith("data: {"):
                    continue
                (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                if kill and not found:
                    # The first piece comes with the first token, the call once it is whole.
                    kill()
                for call in choice["delta"].get("tool_calls", ()):
                    call.pop("id", None)
                found.append(choice)
        return found

    expected = choices()
    assert expected[-1]["finish_reason"] == "tool_calls"
    assert len(json.loads(expected[-2]["delta"]["tool_calls"][0]["function"]["arguments"])) == 1
    for found in talking.losing_worker(choices):
        assert found == expected
