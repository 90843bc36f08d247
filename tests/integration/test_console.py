"""The console in a real browser, before a real service."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2 as httpx
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from harness.browser import chromium, findings, opened
from harness.service import CACHE, GOLDENS, START_TIMEOUT, Service, serving
from harness.traffic import decode, prefill
from harness.whispers import add_tokenizer, noise, wav, with_tokenizer
from shaperouter_service.auth import token_digest
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.traffic import SignatureTraffic, Traffic
from shaperouter_service.routing.traffic_json import to_json

OPERATOR, USER = "operators-token", "users-token"
TRACES = "https://traces.example.com/trace"
PANELS = ("lattice", "requests", "fleet", "playground")

# Milliseconds: a worker starts again, or compiles.
expect.set_options(timeout=START_TIMEOUT * 1000)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A model of each kind, for an operator and another client."""
    directory = tmp_path_factory.mktemp("console")
    tokens = directory / "tokens.toml"
    tokens.write_text(
        f'[clients.operator]\nsha256 = ["{token_digest(OPERATOR)}"]\noperator = true\n'
        f'[clients.user]\nsha256 = ["{token_digest(USER)}"]\n'
    )
    repository = directory / "repository"
    shutil.copytree(GOLDENS / "bert-embedder", repository / "embedder")
    add_tokenizer(repository / "embedder")
    with serving(
        "--model=demo",
        f"--model=labels={GOLDENS / 'roberta-labels'}",
        f"--model=hearing={with_tokenizer(directory)}",
        f"--model-repository={repository}",
        f"--tokens={tokens}",
        f"--trace-url={TRACES}/{{trace_id}}",
        # Traces have ids, and nobody takes them.
        "--tracing=otlp",
        env={
            "SHAPEROUTER_COMPILE_CACHE": str(recorded()),
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        },
    ) as service:
        yield service


def recorded() -> Path:
    """A compile cache of these tests, with the record of a model's traffic."""
    cache = CACHE.with_name("console")
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.rmtree(cache / "traffic", ignore_errors=True)
    # Were it cached, the recorded graph would be ready at once and serve instead of the one tested.
    for kept in cache.glob("*/decode_1x128_*"):
        kept.unlink()
    served = SignatureTraffic(
        asked=500, calls=500, steps=500, device_seconds=100.0, compiles=1, compile_seconds=2.0
    )
    traffic = Traffic(
        model="demo",
        ladders=Ladders.default(max_length=512, slots=8),
        as_of=time.time(),
        seconds=3600.0,
        prompts={40: 500.0},
        runs={(1, 72): 500.0},
        signatures={prefill(1, 48, "demo"): served, decode(1, 128, model="demo"): served},
    )
    (cache / "traffic" / "demo").mkdir(parents=True)
    (cache / "traffic" / "demo" / "earlier.json").write_text(to_json(traffic))
    return cache


@pytest.fixture(scope="module")
def browser() -> Iterator[BrowserContext]:
    with chromium(viewport={"width": 1280, "height": 800}) as context:
        yield context


@pytest.fixture
def page(browser: BrowserContext, service: Service) -> Iterator[Page]:
    """The console as an operator sees it; nothing may be wrong in the browser's log."""
    page = opened(browser, service.http_url, token=OPERATOR)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    yield page
    page.close()
    assert not wrong


def complete(service: Service, token: str = OPERATOR, **fields: object) -> httpx.Response:
    return httpx.post(
        f"{service.http_url}/v1/completions",
        json={"model": "demo", "prompt": "TensorFlow is", "temperature": 0} | fields,
        headers={"authorization": f"Bearer {token}"},
        timeout=START_TIMEOUT,
    )


def show(page: Page, panel: str) -> None:
    page.click(f"nav a[href='#{panel}']")
    expect(page.locator(f"#panel-{panel}")).to_be_visible()


def ask(page: Page, model: str) -> None:
    """Chooses a model of the playground."""
    show(page, "playground")
    page.select_option("#play-model", model)


def test_a_token_is_asked_for_and_an_unknown_one_is_refused(
    browser: BrowserContext, service: Service
) -> None:
    hosts: set[str] = set()
    page = browser.new_page()
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    page.goto(service.http_url)
    page.fill("#token", "a-wrong-token")
    page.click("#token-dialog button")
    expect(page.locator("#token-error")).to_have_text("The service does not know this token.")
    page.fill("#token", USER)
    page.click("#token-dialog button")
    expect(page.locator("#status")).to_have_text("Live as user: 3 models, 1 worker")
    assert hosts == {service.http_url.removeprefix("http://")}
    complete(service)
    complete(service, USER)
    show(page, "requests")
    expect(page.locator(".waterfall td.client").first).to_have_text("user")
    assert set(page.locator(".waterfall td.client").all_text_contents()) == {"user"}
    page.close()


def test_every_panel_shows_a_service_under_load(page: Page, service: Service) -> None:
    with ThreadPoolExecutor(8) as pool:
        sizes = [{"max_tokens": 8 * n, "prompt": "TensorFlow " * n} for n in range(1, 9)]
        answers = [pool.submit(complete, service, **size) for size in sizes]
        assert {answer.result().status_code for answer in answers} == {200}
    assert complete(service, max_tokens=-1).status_code == 400
    served = page.locator("[data-signature='demo decode 1x512']")
    expect(served).to_have_attribute("aria-label", re.compile("ready, .* calls"))
    expect(page.locator(".board .head").first).to_be_attached()
    served.hover()
    expect(page.locator(".inspector")).to_contain_text("ready on 1 of 1 worker")
    expect(page.locator(".inspector")).to_contain_text("Device time")
    show(page, "requests")
    expect(page.locator(".waterfall tr[data-code=OK]").nth(7)).to_be_visible()
    page.select_option("#requests-filter", "failed")
    expect(page.locator(".waterfall td.state").first).to_have_text("invalid argument")
    page.select_option("#requests-filter", "all")
    page.locator(".waterfall tr[data-code=OK] button").first.click()
    expect(page.locator(".detail")).to_contain_text("worker-0 (taken)")
    trace = page.locator(".detail a")
    expect(trace).to_have_attribute("href", f"{TRACES}/{trace.text_content()}")
    show(page, "fleet")
    expect(page.locator("[data-worker=worker-0]")).to_contain_text("ready")
    expect(page.locator("#panel-fleet table")).to_contain_text("hearing")


def test_a_click_warms_a_graph_and_so_does_enter(page: Page) -> None:
    for rows in (1, 2):
        cell = page.locator(f"[data-signature='demo score {rows}x16']")
        expect(cell).to_have_attribute("data-state", "cold")
        if rows == 1:
            cell.click()
        else:
            page.locator("[data-signature='demo score 1x16']").focus()
            page.keyboard.press("ArrowUp")
            page.keyboard.press("Enter")
        expect(cell).to_have_attribute("data-state", "ready")


def test_fitted_ladders_are_shown_beside_todays(page: Page) -> None:
    page.get_by_text("Fitted ladders").click()
    expect(page.locator(".ladders")).to_contain_text(re.compile("would save .* of .*%"))
    expect(page.locator(".ladder svg").first).to_have_attribute(
        "aria-label", re.compile("prefill: today 16 .*; fitted .*40")
    )
    assert findings(page) == []


def test_only_operators_warm(browser: BrowserContext, service: Service) -> None:
    page = opened(browser, service.http_url, token=USER)
    cell = page.locator("[data-signature='demo score 4x16']")
    cell.click()
    expect(page.locator("#notice")).to_have_text("Only operators can warm graphs.")
    expect(cell).to_have_attribute("data-state", "cold")
    page.close()


def test_the_playground_streams_sequences_side_by_side(page: Page) -> None:
    ask(page, "demo")
    page.check("#play-logprobs")
    page.fill("#option-max_new_tokens", "12")
    page.get_by_text("Beam search and several sequences").click()
    page.fill("#option-num_beams", "3")
    page.fill("#option-num_return_sequences", "2")
    page.select_option("#play-copy", "shaperouter")
    expect(page.locator(".copy pre")).to_contain_text("num_beams=3, num_return_sequences=2")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer .sequence")).to_have_count(2)
    expect(page.locator(".answer .token").first).to_have_attribute("title", re.compile("%"))
    expect(page.locator(".answer .explained")).to_contain_text("What the router expected")


def test_the_playground_calls_and_transcribes(page: Page, tmp_path: Path) -> None:
    ask(page, "labels")
    expect(page.locator("#tensor-input_ids")).to_be_visible()
    page.select_option("#play-copy", "grpc")
    expect(page.locator(".copy pre")).to_contain_text("InferenceService/Infer")
    page.select_option("#play-copy", "shaperouter")
    expect(page.locator(".copy pre")).to_contain_text('client.infer("labels", {"input_ids": ')
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer")).to_contain_text("scores FP32")
    page.fill("#tensor-input_ids", "[[1, 2")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer .error")).to_have_text(
        "input_ids must be lists of values, in JSON"
    )
    ask(page, "hearing")
    (tmp_path / "noise.wav").write_bytes(wav(noise(0.5)))
    page.set_input_files("#speech-file", tmp_path / "noise.wav")
    page.fill("#speech-language", "l1")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer .explained")).to_contain_text("What served it")


def test_the_playground_transcribes_what_the_microphone_hears(page: Page) -> None:
    ask(page, "hearing")
    page.fill("#speech-language", "l1")
    page.get_by_role("button", name="Record", exact=True).click()
    # Long enough for one of its beeps.
    expect(page.locator("#speech-record + span")).to_have_text(re.compile(r"Recording: [2-9]"))
    page.get_by_role("button", name="Stop recording").click()
    expect(page.locator("#speech-record + span")).to_have_text(re.compile(r"Recorded [0-9]"))
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer .explained")).to_contain_text("What served it")


def test_an_operator_loads_a_model_and_unloads_it(page: Page) -> None:
    show(page, "fleet")
    expect(page.locator(".changes [role=status]")).to_have_text("Not loaded: embedder")
    page.fill("#model-name", "words")
    page.fill("#model-location", "embedder")
    page.get_by_role("button", name="Load", exact=True).click()
    expect(page.locator("#notice")).to_have_text("words is loaded.")
    ask(page, "words")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer")).to_contain_text("3 embeddings of 20 numbers")
    show(page, "fleet")
    page.on("dialog", lambda dialog: dialog.accept())
    page.fill("#model-name", "words")
    page.get_by_role("button", name="Unload").click()
    expect(page.locator("#status")).to_have_text("Live as operator, operator: 3 models, 1 worker")


def test_a_model_outside_of_the_repository_is_refused(
    browser: BrowserContext, service: Service
) -> None:
    page = opened(browser, service.http_url, token=OPERATOR)
    show(page, "fleet")
    page.fill("#model-name", "nothing")
    page.get_by_role("button", name="Load", exact=True).click()
    expect(page.locator("#notice.bad")).to_contain_text("'nothing' is not in the model repository")
    page.close()


def test_a_text_goes_on_after_its_worker_was_killed(page: Page, service: Service) -> None:
    expected = complete(service, max_tokens=400).json()["choices"][0]["text"]
    ask(page, "demo")
    page.fill("#option-max_new_tokens", "400")
    page.get_by_text("Sampling", exact=True).click()
    page.select_option("#option-do_sample", "false")

    def send(kill: Callable[[], None]) -> None:
        page.get_by_role("button", name="Send").click()
        expect(page.locator(".answer .text")).to_have_text(re.compile(r"\S.{20}"))
        kill()
        expect(page.locator(".answer .sequence h3")).to_have_text("Sequence 1, ended by length")

    # A browser that is starved shows the text when it is whole.
    for _ in service.losing_worker(send):
        pass
    expect(page.locator(".answer .warning").first).to_contain_text("worker-0 was lost")
    assert page.locator(".answer .text").text_content() == expected
    show(page, "fleet")
    expect(page.locator("#panel-fleet table").first).to_contain_text("its connection broke")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(page: Page, service: Service, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    complete(service, max_tokens=8)
    for panel in PANELS:
        show(page, panel)
        assert findings(page) == []


def test_a_phone_needs_no_sideways_scrolling(page: Page) -> None:
    page.set_viewport_size({"width": 375, "height": 700})
    for panel in PANELS:
        show(page, panel)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
