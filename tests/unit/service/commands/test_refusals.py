"""Arguments that make no sense are refused by name, before anything starts."""

import signal
import sys
from typing import Any

import pytest

from harness.roles import Run, Started
from shaperouter_service.cli import main
from shaperouter_service.errors import StartupError
from shaperouter_service.system.process import EXIT_CONFIG


@pytest.mark.parametrize(
    "argument",
    [
        "--grace=-1",
        "--grace=soon",
        "--dtype=float16",
        "--slots=0",
        "--slots=257",
        "--queue-limit=0",
        "--compile-threads=0",
        "--compile-mode=eager",
        "--max-graphs=0",
        "--max-memory=much",
        "--max-queue-seconds=-1",
        "--prefill-lengths=",
        "--prefill-lengths=short",
        "--prefill-lengths=24,16",
        "--prefill-lengths=20,24",
        "--decode-lengths=0,8",
        "--decode-lengths=demo=64,",
        "--threads=0",
        "--hang-timeout=0.5",
        "--compile-cache-size=much",
        "--workers=0",
        "--workers=all",
        "--workers=65",
        "--idle-unload=0",
        "--on-demand-memory=much",
        "--alias=chat",
        "--alias=a/b=demo",
        "--alias=chat=demo:90",
        "--alias=chat=demo:all",
        "--log-level=loud",
        "--log-format=xml",
        "--nonsense",
    ],
)
def test_a_refused_argument_names_the_option(started: Started, run: Run, argument: str) -> None:
    result = run("serve", argument)
    assert result.exit_code == 2
    assert argument.partition("=")[0] in result.output
    assert started.config is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--warm=a decode 1x64"], "warm: needs compile-mode warm or frozen, got lazy"),
        (
            ["--compile-mode=warm", "--warm=a decode 64"],
            (
                "warm: a signature is MODEL KIND ROWSxLENGTH[xSIZE…] [exact SIZE…] "
                "[beams BEAMS], e.g. 'gpt2 decode 4x256', got 'a decode 64'"
            ),
        ),
    ],
)
def test_a_graph_that_cannot_be_warmed_is_refused(
    started: Started, run: Run, arguments: list[str], message: str
) -> None:
    with pytest.raises(StartupError) as refusal:
        run("worker", "--name=w", *arguments)
    assert str(refusal.value) == message
    assert started.config is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--idle-unload=60"], "idle-unload: needs on-demand-memory"),
        (["--on-demand-memory=8GB"], "on-demand-memory: needs model-repository"),
        (["--alias=demo=demo"], "alias: demo is the name of a model"),
        (["--alias=chat=new"], "alias: chat needs --model new; there is demo"),
        (["--alias=chat=demo", "--alias=chat=demo"], "alias: chat is given twice"),
    ],
)
def test_names_and_memory_that_lack_something_are_refused(
    started: Started, run: Run, arguments: list[str], message: str
) -> None:
    with pytest.raises(StartupError) as refusal:
        run("serve", *arguments)
    assert str(refusal.value) == message
    assert started.config is None


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize(
    ("role", "option"),
    [
        ("serve", "--prefill-lengths"),
        ("worker", "--decode-lengths"),
        ("worker", "--encode-lengths"),
    ],
)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["demo=16", "demo=24"], r"demo must have one list of lengths, got \(16,\) and \(24,\)"),
        (["16", "24"], "all models must have one list of lengths"),
        (["gpt2=16"], "unknown model 'gpt2'; served models: demo"),
    ],
)
def test_lengths_for_an_unknown_model_are_refused(
    run: Run, role: str, option: str, given: list[str], message: str
) -> None:
    with pytest.raises(StartupError, match=f"{option.removeprefix('--')}: .*{message}"):
        run(role, *(f"{option}={lengths}" for lengths in given))


def test_a_startup_error_is_one_line_and_exit_code_78(
    started: Started, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Any) -> None:
        raise StartupError("model: 'x' is not a directory")

    monkeypatch.setattr("shaperouter_service.commands.options.common.parse_models", fail)
    monkeypatch.setattr(sys, "argv", ["shaperouterd", "serve", "--log-format=console"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == EXIT_CONFIG == 78
    assert capsys.readouterr().err == "shaperouterd: model: 'x' is not a directory\n"
