"""Requests to a name whose revisions change."""

import json
import shutil
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from harness.service import START_TIMEOUT, Service
from harness.waiting import wait_until
from shaperouter import Client, ShaperouterError

# Prompts of several lengths, so that several graphs serve.
PROMPTS = ("The", "Once upon a time", "The little dog was happy because " * 3)
NEW_TOKENS = 6


def make_revision(model: Path, target: Path, *, seed: int) -> None:
    """Copies a checkpoint with other weights, so that it answers with other tokens."""
    shutil.copytree(model, target)
    random = np.random.default_rng(seed)
    for path in target.glob("*.safetensors"):
        weights = load_file(path)
        for name, weight in weights.items():
            if weight.dtype.kind == "f":
                noise = random.normal(0, 0.2, weight.shape)
                weights[name] = (weight + noise).astype(weight.dtype)
        save_file(weights, path, metadata={"format": "pt"})


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One request and its answer.

    Attributes:
        model: The model.
        prompt: The prompt.
        text: The text; None if it failed.
        error: Why it failed.
        began: When it was sent, on the monotonic clock.
        ended: When it was answered.
    """

    model: str
    prompt: str
    text: str | None
    error: str
    began: float
    ended: float


class Traffic:
    """Threads that send requests to models by turns, over gRPC and over HTTP.

    Attributes:
        answers: The answers so far.
    """

    def __init__(self, service: Service, *models: str, callers: int) -> None:
        self.answers: list[Answer] = []
        self._service, self._models = service, models
        self._ends = threading.Event()
        ways = (self._over_grpc, self._over_http)
        self._threads = [
            threading.Thread(target=ways[index % len(ways)], args=[index], daemon=True)
            for index in range(callers)
        ]

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Sends requests inside the context, and waits for their answers at its end."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._ends.set()
            for thread in self._threads:
                thread.join()

    def wait_for(self, count: int) -> None:
        """Waits until there are so many more answers."""
        until = len(self.answers) + count
        wait_until(lambda: len(self.answers) >= until, timeout=600)

    def _over_grpc(self, index: int) -> None:
        with Client(self._service.address, timeout=START_TIMEOUT) as client:
            self._ask(
                index,
                lambda model, prompt: (
                    client.generate(prompt, model=model, max_new_tokens=NEW_TOKENS).text
                ),
            )

    def _over_http(self, index: int) -> None:
        self._ask(index, lambda model, prompt: complete(self._service, model, prompt))

    def _ask(self, index: int, ask: Callable[[str, str], str]) -> None:
        while not self._ends.is_set():
            model, prompt = self._models[index % len(self._models)], PROMPTS[index % len(PROMPTS)]
            index += 1
            began, text, error = time.monotonic(), None, ""
            try:
                text = ask(model, prompt)
            except (ShaperouterError, OSError) as failure:
                error = f"{type(failure).__name__}: {failure}"
            self.answers.append(
                Answer(
                    model=model,
                    prompt=prompt,
                    text=text,
                    error=error,
                    began=began,
                    ended=time.monotonic(),
                )
            )


def complete(service: Service, model: str, prompt: str) -> str:
    """Completes a prompt over OpenAI's API."""
    body = {"model": model, "prompt": prompt, "max_tokens": NEW_TOKENS, "temperature": 0}
    request = urllib.request.Request(
        f"{service.http_url}/v1/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=START_TIMEOUT) as response:
        text: str = json.load(response)["choices"][0]["text"]
        return text


class Switches:
    """The revisions of a name over time, and what each answers.

    Attributes:
        texts: The texts of each revision, by prompt.
    """

    def __init__(self, client: Client, model: str) -> None:
        self.texts: list[dict[str, str]] = []
        self._client, self._model = client, model
        # For each revision, when it may first answer, and when it may last begin to.
        self._from: list[float] = []
        self._until: list[float] = []
        self.learn()

    def load(self, location: str, *, canary: Callable[[], None] = lambda: None) -> None:
        """Loads another revision, which is a canary while `canary` runs."""
        began = time.monotonic()
        self._client.load_model(self._model, location, share=0.25)
        canary()
        self._client.load_model(self._model, location)
        self._until.append(time.monotonic())
        self.learn(since=began)

    def learn(self, *, since: float = 0.0) -> None:
        """Notes what the present revision answers."""
        self._from.append(since)
        self.texts.append(
            {
                prompt: self._client.generate(
                    prompt, model=self._model, max_new_tokens=NEW_TOKENS
                ).text
                for prompt in PROMPTS
            }
        )

    def wrong(self, answers: Sequence[Answer]) -> list[Answer]:
        """The answers of the name that failed, or that no revision of their time gives."""
        spans = list(zip(self.texts, self._from, [*self._until, float("inf")], strict=True))

        def is_right(answer: Answer) -> bool:
            return any(
                answer.text == texts[answer.prompt]
                and first <= answer.ended
                and answer.began <= last
                for texts, first, last in spans
            )

        return [
            answer for answer in answers if answer.model == self._model and not is_right(answer)
        ]
