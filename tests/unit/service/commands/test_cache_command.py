"""`shaperouterd cache` shows, checks and shrinks the compile cache."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shaperouter_service.commands.cache import DAY_SECONDS
from shaperouter_service.commands.group import cli
from shaperouter_service.compile_cache import CacheKey, CompileCache, Part
from shaperouter_service.system.sizes import format_size

KEY = CacheKey(label="gpt2", parts={"dimensions": {"n_layer": 2}})
GRAPHS = {"decode_1x128_beams1": 4.0, "decode_8x128_beams1": 8.0}

Run = Callable[..., Result]


@pytest.fixture
def cache(tmp_path: Path) -> CompileCache:
    cache = CompileCache.open(tmp_path, max_bytes=10**9)
    assert cache is not None
    for graph, seconds in GRAPHS.items():
        for part in Part:
            cache.section(KEY).write(graph, part, os.urandom(5_000), seconds=seconds / 2)
    return cache


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(
            cli, ["cache", *arguments], env={"SHAPEROUTER_COMPILE_CACHE": str(tmp_path)}
        )

    return run


def test_list_shows_each_graph_and_totals(cache: CompileCache, run: Run) -> None:
    *rows, total = run("list").output.splitlines()
    assert rows[0].split() == ["SECTION", "GRAPH", "SIZE", "SECONDS", "AGE", "UNUSED"]
    assert {tuple(row.split()[:5]) for row in rows[1:]} == {
        (KEY.name, "decode_1x128_beams1", "10.5", "kB", "4.0"),
        (KEY.name, "decode_8x128_beams1", "10.5", "kB", "8.0"),
    }
    size = format_size(sum(entry.bytes for entry in cache.entries()))
    assert total.startswith(f"2 graphs, {size}, ")
    assert "12 s" in total


def test_list_of_an_empty_cache_prints_zero_graphs(tmp_path: Path) -> None:
    # In the default place, before a worker has kept anything.
    environment = {"XDG_CACHE_HOME": str(tmp_path), "SHAPEROUTER_COMPILE_CACHE": None}
    result = CliRunner().invoke(cli, ["cache", "list"], env=environment)
    assert result.output.startswith("0 graphs, 0 B")


def test_a_cache_without_graphs_is_accepted(tmp_path: Path, run: Run) -> None:
    assert CompileCache.open(tmp_path, max_bytes=10**9)
    assert run("list").output.startswith("0 graphs, 0 B")
    assert run("verify").output == "0 files, 0 damaged\n"


def test_a_cache_without_its_tag_is_recognized_by_its_sections(
    cache: CompileCache, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "CACHEDIR.TAG").unlink()
    assert run("verify").output == "4 files, 0 damaged\n"


@pytest.mark.parametrize("command", [["list"], ["verify"], ["prune", "--all"]], ids=str)
def test_a_directory_that_is_no_cache_is_refused(
    run: Run, tmp_path: Path, command: list[str]
) -> None:
    # Of another program's cache.
    (tmp_path / "CACHEDIR.TAG").write_bytes(b"Signature: 8a477f597d28d172789f06886806bc55\n")
    result = run(*command)
    assert result.exit_code == 2
    assert f"--compile-cache: {tmp_path} is not a compile cache" in " ".join(result.output.split())
    nowhere = tmp_path / "nowhere"
    result = run(*command, f"--compile-cache={nowhere}")
    assert result.exit_code == 2
    assert f"--compile-cache: {nowhere} is not a directory" in " ".join(result.output.split())


def test_list_as_json_has_the_dimensions(cache: CompileCache, run: Run) -> None:
    content = json.loads(run("list", "--json").output)
    assert content["sections"] == {KEY.name: KEY.parts}
    assert {graph["graph"]: graph["seconds"] for graph in content["graphs"]} == GRAPHS
    assert content["bytes"] == sum(graph["bytes"] for graph in content["graphs"])


def test_verify_names_each_damaged_file(cache: CompileCache, run: Run, tmp_path: Path) -> None:
    result = run("verify")
    assert (result.exit_code, result.output) == (0, "4 files, 0 damaged\n")
    damaged = tmp_path / KEY.name / f"{next(iter(GRAPHS))}.executable"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    result = run("verify")
    assert result.exit_code == 1
    line, total = result.output.splitlines()
    assert line.startswith(f"{damaged}: ")
    assert total == "4 files, 1 damaged"


def test_prune_keeps_the_most_valuable_graphs(cache: CompileCache, run: Run) -> None:
    result = run("prune", "--max-size=15kB")
    removed, total = result.output.splitlines()
    assert removed == f"{KEY.name}/decode_1x128_beams1"
    assert total.startswith("removed 1 of 2 graphs, freed 10.")
    assert [entry.graph for entry in cache.entries()] == ["decode_8x128_beams1"]


def test_prune_removes_graphs_unused_for_days(cache: CompileCache, run: Run) -> None:
    entry = cache.entries()[0]
    for path in entry.paths:
        os.utime(path, (entry.used - 3 * DAY_SECONDS,) * 2)
    assert "removed 0 of 2" in run("prune", "--unused-for=3.5").output
    assert "removed 1 of 2" in run("prune", "--unused-for=2").output
    assert entry.graph not in {left.graph for left in cache.entries()}


def test_prune_all_removes_every_graph(cache: CompileCache, run: Run) -> None:
    assert "removed 2 of 2" in run("prune", "--all").output
    assert cache.entries() == []


def test_prune_without_a_condition_is_refused(cache: CompileCache, run: Run) -> None:
    result = run("prune")
    assert result.exit_code == 2
    assert len(cache.entries()) == 2


def test_prune_names_a_file_that_it_could_not_remove(
    cache: CompileCache, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "unlink", deny)
    result = run("prune", "--all")
    assert result.exit_code == 1
    assert "4 files can't be removed" in result.output


def test_a_cache_that_is_off_cannot_be_listed() -> None:
    result = CliRunner().invoke(cli, ["cache", "list", "--compile-cache=off"])
    assert result.exit_code == 2
    assert "must be a directory" in result.output


def test_the_command_needs_no_tensorflow() -> None:
    code = (
        "import sys, shaperouter_service.compile_cache.flags, shaperouter_service.commands.cache;"
        "assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
