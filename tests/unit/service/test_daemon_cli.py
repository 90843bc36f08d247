"""The `shaperouterd` command line."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from shaperouter_service import __version__
from shaperouter_service.cli import cli, main
from shaperouter_service.errors import EXIT_CONFIG, StartupError
from shaperouter_service.sources import ModelSource

COMMON = ["--model", "--metrics-listen", "--grace", "--log-level", "--log-format", "--config"]
ENGINE = [
    "--dtype",
    "--slots",
    "--queue-limit",
    "--compile-threads",
    "--compile-mode",
    "--warm",
    "--max-graphs",
    "--max-memory",
    "--prefill-lengths",
    "--decode-lengths",
    "--threads",
    "--hang-timeout",
    "--compile-cache",
    "--compile-cache-size",
]
PUBLIC = ["--listen", "--max-queue-seconds"]
OPTIONS = {
    "serve": [*COMMON, *PUBLIC, "--workers", *ENGINE],
    "router": [*COMMON, *PUBLIC, "--worker"],
    "worker": [*COMMON, "--listen", "--name", *ENGINE],
}
# What the command line must have besides.
NEEDED = {"serve": [], "router": ["--worker=unix:/w"], "worker": []}

Run = Callable[..., Result]


class Started:
    """The roles, which only note what they were started with."""

    def __init__(self) -> None:
        self.config: Any = None
        self.workers: Any = None
        self.logs: tuple[str, str] | None = None

    async def run(self, config: Any, workers: Any = None) -> None:
        self.config, self.workers = config, workers


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    started = Started()
    # The real one imports TensorFlow.
    worker: Any = ModuleType("shaperouter_service.roles.worker")
    worker.WorkerConfig = SimpleNamespace
    worker.run_worker = started.run
    monkeypatch.setitem(sys.modules, worker.__name__, worker)
    monkeypatch.setattr("shaperouter_service.roles.router.run_router", started.run)
    monkeypatch.setattr("shaperouter_service.roles.serve.run_serve", started.run)

    def configure_logs(*settings: str, **_: str) -> None:
        started.logs = settings[0], settings[1]

    monkeypatch.setattr(
        "shaperouter_service.commands.options.common.configure_logs", configure_logs
    )
    monkeypatch.setattr(
        "shaperouter_service.commands.options.common.parse_models",
        lambda specs: [ModelSource(name=spec, directory=Path("/models") / spec) for spec in specs],
    )
    # Set by the worker's command for TensorFlow: put back afterwards.
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    return started


@pytest.fixture
def run() -> Run:
    """Runs `shaperouterd` with arguments and variables."""

    def run(*arguments: str, **variables: str) -> Result:
        return CliRunner().invoke(cli, arguments, env=variables, catch_exceptions=False)

    return run


@pytest.fixture
def config_file(tmp_path: Path) -> Callable[[str], str]:
    """Writes a configuration file and returns the option that names it."""

    def write(text: str) -> str:
        file = tmp_path / "shaperouter.toml"
        file.write_text(text, encoding="utf-8")
        return f"--config={file}"

    return write


def test_help_names_the_roles(run: Run) -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert [role for role in OPTIONS if f"  {role} " not in result.output] == []


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("role", OPTIONS)
def test_help_of_a_role_names_every_option(run: Run, role: str, flag: str) -> None:
    result = run(role, flag)
    assert result.exit_code == 0
    assert [option for option in OPTIONS[role] if f"  {option} " not in result.output] == []


@pytest.mark.parametrize("role", OPTIONS)
def test_help_of_a_role_names_every_variable(run: Run, role: str) -> None:
    text = " ".join(run(role, "--help").output.split())
    variables = [
        "SHAPEROUTER_" + option.removeprefix("--").replace("-", "_").upper()
        for option in OPTIONS[role]
    ]
    assert [name for name in variables if f"[env var: {name}" not in text] == []


@pytest.mark.parametrize("role", OPTIONS)
def test_the_table_of_options_is_complete(role: str) -> None:
    shown = [
        option.opts[0]
        for option in cli.commands[role].params
        if not getattr(option, "hidden", False)
    ]
    assert sorted(shown) == sorted(OPTIONS[role])


@pytest.mark.parametrize("role", OPTIONS)
def test_help_tells_defaults(run: Run, role: str) -> None:
    text = " ".join(run(role, "--help").output.split())
    assert "default: 127.0.0.1:9464" in text
    assert "default: 30.0" in text


def test_version(run: Run) -> None:
    assert __version__ in run("--version").output


@pytest.mark.parametrize("role", OPTIONS)
def test_defaults(started: Started, run: Run, role: str) -> None:
    result = run(role, *NEEDED[role])
    assert result.exit_code == 0, result.output
    assert started.config.metrics_listen == "127.0.0.1:9464"
    assert started.config.grace == 30.0
    assert started.logs == ("info", "auto")


@pytest.mark.parametrize(
    ("role", "address"),
    [
        ("serve", "127.0.0.1:50051"),
        ("router", "127.0.0.1:50051"),
        ("worker", "127.0.0.1:50052"),
    ],
)
def test_default_addresses(started: Started, run: Run, role: str, address: str) -> None:
    run(role, *NEEDED[role])
    assert started.config.listen == address


def test_the_default_model_is_the_demo(started: Started, run: Run) -> None:
    run("serve")
    assert [model.name for model in started.config.models] == ["demo"]


@pytest.mark.parametrize("role", OPTIONS)
def test_the_file_gives_defaults(
    started: Started, run: Run, config_file: Callable[[str], str], role: str
) -> None:
    run(role, *NEEDED[role], config_file("grace = 5\nlog-level = 'debug'"))
    assert started.config.grace == 5
    assert started.logs == ("debug", "auto")


def test_the_environment_goes_before_the_file(
    started: Started, run: Run, config_file: Callable[[str], str]
) -> None:
    run("serve", config_file("grace = 5"), SHAPEROUTER_GRACE="6")
    assert started.config.grace == 6


def test_the_command_line_goes_before_the_environment(started: Started, run: Run) -> None:
    run("serve", "--grace=7", SHAPEROUTER_GRACE="6")
    assert started.config.grace == 7


def test_the_command_line_goes_before_the_file(
    started: Started, run: Run, config_file: Callable[[str], str]
) -> None:
    # Also where it comes first.
    run("serve", "--grace=7", config_file("grace = 5"))
    assert started.config.grace == 7


def test_the_file_may_be_named_by_a_variable(started: Started, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "shaperouter.toml"
    file.write_text("grace = 5")
    run("serve", SHAPEROUTER_CONFIG=str(file))
    assert started.config.grace == 5


def test_the_file_may_name_models(
    started: Started, run: Run, config_file: Callable[[str], str]
) -> None:
    run("serve", config_file('model = ["a", "b"]'))
    assert [model.name for model in started.config.models] == ["a", "b"]


def test_a_model_of_the_file_that_stands_in_no_list_is_refused(
    started: Started, run: Run, config_file: Callable[[str], str]
) -> None:
    result = run("serve", config_file('model = "gpt2"'))
    assert result.exit_code == 2
    assert "model must be a list" in " ".join(result.output.split())


def test_an_unknown_key_of_the_file_is_refused_by_name(
    started: Started, run: Run, config_file: Callable[[str], str]
) -> None:
    result = run("serve", config_file("graze = 5"))
    assert result.exit_code == 2
    assert "no option 'graze'" in result.output
    assert "grace" in result.output
    assert started.config is None


def test_a_key_of_another_role_is_refused(
    started: Started, run: Run, config_file: Callable[[str], str]
) -> None:
    result = run("router", *NEEDED["router"], config_file("slots = 5"))
    assert result.exit_code == 2
    assert "no option 'slots'" in result.output


def test_a_refusal_names_only_options_that_people_know(
    started: Started, run: Run, config_file: Callable[[str], str]
) -> None:
    result = run("worker", config_file("graze = 5"))
    assert "exit-with-parent" not in result.output


@pytest.mark.parametrize("text", ["grace = ", "not toml", "[grace"])
def test_a_file_that_is_not_toml_is_refused(
    started: Started, run: Run, config_file: Callable[[str], str], text: str
) -> None:
    result = run("serve", config_file(text))
    assert result.exit_code == 2
    assert "shaperouter.toml" in result.output.replace("\n", "")


def test_a_file_that_is_not_there_is_refused(started: Started, run: Run, tmp_path: Path) -> None:
    result = run("serve", f"--config={tmp_path / 'nowhere.toml'}")
    assert result.exit_code == 2
    assert "nowhere.toml" in result.output.replace("\n", "")


@pytest.mark.parametrize(
    ("key", "value"),
    [("grace", "'soon'"), ("grace", "-1"), ("slots", "0"), ("slots", "1.5"), ("log-level", "3")],
)
def test_a_bad_value_of_the_file_is_refused(
    started: Started, run: Run, config_file: Callable[[str], str], key: str, value: str
) -> None:
    result = run("serve", config_file(f"{key} = {value}"))
    assert result.exit_code == 2
    assert f"--{key}" in result.output


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
        "--log-level=loud",
        "--log-format=xml",
        "--nonsense",
    ],
)
def test_a_bad_argument_is_refused_by_name(started: Started, run: Run, argument: str) -> None:
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
                "warm: a signature is MODEL KIND ROWSxLENGTH [beams BEAMS], "
                "e.g. 'gpt2 decode 4x256', got 'a decode 64'"
            ),
        ),
    ],
)
def test_what_cannot_be_made_ahead_is_refused(
    started: Started, run: Run, arguments: list[str], message: str
) -> None:
    with pytest.raises(StartupError) as refusal:
        run("worker", "--name=w", *arguments)
    assert str(refusal.value) == message
    assert started.config is None


def test_a_worker_gets_what_it_makes_ahead(started: Started, run: Run) -> None:
    run("worker", "--name=w", "--compile-mode=warm", "--warm=a decode 4x128 beams 2")
    (signature,) = started.config.warm
    assert (signature.rows, signature.length, signature.beams) == (4, 128, 2)


def test_a_router_needs_a_worker(started: Started, run: Run) -> None:
    result = run("router")
    assert result.exit_code == 2
    assert "--worker" in result.output


def test_a_router_gets_its_workers(started: Started, run: Run) -> None:
    run("router", "--worker=unix:/a", "--worker=host:1", "--listen=unix:/r")
    assert started.workers == ("unix:/a", "host:1")
    assert started.config.listen == "unix:/r"
    assert not started.config.own_workers


def test_workers_of_serve_get_its_options(started: Started, run: Run) -> None:
    run(
        "serve",
        "--model=a",
        "--model=b",
        "--workers=3",
        "--dtype=bfloat16",
        "--slots=4",
        "--queue-limit=5",
        "--compile-threads=6",
        "--compile-mode=frozen",
        "--warm=a decode 1x64",
        "--warm=b decode 4x128 beams 2",
        "--max-graphs=20",
        "--max-memory=4000",
        "--max-queue-seconds=3",
        "--prefill-lengths=b=16,24",
        "--prefill-lengths=32",
        "--decode-lengths=64,100",
        "--threads=2",
        "--hang-timeout=8",
        "--compile-cache=/cache",
        "--compile-cache-size=1kB",
        "--grace=7",
        "--log-level=warning",
        "--log-format=json",
    )
    assert started.config.own_workers
    assert started.workers.count == 3
    assert started.workers.hang_timeout == 8
    assert started.config.max_queue_seconds == 3
    assert sorted(started.workers.arguments) == sorted(
        [
            "--model=a=/models/a",
            "--model=b=/models/b",
            "--metrics-listen=off",
            "--dtype=bfloat16",
            "--slots=4",
            "--queue-limit=5",
            "--compile-threads=6",
            "--compile-mode=frozen",
            "--warm=a decode 1x64",
            "--warm=b decode 4x128 beams 2",
            "--max-graphs=20",
            "--max-memory=4000",
            "--prefill-lengths=b=16,24",
            "--prefill-lengths=32",
            "--decode-lengths=64,100",
            "--threads=2",
            "--hang-timeout=8.0",
            "--compile-cache=/cache",
            "--compile-cache-size=1000",
            "--grace=7.0",
            "--log-level=warning",
            "--log-format=json",
            "--exit-with-parent",
        ]
    )


@pytest.mark.parametrize(("workers", "threads"), [(1, 6), (2, 3), (4, 1), (9, 1)])
def test_workers_of_serve_share_the_cores(
    started: Started, run: Run, monkeypatch: pytest.MonkeyPatch, workers: int, threads: int
) -> None:
    monkeypatch.setattr("shaperouter_service.commands.serve.usable_cores", lambda: 6)
    run("serve", f"--workers={workers}")
    assert f"--threads={threads}" in started.workers.arguments


@pytest.mark.parametrize(
    ("gpus", "workers"), [("", 1), ("0", 1), ("1,3", 2), ("GPU-a, GPU-b,GPU-c", 3), ("0,-1,2", 1)]
)
def test_automatic_workers_are_as_many_as_the_gpus(
    started: Started, run: Run, gpus: str, workers: int
) -> None:
    run("serve", "--workers=auto", CUDA_VISIBLE_DEVICES=gpus)
    assert started.workers.count == workers


def test_each_worker_of_serve_sees_a_gpu_of_its_own(started: Started, run: Run) -> None:
    run("serve", "--workers=3", CUDA_VISIBLE_DEVICES="2,5")
    seen = [started.workers.environment(index) for index in range(3)]
    assert [variables["CUDA_VISIBLE_DEVICES"] for variables in seen] == ["2", "5", "2"]


def test_workers_on_a_cpu_get_no_variables(started: Started, run: Run) -> None:
    run("serve", "--workers=2", CUDA_VISIBLE_DEVICES="")
    assert started.workers.environment(1) == {}


def test_a_worker_alone_takes_all_cores(started: Started, run: Run) -> None:
    run("worker", "--name=w")
    assert started.config.threads is None


def test_a_worker_takes_what_serve_gives_it(started: Started, run: Run) -> None:
    run("serve", "--slots=4", "--dtype=float32")
    arguments = started.workers.arguments
    result = run("worker", "--name=worker-2", "--listen=unix:/w", *arguments)
    assert result.exit_code == 0, result.output
    config = started.config
    assert (config.name, config.listen, config.slots) == ("worker-2", "unix:/w", 4)
    assert config.dtype == "float32"
    assert config.metrics_listen is None
    assert config.exit_with_parent
    assert not config.successor


def test_a_successor_is_a_worker_that_is_told_so(started: Started, run: Run) -> None:
    run("worker", "--name=w", "--successor")
    assert started.config.successor
    assert "successor" not in run("worker", "--help").output


def test_lengths_are_of_the_model_they_name_and_of_all_others_where_they_name_none(
    started: Started, run: Run
) -> None:
    models = ["--model=a", "--model=b", "--model=c"]
    run("worker", *models, "--prefill-lengths=b=16,24", "--prefill-lengths=32,48")
    assert started.config.prefill_lengths == {"a": (32, 48), "b": (16, 24), "c": (32, 48)}


def test_a_model_without_chosen_lengths_has_the_usual_ones(started: Started, run: Run) -> None:
    run("worker", "--model=a", "--model=b", "--decode-lengths=b=64,256")
    assert started.config.prefill_lengths == {}
    assert started.config.decode_lengths == {"b": (64, 256)}


def test_the_file_may_choose_lengths(
    started: Started, run: Run, config_file: Callable[[str], str]
) -> None:
    run("worker", config_file('prefill-lengths = ["demo=16,24"]\ndecode-lengths = ["64,128"]'))
    assert started.config.prefill_lengths == {"demo": (16, 24)}
    assert started.config.decode_lengths == {"demo": (64, 128)}


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize(
    ("role", "option"), [("serve", "--prefill-lengths"), ("worker", "--decode-lengths")]
)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["demo=16", "demo=24"], r"demo must have lengths once, got \(16,\) and \(24,\)"),
        (["16", "24"], "all models must have lengths once"),
        (["gpt2=16"], "no model 'gpt2'; there are demo"),
    ],
)
def test_lengths_that_no_model_can_have_are_refused_by_name(
    run: Run, role: str, option: str, given: list[str], message: str
) -> None:
    with pytest.raises(StartupError, match=f"{option.removeprefix('--')}: .*{message}"):
        run(role, *(f"{option}={lengths}" for lengths in given))


def test_a_worker_with_a_compile_cache_has_tensorflow_leave_executables_in_memory(
    started: Started, run: Run
) -> None:
    run("worker", "--compile-cache=/cache", "--compile-cache-size=5MB")
    assert started.config.compile_cache == Path("/cache")
    assert started.config.compile_cache_size == 5_000_000
    assert "ram://" in os.environ["TF_XLA_FLAGS"]


def test_the_flags_of_the_user_stay(
    started: Started, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_clustering_debug")
    for _ in range(2):
        run("worker", "--compile-cache=/cache")
    assert os.environ["TF_XLA_FLAGS"].split()[0] == "--tf_xla_clustering_debug"
    assert len(os.environ["TF_XLA_FLAGS"].split()) == 2


def test_a_worker_without_a_compile_cache_leaves_nothing(started: Started, run: Run) -> None:
    run("worker", "--compile-cache=off")
    assert started.config.compile_cache is None
    assert os.environ["TF_XLA_FLAGS"] == ""


def test_a_startup_error_is_one_line_and_the_exit_code_of_configurations(
    started: Started, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Any) -> None:
        raise StartupError("model: no directory 'x'")

    monkeypatch.setattr("shaperouter_service.commands.options.common.parse_models", fail)
    monkeypatch.setattr(sys, "argv", ["shaperouterd", "serve"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == EXIT_CONFIG == 78
    assert capsys.readouterr().err == "shaperouterd: model: no directory 'x'\n"


def test_a_worker_without_tensorflow_says_what_to_install(
    started: Started, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "shaperouter_service.roles.worker")

    class NoTensorFlow:
        """Refuses to find TensorFlow."""

        def find_spec(self, name: str, *_: Any) -> None:
            if name in ("tensorflow", "shaperouter_service.roles.worker"):
                raise ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow")

    monkeypatch.setattr(sys, "meta_path", [NoTensorFlow(), *sys.meta_path])
    with pytest.raises(StartupError, match=r"tensorflow .*shaperouter-service\[worker\]"):
        run("worker")


def test_the_router_imports_no_tensorflow() -> None:
    code = (
        "import sys, shaperouter_service.cli, shaperouter_service.roles.router\n"
        "print([name for name in ('tensorflow', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
