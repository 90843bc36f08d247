"""Workers that save work, and ones that do not, die under load; no token changes."""

import contextlib
import random
import signal
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness.service import GOLDENS, LOCAL, Daemon, Service, kept_compilations
from harness.waiting import wait_until
from shaperouter import Client

MODEL = f"--model=endless={GOLDENS / 'gpt2-untied'}"
PLAIN = {"--prefix-cache-memory": "0", "--speculate": "off"}
SAVING = {
    "--prefix-cache-memory": "16MB",
    "--speculate": "ngram",
    # It proposes what itself would say.
    "--draft": f"endless={GOLDENS / 'gpt2-untied'}",
}
# Each request has one of these beginnings.
PREFIXES, PREFIX = 3, 48
NEW_TOKENS = 60
# Texts of few words repeat themselves, so that much of them is proposed.
FEW_WORDS = {"logit_bias": dict.fromkeys(range(20, 24), 12.0)}
KINDS: list[dict[str, Any]] = [
    {},
    FEW_WORDS,
    FEW_WORDS | {"do_sample": True, "temperature": 0.8, "logprobs": 1},
    {"do_sample": True, "temperature": 1.2, "repetition_penalty": 1.1},
    FEW_WORDS | {"num_beams": 2, "max_new_tokens": NEW_TOKENS // 2},
]
STREAMS = 30
# Seconds. Every worker may compile, all on the same few cores.
PATIENCE = 500.0


def _worker(stack: contextlib.ExitStack, path: Path, settings: dict[str, str]) -> Daemon:
    worker = Daemon(
        "worker",
        MODEL,
        f"--listen=unix:{path}",
        "--metrics-listen=off",
        "--slots=2",
        *(f"{name}={value}" for name, value in settings.items()),
        env=kept_compilations(),
    )
    stack.callback(worker.close)
    return worker


def _requests(rng: random.Random) -> list[dict[str, Any]]:
    prefixes = [rng.choices(range(3, 90), k=PREFIX) for _ in range(PREFIXES)]
    return [
        {"max_new_tokens": NEW_TOKENS, "seed": index}
        | KINDS[index % len(KINDS)]
        | {"prompt": [*rng.choice(prefixes), *rng.choices(range(3, 90), k=rng.randrange(1, 9))]}
        for index in range(STREAMS)
    ]


def test_no_token_depends_on_what_workers_save_or_on_which_die() -> None:
    rng = random.Random(26)
    requests = _requests(rng)
    # A worker dies when some more streams have begun.
    begun = threading.Semaphore(0)

    copied: list[int] = []

    def answer(client: Client, request: dict[str, Any]) -> tuple[int, ...]:
        request = dict(request)
        with client.stream(request.pop("prompt"), timeout=PATIENCE, **request) as deltas:
            for place, delta in enumerate(deltas):
                if place == 0 and delta.token_ids:
                    begun.release()
        copied.append(deltas.result.usage.cached_prompt_tokens)
        return tuple(deltas.result.token_ids)

    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        paths = [directory / f"w{index}.sock" for index in range(3)]
        workers = [_worker(stack, paths[0], PLAIN)]
        router = Service(
            "router",
            MODEL,
            *(f"--worker=unix:{path}" for path in paths),
            f"--listen={LOCAL}",
            f"--metrics-listen={LOCAL}",
        )
        stack.callback(router.close)
        router.wait_until_ready()
        client = stack.enter_context(Client(router.address))
        expected = [answer(client, request) for request in requests]
        assert not any(copied)
        half = PLAIN | rng.choice([{name: value} for name, value in SAVING.items()])
        for path, settings in zip(paths[1:], [half, SAVING], strict=True):
            workers.append(_worker(stack, path, settings))
        wait_until(lambda: client.model("endless").ready_workers == len(workers), timeout=PATIENCE)
        while begun.acquire(blocking=False):
            pass
        with ThreadPoolExecutor(STREAMS) as pool:
            calls = [pool.submit(answer, client, request) for request in requests]
            # The one that is left saves all work that can be saved.
            for worker in rng.sample(workers[:-1], k=2):
                for _ in range(3):
                    assert begun.acquire(timeout=PATIENCE)
                worker.process.send_signal(signal.SIGKILL)
            assert [call.result() for call in calls] == expected
        assert router.metric("shaperouter_runs_resumed_total", reason="lost") > 0
        assert sum(copied) > 0
