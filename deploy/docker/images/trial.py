"""Runs images as Kubernetes would: their user, a read-only root, no capabilities, no network."""

import json
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from images.engine import CONFINED, EngineError, podman, python, say

# Seconds that a worker may take to load its model and compile its first graphs, and a process to
# end once it is asked to.
START_LIMIT, STOP_LIMIT = 400, 60

_PROMPT = "TensorFlow is"

# Runs inside: who this process is, and where it can write.
_LOOK = """
import json, os
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines())
def writes(directory):
    try:
        open(os.path.join(directory, "probe"), "w").close()
    except OSError:
        return False
    return True
print(json.dumps({
    "user": f"{os.getuid()}:{os.getgid()}",
    "capabilities": int(status["CapEff"], 16) | int(status["CapBnd"], 16),
    "may_gain_privileges": status["NoNewPrivs"] != "1",
    "written": [each for each in ("/", "/opt/shaperouter", "/etc", "/var/tmp") if writes(each)],
    "unwritten": [each for each in ("/tmp", *VOLUMES) if not writes(each)],
    "pip": [each for each in ("pip", "setuptools")
            if os.path.exists(f"/usr/local/lib/python3.11/site-packages/{each}")],
}))
"""


def permitted(base: str) -> None:
    """Runs nothing, as the images are run.

    Raises:
        EngineError: This machine does not allow it; the message says so.
    """
    try:
        podman(
            "run", "--rm", *CONFINED, "--user=65532:65532", "--network=none", base, "python", "-V"
        )
    except EngineError as error:
        raise EngineError(
            f"{error}\nThis machine does not let containers run: the kernel needs mount, PID and "
            "network namespaces, overlayfs and control groups, and this process needs the right "
            "to make them (in a container, usually --privileged)."
        ) from error


def look(image: str, volumes: tuple[str, ...]) -> None:
    """Checks what a process of an image may do.

    Args:
        image: The image.
        volumes: Directories that volumes are mounted at.

    Raises:
        EngineError: It may do more than it should, or less than it needs.
    """
    found = python(image, _LOOK.replace("VOLUMES", repr(volumes)), *_mounts(volumes))
    expected = {
        "user": "65532:65532", "capabilities": 0, "may_gain_privileges": False, "written": [],
        "unwritten": [], "pip": [],
    }  # fmt: skip
    wrong = {name: value for name, value in found.items() if value != expected[name]}
    if wrong:
        raise EngineError(f"{image}: {wrong}")


def serve(router: str, worker: str) -> str:
    """Generates a text with both images, and ends them.

    Returns:
        The answer of the service.

    Raises:
        EngineError: A container has ended too early or too late, or the service does not answer.
    """
    suffix = secrets.token_hex(4)
    with ExitStack() as containers:
        workers = containers.enter_context(
            _running(
                f"worker-{suffix}",
                "--network=none",
                "--memory=4g",
                *_mounts(("/var/cache/shaperouter",)),
                worker,
                "worker",
                "--model=demo",
                "--listen=127.0.0.1:50052",
                "--threads=2",
                "--compile-cache=/var/cache/shaperouter/graphs",
                "--metrics-listen=127.0.0.1:9465",
            )
        )
        # Beside it, in a network that consists of the two.
        routers = containers.enter_context(
            _running(
                f"router-{suffix}",
                f"--network=container:{workers}",
                "--memory=1g",
                router,
                "router",
                "--model=demo",
                "--worker=127.0.0.1:50052",
                "--listen=127.0.0.1:50051",
                "--metrics-listen=127.0.0.1:9464",
            )
        )
        command = ("exec", routers, "shaperouter", "--address=127.0.0.1:50051")
        try:
            podman(*command, "ready", "--wait", f"--timeout={START_LIMIT}")
        except EngineError as error:
            logs = "\n".join(podman("logs", "--tail=20", each) for each in (routers, workers))
            raise EngineError(f"the service is not ready: {error}\n{logs}") from error
        answer = json.loads(podman(*command, "--json", "generate", _PROMPT))
        for name in (routers, workers):
            podman("stop", f"--time={STOP_LIMIT}", name)
            code = podman("inspect", "--format={{.State.ExitCode}}", name)
            if code != "0":
                raise EngineError(f"{name} ended with exit code {code}")
    return f"{_PROMPT}{answer['sequences'][0]['text']}"


def _mounts(volumes: tuple[str, ...]) -> list[str]:
    return [f"--volume={directory}" for directory in volumes]


@contextmanager
def _running(name: str, *arguments: str) -> Iterator[str]:
    say(f"Running {name}")
    podman("run", "--detach", f"--name={name}", *CONFINED, *arguments)
    try:
        yield name
    finally:
        podman("rm", "--force", "--volumes", name)
