"""Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Page, sync_playwright

from harness.tools import tool

# As root there is no sandbox, and nothing but the page may reach a network.
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A microphone that beeps, and no question who may use it.
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
]
# Findings of axe that fail a test.
_SERIOUS = ("serious", "critical")
TOKEN_KEY = "shaperouter.token"


@contextlib.contextmanager
def chromium(**settings: Any) -> Iterator[BrowserContext]:
    """A browser without history; `settings` are Playwright's, such as the size of its window."""
    program = tool("chromium")
    with tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=program, headless=True, args=_ARGUMENTS, **settings
        )
        try:
            yield context
        finally:
            context.close()


def opened(context: BrowserContext, url: str, *, token: str = "") -> Page:
    """A page of the console that shows live data, as a client whose token is given."""
    page = context.new_page()
    if token:
        page.add_init_script(f"sessionStorage.setItem('{TOKEN_KEY}', '{token}')")
    page.goto(url)
    page.wait_for_selector("#status[data-state=live]")
    return page


def findings(page: Page) -> list[str]:
    """What axe-core finds wrong with a page, and is serious."""
    violations = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {each['help']}: {node['html']}"
        for each in violations
        if each["impact"] in _SERIOUS
        for node in each["nodes"]
    ]
