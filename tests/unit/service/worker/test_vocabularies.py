"""Tokenizers in a worker that lacks file descriptors or memory."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from shaperouter_service.errors import ExhaustedError, InvalidRequestError, StartupError
from shaperouter_service.worker import vocabularies
from shaperouter_service.worker.vocabularies import Vocabularies

NO_DESCRIPTOR = OSError(errno.EMFILE, "Too many open files")
BROKEN = ImportError("cannot import name 'WeakFileLock' from 'huggingface_hub.utils'")


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The signals that this process sends to itself."""
    sent: list[Any] = []
    monkeypatch.setattr(os, "kill", lambda *sending: sent.append(sending))
    return sent


def failing(monkeypatch: pytest.MonkeyPatch, *errors: BaseException) -> None:
    """Lets successive loads of a tokenizer fail."""
    left = list(errors)

    def load(directory: Path) -> None:
        raise left.pop(0)

    monkeypatch.setattr(vocabularies, "load_tokenizer", load)


def constrain(loading: Vocabularies) -> None:
    loading.constraint("demo", 10, "", eos_token_ids=[0], generated=[])


def damaged(cause: BaseException) -> StartupError:
    error = StartupError("cannot load the tokenizer")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("error", [NO_DESCRIPTOR, damaged(NO_DESCRIPTOR)])
def test_a_lack_of_descriptors_is_no_error_of_the_request(
    monkeypatch: pytest.MonkeyPatch, signals: list[Any], error: Exception
) -> None:
    failing(monkeypatch, error)
    with pytest.raises(ExhaustedError, match="file descriptors"):
        constrain(Vocabularies({"demo": Path("demo")}))
    assert not signals


@pytest.mark.parametrize("error", [BROKEN, damaged(BROKEN)])
def test_a_worker_that_an_interrupted_import_left_broken_stops(
    monkeypatch: pytest.MonkeyPatch, signals: list[Any], error: Exception
) -> None:
    failing(monkeypatch, NO_DESCRIPTOR, error)
    loading = Vocabularies({"demo": Path("demo")})
    for _ in range(2):
        with pytest.raises(ExhaustedError, match="file descriptors"):
            constrain(loading)
    assert signals == [(os.getpid(), signal.SIGTERM)]


@pytest.mark.parametrize(
    ("error", "raised"), [(BROKEN, ImportError), (damaged(ValueError()), InvalidRequestError)]
)
def test_other_failures_stop_no_worker(
    monkeypatch: pytest.MonkeyPatch,
    signals: list[Any],
    error: Exception,
    raised: type[Exception],
) -> None:
    failing(monkeypatch, error)
    with pytest.raises(raised):
        constrain(Vocabularies({"demo": Path("demo")}))
    assert not signals
