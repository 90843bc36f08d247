"""The TypeScript client, under Node, against a real service."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn, Self

import grpc
import pytest

from harness.service import Service
from harness.waiting import wait_until
from shaperouter.v1 import model_pb2_grpc

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "client/typescript"

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node")


class Stopping(model_pb2_grpc.ModelServiceServicer):
    """A service that is unavailable; it counts the calls."""

    def __init__(self) -> None:
        self.calls = 0
        self._server = grpc.server(ThreadPoolExecutor(1))
        model_pb2_grpc.add_ModelServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.stop(None).wait()

    def _refuse(self, request: object, context: grpc.ServicerContext) -> NoReturn:
        del request
        self.calls += 1
        context.abort(grpc.StatusCode.UNAVAILABLE, "stopping")

    ListModels = GetModel = LoadModel = UnloadModel = SetAlias = _refuse


@pytest.fixture(scope="module")
def built() -> None:
    subprocess.run(["make", "--silent", "typescript"], cwd=ROOT, check=True)


def run(
    script: str, *arguments: str, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    """Runs a script of JavaScript that has the package's `Client` and `ShaperouterError`."""
    imports = f'import {{ Client, ShaperouterError }} from "{PACKAGE}/dist/src/index.js";'
    return subprocess.run(
        ["node", "--input-type=module", "--eval", imports + script, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


@pytest.mark.usefixtures("built")
def test_the_example_streams_what_the_call_generates(demo: Service) -> None:
    example = PACKAGE / "dist/examples/stream.js"
    streamed = subprocess.run(
        ["node", example, demo.address, "TensorFlow is"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    whole = run(
        """
        const client = new Client(process.argv[1]);
        const { sequences } = await client.generate("TensorFlow is", { maxNewTokens: 40 });
        process.stdout.write(sequences[0].text);
        client.close();
        """,
        demo.address,
    ).stdout
    assert whole
    assert streamed.startswith(whole)
    assert "40 tokens" in streamed.removeprefix(whole)


@pytest.mark.usefixtures("built")
def test_an_invalid_request_names_each_field(demo: Service) -> None:
    result = run(
        """
        const client = new Client(process.argv[1]);
        try {
          await client.generate("x", { temperature: -1, maxNewTokens: -1 });
        } catch (error) {
          if (!(error instanceof ShaperouterError)) throw error;
          console.log(error.code, error.reason);
          for (const { field } of error.violations) console.log(field);
        }
        client.close();
        """,
        demo.address,
    )
    assert result.stdout.split() == [
        "3",
        "INVALID_REQUEST",
        "options.max_new_tokens",
        "options.temperature",
    ]


@pytest.mark.usefixtures("built")
def test_leaving_a_stream_early_frees_its_slot(demo: Service) -> None:
    run(
        """
        const client = new Client(process.argv[1]);
        for await (const delta of client.stream("TensorFlow is", { maxNewTokens: 400 })) break;
        client.close();
        """,
        demo.address,
    )
    wait_until(lambda: demo.metric("shaperouter_slots", model="demo", state="active") == 0)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("method", "calls"),
    [("listModels", 4), ("getModel", 4), ("loadModel", 1), ("unloadModel", 1), ("setAlias", 1)],
)
def test_only_calls_that_change_nothing_are_sent_again(method: str, calls: int) -> None:
    with Stopping() as service:
        run(
            """
            const client = new Client(process.argv[1]);
            const { models } = client.stubs;
            await new Promise((resolve) => models[process.argv[2]]({ targets: [] }, resolve));
            client.close();
            """,
            service.address,
            method,
        )
        assert service.calls == calls


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_signal_does_not_keep_a_call_that_has_ended(demo: Service, stream: str) -> None:
    result = run(
        """
        import { getEventListeners } from "node:events";
        const client = new Client(process.argv[1]);
        const { signal } = new AbortController();
        const options = { maxNewTokens: 1, signal };
        if (process.argv[2] === "true") for await (const delta of client.stream("x", options));
        else await client.generate("x", options);
        console.log(getEventListeners(signal, "abort").length);
        client.close();
        """,
        demo.address,
        stream,
    )
    assert result.stdout.strip() == "0"


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("stream", ["false", "true"])
def test_an_aborted_signal_cancels_its_call(demo: Service, stream: str) -> None:
    result = run(
        """
        const client = new Client(process.argv[1]);
        const abort = new AbortController();
        const options = { maxNewTokens: 400, signal: abort.signal };
        const call = process.argv[2] === "true"
          ? client.events("x", options).next()
          : client.generate("x", options);
        abort.abort();
        await call.catch((error) => console.log(error.code));
        client.close();
        """,
        demo.address,
        stream,
    )
    assert result.stdout.strip() == "1"


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("address", "sent"),
    [
        ("127.0.0.1:50051", True),
        ("127.1.2.3:50051", True),
        ("localhost:50051", True),
        ("[::1]:50051", True),
        ("unix:/run/shaperouter.sock", True),
        ("models.example.com:50051", False),
        ("127.models.example.com:50051", False),
        ("127.0.0.1.nip.io:50051", False),
        ("localhost.example.com:50051", False),
        ("[::1].example.com:50051", False),
    ],
)
def test_a_token_is_sent_in_plain_text_to_this_machine_alone(address: str, sent: bool) -> None:
    result = run(
        """
        try {
          new Client(process.argv[1], { token: "secret" }).close();
          console.log("sent");
        } catch (error) {
          console.log(error.message);
        }
        """,
        address,
    )
    refused = f"token: needs tls, because {address} is not on this machine"
    assert result.stdout.strip() == ("sent" if sent else refused)


@pytest.mark.usefixtures("built")
def test_a_call_to_this_machine_goes_through_no_proxy(demo: Service) -> None:
    result = run(
        """
        const client = new Client(process.argv[1]);
        for (const { name } of await client.models()) console.log(name);
        client.close();
        """,
        demo.address,
        environment={"http_proxy": "http://127.0.0.1:1", "no_proxy": ""},
    )
    assert result.stdout.strip() == "demo"
