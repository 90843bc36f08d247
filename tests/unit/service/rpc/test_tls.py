"""TLS of the public server, and between routers and workers."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from grpc import aio

from harness.certificates import Authority
from harness.fake_worker import FakeWorker
from harness.router import Play, Router, wait_until
from harness.waiting import TIMEOUT
from shaperouter import AsyncClient, UnavailableError
from shaperouter.v1 import model_pb2, model_pb2_grpc
from shaperouter_service.errors import StartupError
from shaperouter_service.rpc import tls as tls_module
from shaperouter_service.rpc.tls import ServerTls, WorkerTls


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours")


@pytest.fixture
def foreign(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "theirs")


async def ask(address: str, credentials: grpc.ChannelCredentials | None) -> str:
    """Asks for the models over a connection of its own; what went wrong, or nothing."""
    channel = (
        aio.secure_channel(address, credentials) if credentials else aio.insecure_channel(address)
    )
    async with channel:
        try:
            await model_pb2_grpc.ModelServiceStub(channel).ListModels(
                model_pb2.ListModelsRequest(), timeout=TIMEOUT
            )
        except aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
    return ""


def test_a_client_that_trusts_the_certificate_is_served(
    play: Play, free_address: str, authority: Authority
) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        response = await router.generate()
        assert response.sequences[0].token_ids == [5, 7, 8]

    play(
        scenario,
        listen=free_address,
        settings={"tls": authority.server()},
        credentials=authority.credentials(),
    )


@pytest.mark.parametrize(
    ("shown", "refused_with"),
    [
        ("good", ""),
        ("none", "UNAVAILABLE: .*Socket closed"),
        ("foreign", "UNAVAILABLE: .*Socket closed"),
        ("expired", "UNAVAILABLE: .*Socket closed"),
        ("plain text", "UNAVAILABLE: .*Socket closed"),
    ],
)
def test_mutual_tls_requires_a_certificate_of_the_clients_ca(
    play: Play,
    free_address: str,
    authority: Authority,
    tmp_path: Path,
    *,
    shown: str,
    refused_with: str,
) -> None:
    foreign = Authority(tmp_path / "theirs")
    credentials = {
        "good": authority.credentials(by=authority),
        "none": authority.credentials(),
        "foreign": authority.credentials(by=foreign),
        "expired": authority.credentials(by=authority, expired=True),
        "plain text": None,
    }

    async def scenario(*_: Any) -> None:
        refusal = await ask(free_address, credentials[shown])
        assert re.fullmatch(f"{refused_with}.*" if refused_with else "", refusal)

    play(
        scenario,
        listen=free_address,
        settings={"tls": authority.server(client_ca=authority.ca)},
        credentials=authority.credentials(by=authority),
    )


@pytest.mark.parametrize("kind", ["expired", "foreign"])
def test_a_client_refuses_an_untrusted_service(
    play: Play, free_address: str, authority: Authority, foreign: Authority, kind: str
) -> None:
    tls = authority.server()

    async def scenario(*_: Any) -> None:
        shown = authority if kind == "expired" else foreign
        for new, old in zip(shown.issue("new", expired=True), (tls.cert, tls.key), strict=True):
            shutil.move(new, old)
        refusal = await ask(free_address, authority.credentials())
        assert "CERTIFICATE_VERIFY_FAILED" in refusal
        assert ("expired" if kind == "expired" else "issuer") in refusal

    play(scenario, listen=free_address, settings={"tls": tls}, credentials=authority.credentials())


def test_a_changed_certificate_applies_to_new_connections_only(
    play: Play, free_address: str, authority: Authority, foreign: Authority
) -> None:
    tls = authority.server()

    async def scenario(router: Router, _: FakeWorker) -> None:
        for new, old in zip(foreign.issue("new"), (tls.cert, tls.key), strict=True):
            shutil.move(new, old)
        assert not await ask(free_address, foreign.credentials())
        assert await router.generate()

    play(scenario, listen=free_address, settings={"tls": tls}, credentials=authority.credentials())


@pytest.mark.parametrize("damage", ["not PEM", "another key", "gone", "a pipe"])
def test_invalid_changed_files_are_logged_and_ignored(
    play: Play, free_address: str, authority: Authority, damage: str
) -> None:
    tls = authority.server()

    async def scenario(*_: Any) -> None:
        if damage == "not PEM":
            tls.cert.write_text("secret-content")
        elif damage == "another key":
            shutil.move(authority.issue("other")[1], tls.key)
        else:
            tls.key.unlink()
        if damage == "a pipe":
            # Without a writer, a reader would wait forever.
            os.mkfifo(tls.key)
        with structlog.testing.capture_logs() as logs:
            for _ in range(2):
                assert not await ask(free_address, authority.credentials())
        (told,) = [line for line in logs if line["event"] == "changed files not loaded"]
        assert str(tls.key) in told["reason"]
        assert "secret-content" not in str(logs)

    play(scenario, listen=free_address, settings={"tls": tls}, credentials=authority.credentials())


def test_the_clients_error_names_likely_causes(
    play: Play, free_address: str, authority: Authority, foreign: Authority
) -> None:

    async def scenario(*_: Any) -> None:
        async with AsyncClient(free_address, ca=authority.ca) as client:
            assert await client.models()
        for arguments in ({}, {"ca": foreign.ca}):
            async with AsyncClient(free_address, **arguments) as client:
                with pytest.raises(UnavailableError, match="TLS is on at one end alone"):
                    await client.models(timeout=TIMEOUT)

    play(
        scenario,
        listen=free_address,
        settings={"tls": authority.server()},
        credentials=authority.credentials(),
    )


def test_a_router_runs_requests_on_workers_with_mutual_tls(
    play: Play, authority: Authority
) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        response = await router.generate()
        assert response.sequences[0].token_ids == [5, 7, 8]

    play(
        scenario,
        settings={"worker_tls": authority.worker_tls()},
        workers_tls=authority.server(client_ca=authority.ca),
    )


Change = Callable[[Authority, Authority], WorkerTls | None]


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (lambda ours, theirs: theirs.worker_tls(), "CERTIFICATE_VERIFY_FAILED"),
        (lambda ours, theirs: ours.worker_tls(expired=True), "Socket closed"),
    ],
    ids=["a foreign worker", "an expired router"],
)
def test_a_failed_connection_to_a_worker_is_logged_with_the_reason(
    play: Play, authority: Authority, foreign: Authority, shown: Change, reason: str
) -> None:
    async def scenario(_: Router, worker: FakeWorker) -> None:
        with structlog.testing.capture_logs() as logs:
            await worker.start()
            await wait_until(lambda: any(line["event"] == "worker lost" for line in logs))
            await wait_until(lambda: any(reason in str(line.get("reason")) for line in logs))

    play(
        scenario,
        started=False,
        settings={"worker_tls": shown(authority, foreign)},
        workers_tls=authority.server(client_ca=authority.ca),
    )


def test_a_router_reconnects_with_a_renewed_certificate(play: Play, authority: Authority) -> None:
    expired = authority.worker_tls(expired=True)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        await worker.start()
        authority.issue("router")
        response = await router.generate()
        assert response.sequences[0].token_ids == [5, 7, 8]

    play(
        scenario,
        started=False,
        settings={"worker_tls": expired},
        workers_tls=authority.server(client_ca=authority.ca),
    )


def test_a_certificate_and_a_key_of_different_rotations_are_refused(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = authority.server()
    read = tls_module.read_regular

    def read_and_replace(path: Path) -> bytes:
        content = read(path)
        if path == tls.cert:
            authority.issue()  # both anew
        return content

    monkeypatch.setattr(tls_module, "read_regular", read_and_replace)
    with pytest.raises(StartupError, match="must be a certificate and its unencrypted private key"):
        tls.credentials()


def test_invalid_files_for_workers_stop_the_start_of_a_router(tmp_path: Path) -> None:
    tls = WorkerTls(ca=tmp_path / "nowhere", cert=None, key=None, name=None)
    with pytest.raises(StartupError, match=r"worker-tls-ca: .*nowhere cannot be read"):
        tls.credentials()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("cert", "tls-cert: .* cannot be read: No such file"),
        ("client_ca", "tls-client-ca: .* has no certificates in PEM"),
        (
            "key",
            "tls-cert, tls-key: .* must be a certificate and its unencrypted private key in PEM",
        ),
    ],
)
def test_invalid_files_stop_the_start(
    authority: Authority, tmp_path: Path, wrong: str, message: str
) -> None:
    files = {"cert": authority.issue()[0], "key": authority.issue()[1], "client_ca": authority.ca}
    files[wrong] = tmp_path / "wrong"
    if wrong != "cert":
        files[wrong].write_text("secret-content")
    with pytest.raises(StartupError, match=message) as refusal:
        ServerTls(**files).credentials()
    assert "secret-content" not in str(refusal.value)
