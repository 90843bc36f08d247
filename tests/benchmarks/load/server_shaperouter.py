"""Shaperouter as users start it: `shaperouterd serve` with one worker."""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from common.protocol import arguments
from harness.service import Service, serving

from .server import Server, serve

# Metrics, and the labels that split each of them.
COUNTERS = {
    "shaperouter_graph_traces_total": None,
    "shaperouter_graph_compiles_total": "result",
    "shaperouter_stalls_total": None,
    "shaperouter_stall_seconds_sum": None,
    "shaperouter_cover_served_total": "fit",
    "shaperouter_padding_tokens_total": "kind",
    "shaperouter_prompt_tokens_total": None,
    "shaperouter_generation_tokens_total": None,
}


class ShaperouterServer(Server):
    """The service, and its own metrics as counters."""

    packages = ("tensorflow-cpu", "grpcio")

    def __init__(self, service: Service) -> None:
        self.address = service.address
        self._service = service

    def counters(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for (name, labels), value in self._service.metrics().items():
            if name in COUNTERS:
                label = dict(labels).get(COUNTERS[name] or "", "")
                key = f"{name} {label}".strip().removeprefix("shaperouter_")
                found[key] = found.get(key, 0) + value
        return found


@contextmanager
def load() -> Iterator[Server]:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--option", action="append", default=[], help="option of shaperouterd serve"
    )
    given = arguments(
        parser
    )  # without the number of threads, so that the service uses all cores, its default
    # New, empty caches: graphs of earlier runs must not make this run warm.
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            "XDG_CACHE_HOME": cache,
            "SHAPEROUTER_COMPILE_CACHE": f"{cache}/graphs",
            # Settings of users that tests disable.
            "SHAPEROUTER_BEAM_COVER": "auto",
        }
        with serving(f"--model=bench={given.model}", *given.option, env=environment) as service:
            yield ShaperouterServer(service)


if __name__ == "__main__":
    serve(load())
