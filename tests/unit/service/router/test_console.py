"""The console's paths, in front of scripted workers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from harness.loads import load, make_repository
from harness.traffic import decode, prefill
from shaperouter_service.auth import token_digest
from shaperouter_service.edge.console import files
from shaperouter_service.generation.option_table import OPTIONS
from shaperouter_service.routing.deployments import Target
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.traffic import SignatureTraffic, Traffic
from shaperouter_service.routing.traffic_json import to_json
from shaperouter_service.serving.request_history import MAX_REQUESTS

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Router

EVENTS, LADDERS, WARM = "/console/events", "/console/ladders", "/console/warm"
PROMPT = {"model": "tiny", "prompt": "hello", "temperature": 0}
STATIC = Path(files.__file__).with_name("static")
# Bytes of the whole page.
MAX_PAGE = 300_000

News = dict[str, Any]


@contextlib.asynccontextmanager
async def watching(
    client: httpx.AsyncClient, **headers: str
) -> AsyncGenerator[AsyncGenerator[News, None], None]:
    """What a watcher is told."""
    async with client.stream("GET", EVENTS, headers=headers) as response:
        assert response.status_code == 200
        lines = response.aiter_lines()
        news = (json.loads(line.removeprefix("data: ")) async for line in lines if line[:1] == "d")
        async with contextlib.aclosing(news):
            yield news


async def until_changed(news: AsyncGenerator[News, None], section: str) -> dict[str, Any]:
    """The next changed rows of a section."""
    async for each in news:
        if rows := each.get("changed", {}).get(section):
            return dict(rows)
    raise AssertionError("the stream has ended")


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def tokens_of(directory: Path) -> Path:
    """A token file with an operator and a user, whose tokens are their names."""
    path = directory / "tokens.toml"
    path.write_text(
        f'[clients.operator]\nsha256 = ["{token_digest("operator")}"]\noperator = true\n'
        f'[clients.user]\nsha256 = ["{token_digest("user")}"]\n'
    )
    return path


def test_the_page_and_its_files_are_served_with_a_strict_policy(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        page = await client.get("/")
        assert page.headers["content-type"].startswith("text/html")
        served = [page]
        for file in STATIC.iterdir():
            if file.name != files.PAGE:
                served.append(await client.get(f"/console/{file.name}"))
                assert served[-1].content == file.read_bytes()
        for response in served:
            policy = response.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; ")
            assert "unsafe" not in policy
            assert response.headers["x-content-type-options"] == "nosniff"
            assert "microphone=(self)" in response.headers["permissions-policy"]
        again = await client.get("/", headers={"if-none-match": page.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")

    http(scenario)


def test_the_page_is_small_and_names_no_other_host() -> None:
    contents = [file.read_text() for file in STATIC.iterdir()]
    assert sum(map(len, contents)) < MAX_PAGE
    own = ("http://www.w3.org/2000/svg",)
    for content in contents:
        for name in own:
            content = content.replace(name, "")
        assert "http://" not in content
        assert "https://" not in content


def test_without_the_console_there_is_nothing(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        assert (await client.get("/")).status_code == 404
        assert (await client.get(EVENTS)).status_code == 404

    http(scenario, settings={"console": False})


def test_the_lattices_of_a_model_are_those_of_its_revisions(
    http: Any, tmp_path: Path, checkpoint: Path
) -> None:
    async def scenario(client: httpx.AsyncClient, router: Router, _: FakeWorker) -> None:
        model = await load(router, "tiny", "tiny-2")
        async with watching(client) as news:
            rows = await until_changed(news, "models")
        name = f"tiny@{model.revision[:12]}"
        assert rows["tiny"]["revisions"] == [name]
        assert {each["model"] for each in rows["tiny"]["lattices"]} == {name}
        assert not rows["nick"].keys() & {"revisions", "lattices"}

    settings = {
        "repository": make_repository(tmp_path, checkpoint),
        "aliases": {"nick": [Target(model="tiny", share=1.0)]},
    }
    http(scenario, settings=settings)


def test_a_watcher_is_told_everything_and_then_what_changes(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        async with watching(client) as news:
            assert await anext(news) == {
                "hello": {"client": "", "operator": True, "repository": False, "trace_url": ""}
            }
            first = await anext(news)
            assert first["changed"]["workers"]["worker-0"]["lanes"][0]["model"] == "tiny"
            (model,) = first["changed"]["models"].values()
            kinds = {lattice["kind"] for lattice in model["lattices"]}
            assert {"prefill", "decode"} <= kinds
            worker.graphs = [worker.graph(worker.signature(length)) for length in (16, 32)]
            await worker.change()
            assert len(await until_changed(news, "graphs")) == 2
            worker.graphs[0].traces += 5
            await worker.change()
            (changed,) = (await until_changed(news, "graphs")).values()
            assert changed["signature"] == "tiny prefill 1x16"
            assert changed["traces"] == worker.graphs[0].traces
            del worker.graphs[1]
            await worker.change()
            async for each in news:
                if each["gone"]:
                    assert each["gone"] == {"graphs": ["worker-0 tiny prefill 1x32"]}
                    break

    http(scenario)


def test_a_request_is_shown_while_it_runs_and_after_its_end(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(5), worker.hold, worker.completion()]
        async with watching(client) as news:
            asked = asyncio.create_task(
                client.post("/v1/completions", json=PROMPT, headers={"x-request-id": "mine"})
            )
            (row,) = (await until_changed(news, "requests")).values()
            assert "code" not in row
            worker.released.set()
            assert (await asked).status_code == 200
            while "code" not in row:
                (row,) = (await until_changed(news, "requests")).values()
        assert row["id"].startswith("mine-")
        assert (row["code"], row["worker"], row["model"]) == ("OK", "worker-0", "tiny")
        # As the worker measured them.
        assert (row["queue_seconds"], row["stall_seconds"]) == (0.125, 2.5)
        assert (row["prefill_seconds"], row["decode_seconds"]) == (0.25, 0.5)
        assert row["graphs"][0]["served"] == "tiny prefill 1x16"
        explained = (await client.get(f"/console/requests/{row['id']}")).json()
        assert explained["routes"][0][0]["worker"] == "worker-0"
        assert explained["routes"][0][0]["graphs"]

    http(scenario)


def test_a_lost_worker_is_shown_with_the_request_that_it_had(
    http: Any, until: Callable[[Callable[[], bool]], Awaitable[None]]
) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, *workers: FakeWorker) -> None:
        for worker in workers:
            worker.script = [worker.tokens(5), worker.hold, worker.completion()]
        asked = asyncio.create_task(client.post("/v1/completions", json=PROMPT))
        await until(lambda: any(worker.running for worker in workers))
        (first,) = (worker for worker in workers if worker.running)
        (second,) = (worker for worker in workers if not worker.running)
        second.released.set()
        await first.kill()
        assert (await asked).status_code == 200
        async with watching(client) as news:
            await anext(news)
            told = (await anext(news))["changed"]
        (request,) = told["requests"].values()
        assert request["lost_workers"] == [first.name]
        assert request["worker"] == second.name
        assert [loss["worker"] for loss in told["losses"].values()] == [first.name]
        assert list(told["workers"]) == [second.name]

    http(scenario, workers=2)


def test_the_last_hundred_requests_are_kept(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        refused = PROMPT | {"max_tokens": -1}
        for _ in range(MAX_REQUESTS + 3):
            await client.post("/v1/completions", json=refused)
        async with watching(client) as news:
            await anext(news)
            told = await anext(news)
        assert len(told["changed"]["requests"]) == MAX_REQUESTS
        assert told["totals"]["refusals"] == {"INVALID_REQUEST": MAX_REQUESTS + 3}

    http(scenario)


def test_tokens_decide_who_sees_and_warms(http: Any, tmp_path: Path) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        assert (await client.get("/")).status_code == 200
        for path in (EVENTS, "/console/options", "/console/requests/x"):
            refused = await client.get(path, headers=bearer("wrong"))
            assert refused.status_code == 401
        warm = {"signature": "tiny prefill 1x16"}
        assert (await client.post(WARM, json=warm, headers=bearer("user"))).status_code == 403
        assert not worker.wanted
        accepted = await client.post(WARM, json=warm, headers=bearer("operator"))
        assert [graph["signature"] for graph in accepted.json()] == ["tiny prefill 1x16"]
        assert len(worker.wanted) == 1
        for client_name in ("user", "operator"):
            await client.post("/v1/completions", json=PROMPT, headers=bearer(client_name))
        seen: dict[str, Any] = {}
        for name in ("user", "operator"):
            async with watching(client, **bearer(name)) as news:
                assert (await anext(news))["hello"]["operator"] == (name == "operator")
                seen[name] = (await anext(news))["changed"]["requests"]
        assert {row["client"] for row in seen["user"].values()} == {"user"}
        assert {row["client"] for row in seen["operator"].values()} == {"user", "operator"}
        (others,) = seen["operator"].keys() - seen["user"].keys()
        path = f"/console/requests/{others}"
        assert (await client.get(path, headers=bearer("user"))).status_code == 404
        assert (await client.get(path, headers=bearer("operator"))).status_code == 200

    http(scenario, settings={"tokens": tokens_of(tmp_path)})


def test_a_wrong_request_to_warm_is_refused_by_name(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        for body, named in (
            ({"signature": "tiny decode"}, "signature"),
            ({"signature": "tiny prefill 1x17"}, "must be one of"),
            ({"signature": "tiny prefill 1x16", "all_workers": "yes"}, "all_workers"),
            ({"signature": "tiny prefill 1x16", "rows": 4}, "rows"),
        ):
            response = await client.post(WARM, json=body)
            assert response.status_code == 400
            assert named in response.json()["error"]["message"]

    http(scenario)


def test_the_table_of_options_is_served_whole(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        options = {each["name"]: each for each in (await client.get("/console/options")).json()}
        assert list(options) == list(OPTIONS)
        assert options["top_p"]["rule"] == "above 0 and at most 1"
        assert options["top_k"]["needs"] == "sampling"
        assert options["num_beams"]["kind"] == "count"

    http(scenario)


def test_watchers_do_not_delay_a_stop(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, router: Router, _: FakeWorker) -> None:
        async with watching(client) as news:
            await anext(news)
            router.stop.set()
            async for _ in news:
                pass

    http(scenario)


def test_ladders_are_fitted_to_the_record_for_operators(http: Any, tmp_path: Path) -> None:
    served = SignatureTraffic(calls=500, steps=500, device_seconds=60.0)
    record = tmp_path / "traffic"
    for model in ("tiny", "no-longer-served"):
        traffic = Traffic(
            model=model,
            ladders=Ladders.default(max_length=128, slots=4),
            as_of=time.time(),
            seconds=3600.0,
            prompts={40: 500.0},
            runs={(1, 72): 500.0},
            signatures={prefill(1, 48, model): served, decode(1, 128, model=model): served},
        )
        (record / model).mkdir(parents=True)
        (record / model / "1.json").write_text(to_json(traffic))

    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        assert (await client.get(LADDERS, headers=bearer("user"))).status_code == 403
        answer = (await client.get(LADDERS, headers=bearer("operator"))).json()
        assert answer["has_record"]
        (model,) = answer["models"]
        assert (model["model"], model["is_thin"]) == ("tiny", False)
        assert model["cost_fitted"] < model["cost_today"]
        reading, generating = model["ladders"]
        assert (reading["title"], generating["title"]) == ("prefill", "decode")
        assert 40 in reading["fitted"]["rungs"]
        assert 40 not in reading["today"]["rungs"]

    http(scenario, settings={"tokens": tokens_of(tmp_path), "traffic_record": record})


def test_without_a_record_no_ladder_is_fitted(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        assert (await client.get(LADDERS)).json() == {"has_record": False, "models": []}

    http(scenario)
