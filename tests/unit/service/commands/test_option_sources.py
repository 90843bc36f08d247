"""Where options come from: defaults, a file, the environment, the command line, in this order."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.roles import NEEDED, Run, Started
from shaperouter_service.errors import StartupError


@pytest.mark.parametrize("role", NEEDED)
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


@pytest.mark.parametrize("role", NEEDED)
def test_the_file_sets_defaults(
    started: Started, run: Run, config_file: Callable[[str], str], role: str
) -> None:
    run(role, *NEEDED[role], config_file("grace = 5\nlog-level = 'debug'"))
    assert started.config.grace == 5
    assert started.logs == ("debug", "auto")


def test_the_environment_overrides_the_file(
    started: Started, run: Run, config_file: Callable[[str], str]
) -> None:
    run("serve", config_file("grace = 5"), SHAPEROUTER_GRACE="6")
    assert started.config.grace == 6


def test_the_command_line_overrides_the_environment(started: Started, run: Run) -> None:
    run("serve", "--grace=7", SHAPEROUTER_GRACE="6")
    assert started.config.grace == 7


def test_the_command_line_overrides_the_file(
    started: Started, run: Run, config_file: Callable[[str], str]
) -> None:
    # Also where it comes first.
    run("serve", "--grace=7", config_file("grace = 5"))
    assert started.config.grace == 7


def test_a_variable_can_name_the_file(started: Started, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "shaperouter.toml"
    file.write_text("grace = 5")
    run("serve", SHAPEROUTER_CONFIG=str(file))
    assert started.config.grace == 5


def test_the_file_can_name_models(
    started: Started, run: Run, config_file: Callable[[str], str]
) -> None:
    run("serve", config_file('model = ["a", "b"]'))
    assert [model.name for model in started.config.models] == ["a", "b"]


@pytest.mark.parametrize("content", ["model = []", 'model = [""]'])
def test_a_service_may_start_without_models_if_it_can_load_them(
    started: Started,
    run: Run,
    config_file: Callable[[str], str],
    tmp_path: Path,
    content: str,
) -> None:
    with pytest.raises(StartupError, match="model: must name a model, unless"):
        run("serve", config_file(content))
    run("serve", config_file(f'{content}\nmodel-repository = "{tmp_path}"'))
    assert started.config.models == []
    # Its workers would else begin with their own default.
    run("worker", "--listen=unix:/w", *started.workers.arguments)
    assert started.config.engine.models == {}


def test_models_of_the_file_must_be_a_list(
    started: Started, run: Run, config_file: Callable[[str], str]
) -> None:
    result = run("serve", config_file('model = "gpt2"'))
    assert result.exit_code == 2
    assert "model must be a list" in " ".join(result.output.split())


def test_unknown_keys_are_refused_with_the_nearest_names(
    started: Started, run: Run, config_file: Callable[[str], str]
) -> None:
    option = config_file("graze = 5\nmax_graphs = 5\nxyz = 1")
    result = run("serve", option)
    assert result.exit_code == 2
    assert (
        f"{option.partition('=')[2]}: unknown option 'graze' (did you mean 'grace'?); "
        "unknown option 'max_graphs' (did you mean 'max-graphs'?); unknown option 'xyz'"
    ) in " ".join(result.output.split())
    assert started.config is None


def test_a_key_of_another_role_is_refused(
    started: Started, run: Run, config_file: Callable[[str], str]
) -> None:
    result = run("router", *NEEDED["router"], config_file("slots = 5"))
    assert result.exit_code == 2
    refusal = " ".join(result.output.split())
    assert "router has no option 'slots'; it is an option of serve, worker" in refusal


def test_a_refusal_names_no_hidden_options(
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


def test_a_missing_file_is_refused(started: Started, run: Run, tmp_path: Path) -> None:
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
    option = config_file(f"{key} = {value}")
    result = run("serve", option)
    assert result.exit_code == 2
    file = option.partition("=")[2]
    assert f"Invalid value for '{key}' in {file}: " in " ".join(result.output.split())


def test_a_refused_value_of_a_variable_names_the_variable(started: Started, run: Run) -> None:
    result = run("serve", SHAPEROUTER_SLOTS="four")
    assert result.exit_code == 2
    assert (
        "Invalid value for the variable 'SHAPEROUTER_SLOTS': must be an integer from 1 to 256, "
        "got 'four'"
    ) in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("argument", "rule"),
    [
        ("--slots=four", "must be an integer from 1 to 256, got 'four'"),
        ("--slots=257", "must be an integer from 1 to 256, got '257'"),
        ("--grace=soon", "must be a number of at least 0, got 'soon'"),
        ("--grace=-1", "must be a number of at least 0, got '-1'"),
        ("--grace=nan", "must be a number of at least 0, got 'nan'"),
        ("--hang-timeout=inf", "must be a number of at least 1, got 'inf'"),
        ("--max-calls=0", "must be an integer from 1 to 1000000, got '0'"),
        ("--workers=all", "must be auto or an integer from 1 to 64, got 'all'"),
    ],
)
def test_a_refused_number_names_the_rule_and_the_value(
    started: Started, run: Run, argument: str, rule: str
) -> None:
    result = run("serve", argument)
    assert result.exit_code == 2
    option = argument.partition("=")[0]
    assert f"Invalid value for '{option}': {rule}" in " ".join(result.output.split())


def test_the_file_can_choose_lengths(
    started: Started, run: Run, config_file: Callable[[str], str]
) -> None:
    run("worker", config_file('prefill-lengths = ["demo=16,24"]\ndecode-lengths = ["64,128"]'))
    assert started.config.engine.prefill_lengths == {"demo": (16, 24)}
    assert started.config.engine.decode_lengths == {"": (64, 128), "demo": (64, 128)}
