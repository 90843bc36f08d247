"""`make test-cluster`: plays the day, in namespaces of its own.

The process that plays it is the first of a PID namespace, has an empty network, and mounts that no
other process sees. So the kernel removes everything when that process ends, for whatever reason.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness.debian import have_programs

WORK = Path(__file__).parents[2] / "build" / "cluster"

# What makes and enters namespaces, and where it is from.
PACKAGES = {
    "ip": "iproute2",
    "bridge": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
}

UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
INSIDE = "--inside"

# Names the commit of the version that stands for the one before.
BEFORE = "BEFORE"

INTERRUPTED = 130


def check_machine() -> None:
    """Prepares this machine for the day, or exits with the reason why it cannot play it."""
    if not sys.platform.startswith("linux"):
        sys.exit("test-cluster: needs Linux, for network namespaces")
    if os.geteuid() != 0:
        sys.exit("test-cluster: needs root, for network namespaces: sudo make test-cluster")
    have_programs(PACKAGES, "for network namespaces")
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        sys.exit(f"test-cluster: this machine lets root make no namespaces: {tried.stderr.strip()}")


def make_mounts() -> None:
    """Has names of hosts asked from the cluster's DNS, and namespaces' names kept to ourselves."""
    from cluster.dns import RESOLV_CONF

    resolv_conf = WORK / "resolv.conf"
    resolv_conf.write_text(RESOLV_CONF, encoding="utf-8")
    subprocess.run(["mount", "--bind", resolv_conf, "/etc/resolv.conf"], check=True)
    namespaces = Path("/run/netns")
    namespaces.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", namespaces], check=True)


def play() -> int:
    """Plays the day; returns the exit code."""
    from cluster.day import day
    from cluster.production import Production
    from cluster.story import Story
    from cluster.version_before import VersionBefore

    # Built before anything runs: it takes a minute, once.
    before = VersionBefore(os.environ.get(BEFORE, ""))
    # The first process of a namespace is not ended by a signal that it does not handle.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    make_mounts()
    began = time.monotonic()
    try:
        production = Production(WORK)
        with production.running():
            day(production, Story(production.prometheus), before)
    except KeyboardInterrupt:
        print("\ntest-cluster: interrupted; nothing runs any more")
        return INTERRUPTED
    except Exception:
        print(f"\ntest-cluster: failed. Every process has its log in {WORK / 'logs'}", flush=True)
        raise
    print(f"\ntest-cluster: a day has passed in {(time.monotonic() - began) / 60:.1f} minutes")
    return 0


if __name__ == "__main__":
    if INSIDE in sys.argv:
        sys.exit(play())
    check_machine()
    sys.stdout.flush()
    os.execvp(UNSHARE[0], [*UNSHARE, sys.executable, "-m", "cluster", INSIDE])
