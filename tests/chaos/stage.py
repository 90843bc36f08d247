"""The service of a campaign: routers, workers, the network between them, and credentials."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from chaos.clock import Clock
from chaos.disk import Disk
from chaos.models import REPOSITORY, REVISIONS, made
from chaos.processes import OnEnd, Process, environment
from harness.certificates import HOST, Authority
from harness.proxy import Proxy
from harness.waiting import wait_until
from shaperouter import Client, ShaperouterError

ROUTERS, WORKERS = 2, 3
# The model whose revision is switched, and a name under which a revision is loaded for a while.
SWITCHING, VISITING = "switching", "visiting"
# Variable by which processes of a campaign are found.
MARK = "CHAOS_CAMPAIGN"
# Seconds after which a device call counts as hung.
HANG_TIMEOUT = 10
# Seconds in which all workers have to serve once nothing disturbs them.
RECOVERY = 300.0

# Few shapes, so that all are soon compiled.
SETTINGS = (
    "--max-length=128",
    "--slots=4",
    "--prefill-lengths=32",
)


class Stage:
    """The running service.

    Attributes:
        routers: The routers.
        workers: The workers.
        worker_links: For each worker, the network between it and all routers.
        caller_links: For each router, the networks of its gRPC and its HTTP port.
        disk: Where the compile cache is.
        token: The callers' newest token.
        ca: File of the authority that issues the routers' certificates.
    """

    def __init__(self, work: Path, kept: Path, on_end: OnEnd) -> None:
        """Starts all processes.

        Args:
            work: An empty directory for everything that the service writes.
            kept: Models, and what earlier campaigns have compiled, if there were any.
            on_end: As in `Process`.
        """
        self._stack = contextlib.ExitStack()
        self._lock = threading.Lock()
        self.logs, self.temporary, self.sockets = (
            work / name for name in ("logs", "temporary", "sockets")
        )
        for directory in (self.logs, self.temporary, self.sockets):
            directory.mkdir(parents=True)
        self.disk = Disk(work / "cache", kept / "cache")
        self._stack.callback(self.disk.close)
        self._authority = Authority(work / "certificates")
        self.ca = self._authority.ca
        self._tokens = work / "tokens.toml"
        self.token = ""
        self.renew_tokens()
        models = made(kept / "models")
        self._names = {SWITCHING, "demo", *(path.name for path in models)}
        repository = kept / "models" / REPOSITORY
        self._models = [f"--model={path.name}={path}" for path in models]
        self._models += [f"--model={SWITCHING}={repository / REVISIONS[0]}"]
        self._models += [f"--model-repository={repository}"]
        self._clocks = work / "clocks"
        self._clocks.mkdir()
        self.workers, self.worker_links = [], []
        self.routers, self.caller_links = [], []
        try:
            self._start(on_end)
        except BaseException:
            self.close()
            raise

    def _start(self, on_end: OnEnd) -> None:
        for index in range(WORKERS):
            socket = self.sockets / f"worker-{index}"
            self.worker_links.append(self._link(socket))
            arguments = ["worker", *self._models, *SETTINGS, f"--name=worker-{index}"]
            arguments += [f"--listen=unix:{socket}", "--metrics-listen=127.0.0.1:0"]
            arguments += [f"--hang-timeout={HANG_TIMEOUT}", *self._certificate("worker")]
            arguments += [f"--tls-client-ca={self.ca}", "--threads=1", "--check-padding=0.5"]
            arguments += [f"--compile-cache={self.disk.directory}", "--grace=20"]
            arguments += ["--speculate=ngram"]
            self.workers.append(self._process(f"worker-{index}", arguments, on_end))
        for index in range(ROUTERS):
            sockets = [self.sockets / f"router-{index}-{door}" for door in ("grpc", "http")]
            self.caller_links.append([self._link(socket) for socket in sockets])
            arguments = ["router", *self._models, f"--listen=unix:{sockets[0]}"]
            arguments += [f"--http-listen=unix:{sockets[1]}", "--metrics-listen=127.0.0.1:0"]
            arguments += [f"--tokens={self._tokens}", *self._certificate("router")]
            cert, key = self._authority.issue("router-to-worker")
            arguments += [f"--worker={HOST}:{link.port}" for link in self.worker_links]
            arguments += [f"--worker-tls-ca={self.ca}", f"--worker-tls-cert={cert}"]
            arguments += [f"--worker-tls-key={key}", "--grace=20"]
            self.routers.append(self._process(f"router-{index}", arguments, on_end))

    def _process(self, name: str, arguments: list[str], on_end: OnEnd) -> Process:
        clock = Clock(self._clocks, name)
        process = Process(
            name,
            arguments,
            environment=environment(self.temporary, MARK, **clock.variables),
            logs=self.logs,
            on_end=on_end,
            clock=clock,
        )
        self._stack.callback(process.close)
        return process

    def _link(self, socket: Path) -> Proxy:
        link = Proxy(socket)
        self._stack.callback(link.close)
        return link

    def _certificate(self, name: str) -> list[str]:
        cert, key = self._authority.issue(name)
        return [f"--tls-cert={cert}", f"--tls-key={key}"]

    def client(self, router: int, **settings: float) -> Client:
        """A client of a router, with the newest token."""
        port = self.caller_links[router][0].port
        return Client(f"{HOST}:{port}", ca=self.ca, token=self.token, retries=0, **settings)

    def http_url(self, router: int) -> str:
        """Address of a router's HTTP port."""
        return f"https://{HOST}:{self.caller_links[router][1].port}"

    def wait_until_whole(self) -> None:
        """Waits until each router has all workers for all models.

        Raises:
            TimeoutError: It takes too long.
        """

        def whole(router: int) -> bool:
            # A new connection each time: an old one may wait long before it tries again.
            with self.client(router, timeout=5.0) as client:
                try:
                    models = client.models()
                except ShaperouterError:
                    return False
            ready = {model.name for model in models if model.ready_workers == WORKERS}
            # Further models may have been loaded.
            return ready >= self._names

        for router in range(ROUTERS):
            wait_until(lambda router=router: whole(router), timeout=RECOVERY, pause=0.5)

    def renew_tokens(self) -> None:
        """Gives callers a new token; the one before stays valid, for calls that have it."""
        with self._lock:
            new = secrets.token_urlsafe(32)
            digests = [sha256(token.encode()).hexdigest() for token in (new, self.token) if token]
            content = f"[clients.chaos]\noperator = true\nsha256 = {digests}\n".replace("'", '"')
            _replace(self._tokens, content.encode())
            self.token = new

    @contextlib.contextmanager
    def torn_tokens(self) -> Iterator[None]:
        """Leaves half of the file of tokens inside of the context, as an editor may."""
        with self._lock:
            whole = self._tokens.read_bytes()
            _replace(self._tokens, whole[: len(whole) // 2])
            yield
            _replace(self._tokens, whole)

    def renew_certificates(self) -> None:
        """Issues all certificates anew."""
        with self._lock:
            for name in ("worker", "router", "router-to-worker"):
                for new in self._authority.issue(f"{name}-new"):
                    new.replace(new.with_stem(name))

    def close(self) -> None:
        """Ends all processes."""
        # Routers first, which let their requests end.
        self._stack.close()


def _replace(path: Path, content: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)
