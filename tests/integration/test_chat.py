"""Conversations with a model that has a chat template, and with one that has none."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import shaperouter_service
from harness.service import kept_compilations, serving
from harness.waiting import TIMEOUT
from shaperouter import Client, InvalidArgumentError

DEMO = Path(shaperouter_service.__file__).parent / "builtin" / "demo"
MESSAGES = [
    {"role": "user", "content": "TensorFlow is"},
    {"role": "assistant", "content": " a library"},
    {"role": "user", "content": "and"},
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Of a service with the demo model, once with a template and once without."""
    talking = shutil.copytree(DEMO, tmp_path_factory.mktemp("models") / "talking")
    (talking / "chat_template.jinja").write_text(
        "{% for message in messages %}{{ message.content }}{% endfor %}{{ ending }}"
    )
    models = (f"--model=talking={talking}", f"--model=silent={DEMO}")
    with serving(*models, env=kept_compilations()) as service, Client(service.address) as client:
        yield client


def test_a_conversation_is_answered_like_its_rendered_text(client: Client) -> None:
    arguments = {"ending": " the"}
    prompt = "TensorFlow is a libraryand the"
    expected = client.generate(prompt, model="talking", max_new_tokens=8)
    whole = client.chat(MESSAGES, model="talking", chat_template_kwargs=arguments, max_new_tokens=8)
    with client.stream_chat(
        MESSAGES, model="talking", chat_template_kwargs=arguments, max_new_tokens=8
    ) as stream:
        streamed = "".join(delta.text for delta in stream)
    assert whole.usage.prompt_tokens == expected.usage.prompt_tokens
    assert whole.text == streamed == expected.text


def test_a_model_without_a_template_says_so(client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match="model silent has no chat template"):
        client.chat(MESSAGES, model="silent")


def test_the_command_holds_a_conversation(client: Client) -> None:
    hello = "TensorFlow is"
    first = client.chat([{"role": "user", "content": hello}], model="talking", max_new_tokens=8)
    history = [
        {"role": "user", "content": hello},
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "and"},
    ]
    second = client.chat(history, model="talking", max_new_tokens=8)
    command = [Path(sys.executable).with_name("shaperouter"), "--address", client.address, "chat"]
    done = subprocess.run(
        [*command, "--model", "talking", "--max-new-tokens", "8"],
        input=f"{hello}\nand\n/exit\n",
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    assert done.stdout == f"{first.text}\n{second.text}\n"
