"""`shaperouterd check` finds what would keep `serve` from starting, all of it at once."""

import json
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import tensorflow as tf
from click.testing import CliRunner, Result

from harness.engine import GOLDENS
from harness.functions import TestFunction
from shaperouter_service.commands.group import cli
from shaperouter_service.errors import StartupError
from shaperouter_service.rpc.unix_sockets import claimed
from shaperouter_service.system.process import EXIT_CONFIG
from shaperouter_service.worker.memory_need import Need


def check(*arguments: str) -> Result:
    ports = ("--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--compile-cache=off")
    return CliRunner().invoke(cli, ["check", *ports, *arguments])


def line(result: Result, subject: str) -> tuple[str, str]:
    """The verdict and message about a subject."""
    for text in result.output.splitlines():
        verdict, _, rest = text.partition(" ")
        if rest.strip().startswith(f"{subject}  "):
            return verdict, rest.strip().removeprefix(subject).strip()
    raise AssertionError(result.output)


def test_a_setup_that_starts() -> None:
    result = check("--model=demo", f"--model=speech={GOLDENS / 'whisper-uneven'}")
    assert result.exit_code == 0, result.output
    assert "error" not in result.output
    assert line(result, "model demo")[1].startswith("gpt2, 5,387,776 parameters")
    assert "no tokenizer" in line(result, "model speech")[1]


def test_functions_and_encoders_are_checked_as_workers_load_them(tmp_path: Path) -> None:
    sums = TestFunction(
        call=lambda x: {"y": tf.reduce_mean(x, axis=1)}, inputs={"x": ([None, None], tf.float32)}
    )
    broken = Path(shutil.copytree(GOLDENS / "bert-embedder", tmp_path / "broken"))
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"hidden_act": "mish"}))
    result = check(
        f"--model=function={sums.save(tmp_path / 'function')}",
        f"--model=encoder={GOLDENS / 'bert-embedder'}",
        f"--model=broken={broken}",
    )
    assert result.exit_code == EXIT_CONFIG
    assert "padding changes answers along" in result.output
    verdict, message = line(result, "model encoder")
    assert verdict == "ok"
    assert message.startswith("bert, 24,712 parameters")
    verdict, message = line(result, "model broken")
    assert verdict == "error"
    assert "hidden_act must be one of" in message


@pytest.mark.usefixtures("native_kernels")
def test_a_draft_model_is_checked_as_workers_load_it() -> None:
    result = check("--model=demo", f"--draft=demo={GOLDENS / 'gpt2-untied'}")
    assert result.exit_code == EXIT_CONFIG
    verdict, message = line(result, "model demo")
    assert verdict == "error"
    assert "takes 128, so use --max-length 128" in message


def test_a_draft_for_a_model_that_generates_nothing_is_an_error() -> None:
    encoder = GOLDENS / "bert-embedder"
    result = check(f"--model=encoder={encoder}", f"--draft=encoder={GOLDENS / 'gpt2-untied'}")
    assert result.exit_code == EXIT_CONFIG
    verdict, message = line(result, "model encoder")
    assert verdict == "error"
    assert "needs a model that generates tokens, but this is a text encoder" in message


def test_models_that_fit_only_alone_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[str]] = []

    def require(needs: Mapping[str, Need], *_: object, **__: object) -> None:
        seen.append(set(needs))
        if len(needs) > 1:
            raise StartupError("memory: these models do not fit together")

    monkeypatch.setattr("shaperouter_service.worker.memory_need.require_memory", require)
    result = check("--model=demo", f"--model=tiny={GOLDENS / 'gpt2-untied'}")
    assert seen == [{"demo"}, {"demo", "tiny"}]
    assert line(result, "model demo")[0] == "ok"
    assert line(result, "model tiny") == ("error", "memory: these models do not fit together")


def test_functions_and_encoders_that_do_not_fit_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubled = TestFunction(call=lambda x: {"y": 2 * x}, inputs={"x": ([None], tf.float32)})
    monkeypatch.setattr("shaperouter_service.worker.memory_need.device_memory_left", lambda: 0)
    result = check(
        f"--model=function={doubled.save(tmp_path / 'function')}",
        f"--model=encoder={GOLDENS / 'bert-embedder'}",
    )
    assert result.exit_code == EXIT_CONFIG
    for name in ("function", "encoder"):
        verdict, message = line(result, f"model {name}")
        assert verdict == "error"
        assert "needs about" in message


def test_every_problem_is_reported(tmp_path: Path) -> None:
    broken = Path(shutil.copytree(GOLDENS / "gpt2-odd-heads", tmp_path / "broken"))
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"n_layer": 3}))
    tokens = tmp_path / "tokens.toml"
    tokens.write_text("[clients.a]\n")
    result = check(
        f"--model=broken={broken}",
        "--model=missing=/nowhere",
        "--model=demo",
        f"--tokens={tokens}",
        "--health-listen=nowhere",
        "--http-listen=elsewhere",
    )
    assert result.exit_code == EXIT_CONFIG
    subjects = "tokens", "health-listen", "http-listen"
    found = {subject: line(result, subject) for subject in subjects}
    assert {verdict for verdict, _ in found.values()} == {"error"}
    assert "must be HOST:PORT" in found["health-listen"][1]
    assert "tensor transformer.h.2" in line(result, "model broken")[1]
    assert line(result, "model missing") == ("error", "model: '/nowhere' is not a directory")
    assert line(result, "model demo")[0] == "ok"


def test_unusable_settings_of_transcripts_are_told(tmp_path: Path) -> None:
    broken = Path(shutil.copytree(GOLDENS / "whisper-uneven", tmp_path / "broken"))
    config = json.loads((broken / "generation_config.json").read_text())
    changed = json.dumps(config | {"alignment_heads": [[99, 0]]})
    (broken / "generation_config.json").write_text(changed)
    result = check(f"--model=speech={broken}")
    assert result.exit_code == EXIT_CONFIG
    assert "alignment_heads must have pairs" in line(result, "model speech")[1]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--warm=demo decode 3x100", "is not a signature of the ladders"),
        ("--max-graphs=1", "max-graphs: must be at least"),
    ],
)
def test_impossible_graphs_are_reported(argument: str, message: str) -> None:
    result = check("--model=demo", argument, "--compile-mode=warm")
    assert result.exit_code == EXIT_CONFIG
    verdict, told = line(result, "graphs")
    assert verdict == "error"
    assert message in told


def test_impossible_lengths_are_reported() -> None:
    result = check("--model=demo", "--prefill-lengths=demo=4096")
    assert result.exit_code == EXIT_CONFIG
    assert "4096" in line(result, "model demo")[1]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--alias=chat=other", "alias: chat needs --model other"),
        ("--on-demand-memory=1GB", "on-demand-memory: needs model-repository"),
    ],
)
def test_options_of_models_that_do_not_fit_together_are_refused(
    argument: str, message: str
) -> None:
    result = check("--model=demo", argument)
    assert isinstance(result.exception, StartupError)
    assert message in str(result.exception)


def test_a_port_in_use_is_a_warning() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = check("--model=demo", f"--listen={address}")
    assert result.exit_code == 0, result.output
    assert line(result, "listen") == ("warning", f"{address} is in use now")


def test_an_address_of_two_options_is_an_error() -> None:
    result = check("--listen=127.0.0.1:8123", "--http-listen=127.0.0.1:8123")
    assert result.exit_code == EXIT_CONFIG
    assert line(result, "listen") == ("error", "127.0.0.1:8123 is the address of http-listen, too")


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A directory whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_a_unix_socket_is_checked(sockets: Path) -> None:
    nowhere, free = sockets / "no" / "socket", sockets / "free"
    result = check(f"--listen=unix:{nowhere}", f"--http-listen=unix:{free}")
    assert result.exit_code == EXIT_CONFIG
    verdict, message = line(result, "listen")
    assert verdict == "error"
    assert message.endswith(f"unix:{nowhere}: No such file or directory")
    assert line(result, "http-listen") == ("ok", f"unix:{free}")
    with claimed(f"unix:{free}"):
        assert line(check(f"--listen=unix:{free}"), "listen")[0] == "warning"


def test_a_model_that_is_given_twice_is_an_error() -> None:
    result = check("--model=demo", "--model=demo")
    assert result.exit_code == EXIT_CONFIG
    assert "it is given twice" in result.output


def test_a_host_without_an_address_is_reported_with_the_resolvers_message() -> None:
    result = check("--model=demo", "--listen=host.invalid:50051")
    assert result.exit_code == EXIT_CONFIG
    verdict, told = line(result, "listen")
    assert verdict == "error"
    assert told.startswith("cannot listen on host.invalid:50051: ")
    assert "Unknown error" not in told


def test_unused_tensors_are_a_warning(tmp_path: Path) -> None:
    # Saved with another head: its config names no architecture, so its tensors decide.
    directory = Path(shutil.copytree(GOLDENS / "t5-gated", tmp_path / "model"))
    config = json.loads((directory / "config.json").read_text())
    del config["architectures"]
    (directory / "config.json").write_text(json.dumps(config | {"num_decoder_layers": 1}))
    result = check(f"--model=m={directory}")
    assert result.exit_code == 0, result.output
    assert "tensors of the checkpoint are not used" in result.output
