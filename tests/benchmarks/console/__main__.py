"""Starts the processes, opens the page, and prints what it costs."""

import contextlib
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import psutil
from playwright.sync_api import Page

from harness.browser import chromium, opened
from harness.debian import have_programs
from harness.waiting import TIMEOUT, wait_until

from .fleet import NAMES, SIGNATURES, WORKERS, addresses, serve_fleet

TOKENIZER = Path(__file__).parents[3] / "service" / "shaperouter_service" / "builtin" / "demo"
# Seconds of each measurement, and requests a second.
SECONDS, RATE = 10.0, 5.0
# No page and each panel are measured in turn, so often.
ROUNDS = 4
PANELS = ("lattice", "requests", "fleet")

# What the router's log has once it answers.
_READY = {"ready", "listening"}

_FRAMES = """(seconds) => new Promise((resolve) => {
  let frames = 0;
  const begun = performance.now();
  const frame = () => {
    frames += 1;
    const passed = performance.now() - begun;
    if (passed < 1000 * seconds) requestAnimationFrame(frame);
    else resolve(1000 * frames / passed);
  };
  requestAnimationFrame(frame);
})"""
_FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def main() -> None:
    """Measures and prints."""
    have_programs({"chromium": "chromium"}, "to open the console")
    with tempfile.TemporaryDirectory() as name, fleet(Path(name)), router(Path(name)) as (pid, url):
        stop = threading.Event()
        loading = threading.Thread(target=load, args=(url, stop))
        loading.start()
        try:
            print(f"{len(NAMES)} models, {WORKERS} workers, {SIGNATURES} signatures")
            with chromium(viewport={"width": 1400, "height": 900}) as context:
                page = opened(context, url)
                page.wait_for_selector(f"text={WORKERS} workers")
                print(f"first paint: {page.evaluate(_FIRST_PAINT):.0f} ms")
                added: dict[str, list[float]] = {panel: [] for panel in PANELS}
                for is_last in [False] * (ROUNDS - 1) + [True]:
                    page.goto("about:blank")
                    without = core_share(pid, SECONDS)
                    print(f"router without a page: {without:.1%} of a core")
                    page.goto(url)
                    page.wait_for_selector(f"text={WORKERS} workers")
                    for panel in PANELS:
                        added[panel].append(measure(page, panel, pid, is_shown=is_last) - without)
                for panel, shares in added.items():
                    all_of_them = ", ".join(f"{share:+.1%}" for share in shares)
                    print(
                        f"{panel}: router {statistics.median(shares):+.1%} of a core "
                        f"({all_of_them})"
                    )
        finally:
            stop.set()
            loading.join()


def measure(page: Page, panel: str, pid: int, *, is_shown: bool) -> float:
    """The router's share of a core before one panel; prints what it costs the browser."""
    page.click(f"nav a[href='#{panel}']")
    share: list[float] = []
    measuring = threading.Thread(target=lambda: share.append(core_share(pid, SECONDS)))
    measuring.start()
    frames = page.evaluate(_FRAMES, SECONDS)
    measuring.join()
    if not is_shown:
        return share[0]
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    metrics = {
        each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]
    }
    print(
        f"{panel}: {frames:.0f} frames/s, heap {metrics['JSHeapUsedSize'] / 1e6:.0f} MB, "
        f"{metrics['Nodes']:.0f} nodes, page's process {private_bytes() / 1e6:.0f} MB"
    )
    return share[0]


def core_share(pid: int, seconds: float) -> float:
    """The share of a core that a process uses for some seconds."""
    process = psutil.Process(pid)
    begun, started = sum(process.cpu_times()[:2]), time.monotonic()
    time.sleep(seconds)
    return (sum(process.cpu_times()[:2]) - begun) / (time.monotonic() - started)


def private_bytes() -> int:
    """Private memory of the largest process that renders pages."""
    renderers = [
        child
        for child in psutil.Process().children(recursive=True)
        if "--type=renderer" in child.cmdline()
    ]
    return max(renderer.memory_full_info().uss for renderer in renderers)


def load(url: str, stop: threading.Event) -> None:
    """Sends requests at a steady rate."""
    with httpx.Client(base_url=url, timeout=30) as client:
        for number in range(10**9):
            model = NAMES[number % len(NAMES)]
            body = {"model": model, "prompt": "TensorFlow is", "temperature": 0, "max_tokens": 8}
            client.post("/v1/completions", json=body).raise_for_status()
            if stop.wait(1 / RATE):
                return


@contextlib.contextmanager
def fleet(directory: Path) -> Iterator[None]:
    """Runs the workers."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=serve_fleet, args=[directory], daemon=True)
    process.start()
    try:
        wait_until(lambda: all(address.exists() for address in addresses(directory)))
        yield
    finally:
        process.terminate()
        process.join()


def events(log: Path) -> set[str]:
    """The events in a log."""
    return set(re.findall(r'"event": "(\w+)"', log.read_text()))


@contextlib.contextmanager
def router(directory: Path) -> Iterator[tuple[int, str]]:
    """Runs the router; yields its process id and the address of the console."""
    log = directory / "router.log"
    command = [
        sys.executable, "-m", "shaperouter_service", "router", "--log-format=json",
        f"--listen=unix:{directory / 'router'}", "--http-listen=127.0.0.1:0",
        "--metrics-listen=127.0.0.1:0",
        *(f"--model={name}={TOKENIZER}" for name in NAMES),
        *(f"--worker=unix:{address}" for address in addresses(directory)),
    ]  # fmt: skip
    with log.open("w") as writing:
        process = subprocess.Popen(command, stderr=writing, env=os.environ)
    try:
        wait_until(lambda: process.poll() is not None or events(log) >= _READY)
        found = re.search(r'"http_port": (\d+)', log.read_text())
        if found is None:
            raise RuntimeError(f"the router has ended: {log.read_text()}")
        yield process.pid, f"http://127.0.0.1:{found[1]}"
    finally:
        process.terminate()
        process.wait(TIMEOUT)


if __name__ == "__main__":
    main()
