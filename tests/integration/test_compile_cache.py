"""A restarted service compiles nothing."""

from pathlib import Path

from harness.service import GOLDENS, Service, serving
from harness.waiting import wait_until
from shaperouter import Client

MODEL = f"--model=tiny={GOLDENS / 'gpt2-untied'}"
COMPILES = "shaperouter_graph_compiles_total"


def _generate(service: Service) -> tuple[int, ...]:
    with Client(service.address) as client:
        generation = client.generate([3, 1, 4], max_new_tokens=8)
    return generation.token_ids


def test_a_restarted_service_loads_what_it_has_compiled(tmp_path: Path) -> None:
    cache = f"--compile-cache={tmp_path / 'cache'}"
    with serving(MODEL, cache) as service:
        tokens = _generate(service)
        wait_until(lambda: service.metric(COMPILES, result="compiled") >= 2)
    with serving(MODEL, cache) as service:
        assert _generate(service) == tokens
        wait_until(lambda: service.metric(COMPILES, result="loaded") >= 2)
        assert service.metric(COMPILES, result="compiled") == 0
        assert service.metric("shaperouter_graph_traces_total") == 0
        assert service.events("not a log line") == []


def test_a_service_without_a_directory_for_its_cache_compiles(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with serving(MODEL, f"--compile-cache={file / 'cache'}") as service:
        assert _generate(service)
        wait_until(lambda: service.metric(COMPILES, result="compiled") >= 2)
        assert len(service.events("no compile cache: its directory can't be read")) == 1
