"""Draws the console for its page in the docs, before a service under load.

Run by ``make draw-console``.
"""

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2 as httpx
from playwright.sync_api import Page

from harness.browser import chromium, opened
from harness.debian import have_programs
from harness.service import Service, kept_compilations, serving
from harness.tools import real_model

# What pictures show, by the end of their names: a panel, and colours.
PICTURES = [
    ("lattice", "light"),
    ("lattice", "dark"),
    ("requests", "light"),
    ("playground", "dark"),
]
CONTEXT = {"viewport": {"width": 1360, "height": 840}}


def main(directory: Path) -> None:
    """Writes all pictures to a directory."""
    have_programs({"chromium": "chromium"}, "to draw the console")
    models = ["--model=demo", "--model=g2p", f"--model=minilm={real_model('all-MiniLM-L6-v2')}"]
    with (
        serving(*models, "--workers=2", env=kept_compilations()) as service,
        chromium(**CONTEXT) as context,
    ):
        warm(service)
        for panel, scheme in PICTURES:
            page = opened(context, f"{service.http_url}/#{panel}")
            page.emulate_media(color_scheme=scheme)
            load(service)
            SHOW.get(panel, lambda _: None)(page)
            # Curves and arrows follow the service within a second.
            page.wait_for_timeout(2500)
            page.screenshot(path=directory / f"console-{panel}-{scheme}.png")
            page.close()


def post(service: Service, path: str, **body: Any) -> None:
    """Makes a call."""
    httpx.post(f"{service.http_url}/{path}", json=body, timeout=120)


def warm(service: Service) -> None:
    """Compiles some graphs, so that a picture has more than the first ones."""
    for shape in ("prefill 1x64", "prefill 2x32", "decode 2x256", "decode 4x256", "decode 8x512"):
        post(service, "console/warm", signature=f"demo {shape}", all_workers=True)
    post(service, "console/warm", signature="minilm call 4x64")
    load(service)


def load(service: Service) -> None:
    """Sends requests of many sizes, side by side."""
    rng = random.Random(4)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(40):
            size = {
                "prompt": "TensorFlow is " * rng.randint(1, 40),
                "max_tokens": rng.randint(8, 90),
            }
            beams = {"num_beams": 3} if rng.random() < 0.15 else {}
            pool.submit(
                post, service, "v1/completions", model="demo", temperature=0, **size, **beams
            )
        for rows in (1, 3, 6):
            texts = ["A graph of many nodes."] * rows
            pool.submit(post, service, "v1/embeddings", model="minilm", input=texts)
        pool.submit(post, service, "v1/completions", model="g2p", prompt="lattice", temperature=0)


def show_lattice(page: Page) -> None:
    """Points at the graph that decodes most."""
    page.hover("[data-signature='demo decode 1x512']")


def show_request(page: Page) -> None:
    """Opens one request."""
    page.locator(".waterfall tr[data-code=OK] button").nth(6).click()


def show_answer(page: Page) -> None:
    """Generates two sequences, whose tokens have the colours of their probabilities."""
    page.check("#play-logprobs")
    page.fill("#option-max_new_tokens", "40")
    page.get_by_text("Beam search and several sequences").click()
    page.fill("#option-num_return_sequences", "2")
    page.get_by_text("Length and end").click()
    page.get_by_role("button", name="Send").click()
    page.wait_for_selector(".answer .explained")


SHOW = {"lattice": show_lattice, "requests": show_request, "playground": show_answer}

if __name__ == "__main__":
    main(Path(sys.argv[1]))
