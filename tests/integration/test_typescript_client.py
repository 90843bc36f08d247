"""The TypeScript client, under Node, against a real service."""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import grpc
import pytest

from harness.service import Service
from harness.waiting import TIMEOUT, wait_until
from shaperouter.v1 import inference_pb2, inference_pb2_grpc, model_pb2, model_pb2_grpc

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "client/typescript"

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node")


class Models(model_pb2_grpc.ModelServiceServicer):
    """A service that answers all calls in one way; it counts them."""

    def __init__(self, answer: Callable[[grpc.ServicerContext], Any]) -> None:
        self.calls = 0
        self._answer = answer

    def _call(self, request: object, context: grpc.ServicerContext) -> Any:
        del request
        self.calls += 1
        return self._answer(context)

    ListModels = GetModel = LoadModel = UnloadModel = SetAlias = _call


def stopping(context: grpc.ServicerContext) -> NoReturn:
    context.abort(grpc.StatusCode.UNAVAILABLE, "stopping")


def large(context: grpc.ServicerContext) -> model_pb2.ListModelsResponse:
    """An answer of 5 MiB, more than gRPC's default allows."""
    del context
    return model_pb2.ListModelsResponse(models=[model_pb2.Model(name="x" * 5 * 2**20)])


def waiting(context: grpc.ServicerContext) -> model_pb2.ListModelsResponse:
    """Answers when the client no longer waits."""
    ended = threading.Event()
    if context.add_callback(ended.set):
        ended.wait()
    return model_pb2.ListModelsResponse()


class Echoing(inference_pb2_grpc.InferenceServiceServicer):
    """A service that answers with what it was sent."""

    def Infer(  # noqa: N802 (gRPC's name)
        self, request: inference_pb2.InferRequest, context: grpc.ServicerContext
    ) -> inference_pb2.InferResponse:
        del context
        return inference_pb2.InferResponse(outputs=request.inputs)


@contextmanager
def listening(
    models: model_pb2_grpc.ModelServiceServicer | None = None,
    inference: inference_pb2_grpc.InferenceServiceServicer | None = None,
) -> Iterator[str]:
    """Runs services in this process; gives their address."""
    server = grpc.server(ThreadPoolExecutor(1))
    if models:
        model_pb2_grpc.add_ModelServiceServicer_to_server(models, server)
    if inference:
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(inference, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@contextmanager
def vanished() -> Iterator[str]:
    """The address of a service that begins a connection and never says anything else."""
    settings = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # the frame that begins HTTP/2
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(settings)
                while connection.recv(4096):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(TIMEOUT)


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
        timeout=TIMEOUT,
        check=True,
    )


@pytest.mark.usefixtures("built")
def test_the_example_streams_what_the_call_generates(demo: Service) -> None:
    example = PACKAGE / "dist/examples/stream.js"
    streamed = subprocess.run(
        ["node", example, demo.address, "TensorFlow is"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
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
    service = Models(stopping)
    with listening(service) as address:
        run(
            """
            const client = new Client(process.argv[1]);
            const { models } = client.stubs;
            await new Promise((resolve) => models[process.argv[2]]({ targets: [] }, resolve));
            client.close();
            """,
            address,
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


@pytest.mark.usefixtures("built")
def test_the_readmes_call_of_a_stub_works() -> None:
    example = (PACKAGE / "examples/infer.ts").read_text(encoding="utf-8").partition("\n\n")[2]
    written = example.replace("../src/index.js", "shaperouter")
    written = written.replace("process.argv[2]", '"127.0.0.1:50051"')
    assert f"```ts\n{written}```" in (PACKAGE / "README.md").read_text(encoding="utf-8")
    with listening(inference=Echoing()) as address:
        result = subprocess.run(
            ["node", PACKAGE / "dist/examples/infer.js", address],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=True,
        )
    assert result.stdout.startswith("x [ 3n, 20n ] Float32Array(60) [")


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("channel", "printed"), [("{}", "5242880"), ('{ "grpc.max_receive_message_length": 9 }', "8")]
)
def test_an_answer_may_have_more_than_4_mib_unless_the_channel_forbids_it(
    channel: str, printed: str
) -> None:
    with listening(Models(large)) as address:
        result = run(
            f"""
            const client = new Client(process.argv[1], {{ channel: {channel} }});
            const call = client.models();
            console.log(await call.then(([{{ name }}]) => name.length, (error) => error.code));
            client.close();
            """,
            address,
        )
    assert result.stdout.strip() == printed


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("options", "code"), [("{ timeout: 0.5 }", "4"), ("{ signal: AbortSignal.timeout(500) }", "1")]
)
def test_a_list_of_models_ends_by_its_timeout_or_signal(options: str, code: str) -> None:
    with listening(Models(waiting)) as address:
        result = run(
            f"""
            const client = new Client(process.argv[1]);
            await client.models({options}).catch((error) => console.log(error.code));
            client.close();
            """,
            address,
        )
    assert result.stdout.strip() == code


@pytest.mark.usefixtures("built")
def test_a_call_of_a_closed_client_fails_as_calls_do() -> None:
    result = run(
        """
        const client = new Client("127.0.0.1:1");
        client.close();
        for (const call of [client.generate("x"), client.models(), client.stream("x").next()])
          await call.catch((error) =>
            console.log(error instanceof ShaperouterError, error.code, error.message),
          );
        """
    )
    assert result.stdout.splitlines() == ["true 1 the client is closed"] * 3


@pytest.mark.usefixtures("built")
def test_a_call_without_a_deadline_ends_when_the_service_has_vanished() -> None:
    with vanished() as address:
        # The script's clock runs 20 times as fast, so that 50 s pass soon.
        result = run(
            """
            const { setTimeout } = globalThis;
            globalThis.setTimeout = (callback, delay, ...rest) =>
              setTimeout(callback, delay / 20, ...rest);
            const client = new Client(process.argv[1]);
            const error = await new Promise((resolve) =>
              client.stubs.models.loadModel({}, resolve),
            );
            console.log(error.code, error.details);
            client.close();
            """,
            address,
        )
    assert result.stdout.strip() == "14 Connection dropped"
