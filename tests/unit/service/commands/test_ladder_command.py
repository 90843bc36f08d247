"""`shaperouterd ladder fit`: what it prints and writes, from a record on disk."""

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.roles import options_of
from harness.traffic import call, decode, encode, prefill
from shaperouter_service.commands.group import cli
from shaperouter_service.commands.options.lengths import ChosenLengths
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.routing.call_ladders import AxisLadder, CallLadders
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.traffic import SignatureTraffic, Traffic
from shaperouter_service.routing.traffic_json import to_json

# Prefill 16, 24, 32, 48, 64, 88, 128; decode 64, 128.
LADDERS = Ladders.default(max_length=128, slots=4)
HOURS = 10

Fit = Callable[..., Result]


def served(seconds: float) -> SignatureTraffic:
    return SignatureTraffic(
        asked=100, calls=100, steps=100, device_seconds=seconds, compiles=1, compile_seconds=2.0
    )


def write(directory: Path, traffic: Traffic) -> None:
    (directory / traffic.model).mkdir(parents=True, exist_ok=True)
    (directory / traffic.model / f"{id(traffic)}.json").write_text(to_json(traffic))


def traffic(model: str = "gpt2", *, count: float = 500.0) -> Traffic:
    """Prompts of 40 tokens, read by the rung of 48, and runs of 72 places, by that of 128."""
    return Traffic(
        model=model,
        ladders=LADDERS,
        as_of=time.time(),
        seconds=HOURS * 3600.0,
        prompts={40: count},
        runs={(1, 72): count},
        signatures={
            prefill(1, 48, model): served(60.0),
            decode(1, 128, model=model): served(1000.0),
            decode(4, 128, model=model): served(1000.0),
        },
    )


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """The record of one model."""
    directory = tmp_path / "traffic"
    write(directory, traffic())
    return directory


@pytest.fixture
def fit(record: Path, monkeypatch: pytest.MonkeyPatch) -> Fit:
    """Runs `shaperouterd ladder fit`; trouble with the arguments goes into the output, too."""
    # Logs would go to the runner's standard error, which ends with it, and others' logs with them.
    monkeypatch.setattr("shaperouter_service.commands.ladder.configure_logs", lambda *_: None)

    def fit(*arguments: str) -> Result:
        return CliRunner().invoke(
            cli, ["ladder", "fit", f"--record={record}", *arguments], catch_exceptions=False
        )

    return fit


def row(result: Result, title: str, name: str) -> list[str]:
    """The cells of a row of the table."""
    lines = iter(result.output.splitlines())
    for line in lines:
        cells = re.split(r" {2,}", line)
        if cells[0] == title:
            return cells[2:] if name == "today" else re.split(r" {2,}", next(lines))[2:]
    raise AssertionError(f"no {title!r} in {result.output}")


def test_the_table_compares_the_ladders_with_the_fitted_ones(fit: Fit) -> None:
    result = fit()
    assert result.exit_code == 0
    # A prompt costs as its padded length and a little attention: 40 * 1.005 of 48 * 1.006.
    padding = 60 * (1 - 40 * 1.005 / (48 * 1.006))
    assert row(result, "prefill", "today") == [
        "7",
        "17%",
        f"{padding:.1f}",
        "2.0",
        f"{padding + 2:.1f}",
        "16 24 32 48 64 88 128",
    ]
    assert row(result, "prefill", "fitted") == ["2", "0%", "0.0", "2.0", "2.0", "40 128"]
    assert row(result, "decode", "today")[-1] == "64 128"
    assert row(result, "decode", "fitted") == ["2", "0%", "0.0", "4.0", "4.0", "72 128"]


def test_the_saving_is_printed(fit: Fit) -> None:
    told = re.search(
        r"The fitted ladders cost (\d+)% less: 6.0 s instead of ([\d.]+) s", fit().output
    )
    assert told is not None
    assert int(told[1]) == round(100 * (1 - 6.0 / float(told[2])))


def test_a_ladder_that_costs_more_is_reported(fit: Fit) -> None:
    result = fit("--prefill-rungs=1", "--decode-rungs=1")
    assert row(result, "prefill", "fitted")[-1] == "128"
    assert row(result, "decode", "fitted")[-1] == "128"
    assert re.search(r"The fitted ladders cost \d+% more", result.output)


def test_a_short_horizon_justifies_fewer_rungs(record: Path, fit: Fit) -> None:
    two = traffic()
    two.prompts = {40: 250.0, 48: 250.0}
    write(record, two)
    assert row(fit(), "prefill", "fitted")[-1] == "40 48 128"
    assert row(fit("--horizon=0.1"), "prefill", "fitted")[-1] == "48 128"


def test_costs_scale_with_the_horizon(fit: Fit) -> None:
    usual, longer = fit(), fit(f"--horizon={10 * HOURS}")
    padding = [float(row(result, "prefill", "today")[2]) for result in (usual, longer)]
    assert padding[1] == pytest.approx(10 * padding[0], rel=0.01)


def test_each_lane_has_its_own_rows(record: Path, fit: Fit) -> None:
    beams = traffic()
    beams.runs[4, 290] = 500.0
    beams.signatures[decode(1, 512, beams=4)] = served(1000.0)
    write(record, beams)
    result = fit()
    # 290 places of 4 beams are of 73 tokens.
    assert row(result, "decode", "fitted")[-1] == "72 80 128"
    assert row(result, "decode, 4 beams", "today")[-1] == "64 128 256 512"
    assert row(result, "decode, 4 beams", "fitted")[-1] == "288 320 512"


def test_serve_accepts_the_written_file(fit: Fit, tmp_path: Path) -> None:
    file = tmp_path / "fitted.toml"
    assert fit(f"--output={file}").exit_code == 0
    serve = options_of("serve", [f"--config={file}"])
    assert serve["prefill_lengths"] == (ChosenLengths(model="gpt2", rungs=(40, 128)),)
    assert serve["decode_lengths"] == (ChosenLengths(model="gpt2", rungs=(72, 128)),)


def test_all_models_of_the_record_are_fitted(record: Path, fit: Fit, tmp_path: Path) -> None:
    write(record, traffic("opt"))
    file = tmp_path / "fitted.toml"
    result = fit(f"--output={file}")
    assert result.output.index("gpt2: ") < result.output.index("opt: ")
    assert 'prefill-lengths = ["gpt2=40,128", "opt=40,128"]' in file.read_text()


def test_a_single_model_can_be_fitted(record: Path, fit: Fit, tmp_path: Path) -> None:
    write(record, traffic("opt"))
    file = tmp_path / "fitted.toml"
    result = fit("--model=opt", f"--output={file}")
    assert "gpt2" not in result.output
    assert 'prefill-lengths = ["opt=40,128"]' in file.read_text()


def test_too_little_traffic_is_reported(record: Path, fit: Fit, tmp_path: Path) -> None:
    write(record, traffic("opt", count=99))
    file = tmp_path / "fitted.toml"
    assert "TOO LITTLE TRAFFIC" not in fit("--model=gpt2").output
    assert (
        "TOO LITTLE TRAFFIC: a ladder fitted to fewer than 100"
        in fit("--model=opt", f"--output={file}").output
    )
    assert "too little traffic to be reliable" in file.read_text()


def test_a_ladder_without_measurements_is_not_changed(
    record: Path, fit: Fit, tmp_path: Path
) -> None:
    unmeasured = traffic("opt")
    del unmeasured.signatures[prefill(1, 48, "opt")]
    write(record, unmeasured)
    file = tmp_path / "fitted.toml"
    result = fit("--model=opt", f"--output={file}")
    assert "No device time is recorded for prefill" in result.output
    assert "prefill-lengths" not in file.read_text()
    assert 'decode-lengths = ["opt=72,128"]' in file.read_text()


def test_an_assumed_compile_time_is_reported(record: Path, fit: Fit) -> None:
    loaded = traffic("opt")
    for counts in loaded.signatures.values():
        counts.compiles = counts.compile_seconds = 0.0
    write(record, loaded)
    assert "No compilation is recorded; 5 s are assumed" in fit("--model=opt").output
    assert "No compilation is recorded" not in fit("--model=gpt2").output


@pytest.fixture
def cache(record: Path) -> Path:
    """A compile cache that contains the record."""
    assert CompileCache.open(record.parent, max_bytes=10**9)
    return record.parent


def test_record_accepts_the_compile_cache(fit: Fit, record: Path, cache: Path) -> None:
    assert fit(f"--record={cache}").output == fit(f"--record={record}").output


@pytest.mark.parametrize("of_variable", [True, False])
def test_the_default_record_is_in_the_compile_cache(
    fit: Fit, cache: Path, tmp_path_factory: pytest.TempPathFactory, *, of_variable: bool
) -> None:
    home = shutil.copytree(cache, tmp_path_factory.mktemp("home") / "shaperouter")
    environment = {
        "SHAPEROUTER_COMPILE_CACHE": str(home) if of_variable else None,
        "XDG_CACHE_HOME": "/nowhere" if of_variable else str(home.parent),
    }
    result = CliRunner().invoke(cli, ["ladder", "fit"], env=environment)
    assert result.output == fit(f"--record={home}").output
    assert "500 prompts" in result.output


def test_a_cache_without_traffic_is_refused(fit: Fit, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    assert CompileCache.open(empty, max_bytes=10**9)
    result = fit(f"--record={empty}")
    assert result.exit_code == 2
    assert f"{empty / 'traffic'} has no recorded traffic" in " ".join(result.output.split())


def test_without_a_compile_cache_there_is_no_record() -> None:
    result = CliRunner().invoke(cli, ["ladder", "fit"], env={"SHAPEROUTER_COMPILE_CACHE": "off"})
    assert result.exit_code == 2
    assert "the compile cache is off" in " ".join(result.output.split())


def test_a_model_without_traffic_is_refused(fit: Fit) -> None:
    result = fit("--model=opt")
    assert result.exit_code == 2
    assert "--model" in result.output
    assert "no traffic is recorded for 'opt'; recorded models: gpt2" in " ".join(
        result.output.split()
    )


def test_an_empty_record_is_refused(fit: Fit, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    result = fit(f"--record={empty}")
    assert result.exit_code == 2
    assert "--record" in result.output
    assert "has no recorded traffic" in result.output


@pytest.mark.parametrize(
    "argument",
    [
        "--record=/nowhere",
        "--prefill-rungs=0",
        "--decode-rungs=few",
        "--horizon=0",
        "--horizon=-1",
        "--output=/",
    ],
)
def test_a_refused_argument_names_the_option(fit: Fit, argument: str) -> None:
    result = fit(argument)
    assert result.exit_code == 2
    assert argument.partition("=")[0] in result.output


def test_an_output_that_cannot_be_written_is_an_error(fit: Fit, tmp_path: Path) -> None:
    result = fit(f"--output={tmp_path / 'nowhere' / 'fitted.toml'}")
    assert result.exit_code == 1
    assert "nowhere" in result.output


def test_a_damaged_file_of_the_record_is_skipped(record: Path, fit: Fit) -> None:
    (record / "gpt2" / "damaged.json").write_text("{")
    result = fit()
    assert result.exit_code == 0
    assert row(result, "prefill", "fitted")[-1] == "40 128"


def test_sources_have_their_own_ladder(fit: Fit, record: Path, tmp_path: Path) -> None:
    answering = traffic("t5")
    answering.ladders = Ladders.default(
        max_length=128, slots=4, prefill_piece=8, max_source_length=256
    )
    answering.prompts = {}
    answering.sources = {90: 500.0}
    answering.signatures = {
        encode(1, 112, "t5"): served(100.0),
        decode(1, 128, model="t5"): served(1000.0),
    }
    write(record, answering)
    result = fit("--model=t5", f"--output={tmp_path / 'fitted.toml'}")
    assert "500 sources, 0 prompts, 500 runs" in result.output
    assert "TOO LITTLE TRAFFIC" not in result.output
    assert row(result, "encode", "fitted")[-1] == "96 256"
    assert "No device time is recorded for prefill" in result.output
    assert 'encode-lengths = ["t5=96,256"]' in (tmp_path / "fitted.toml").read_text()


def test_encode_rungs_limits_the_lengths_of_sources(fit: Fit, record: Path) -> None:
    answering = traffic("t5")
    answering.ladders = Ladders.default(max_length=128, slots=4, max_source_length=256)
    answering.sources = {20: 500.0, 90: 500.0}
    answering.signatures = {encode(1, 24, "t5"): served(50.0), encode(1, 112, "t5"): served(100.0)}
    write(record, answering)
    assert len(row(fit("--model=t5", "--encode-rungs=2"), "encode", "fitted")[-1].split()) == 2


def test_axes_of_a_function_are_fitted_for_its_settings(fit: Fit, tmp_path: Path) -> None:
    """Batches of 3 and lengths of 40, served by the last rungs."""
    directory, file = tmp_path / "functions", tmp_path / "fitted.toml"
    ladders = CallLadders(
        rows=Ladder((1, 2, 4)), axes=(AxisLadder(name="length", ladder=Ladder((8, 64, 512))),)
    )
    write(
        directory,
        Traffic(
            model="scorer",
            ladders=ladders,
            as_of=time.time(),
            seconds=HOURS * 3600.0,
            sizes={("batch", 3): 500.0, ("length", 40): 500.0},
            signatures={call(4, 64, "scorer"): served(1000.0)},
        ),
    )
    result = fit(f"--record={directory}", f"--output={file}")
    assert "scorer: 500 joined calls, 10 h" in result.output
    assert row(result, "batch", "today")[-1] == "1 2 4"
    assert row(result, "length", "fitted")[-1] == "40 512"
    assert "[axes.batch]\nladder = [3, 4]\n[axes.length]\nladder = [40, 512]" in result.output
    assert "# [axes.length]\n# ladder = [40, 512]" in file.read_text()
    options_of("serve", [f"--config={file}"])
