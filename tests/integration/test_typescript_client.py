"""The TypeScript client, under Node, against a real service."""

import shutil
import subprocess
from pathlib import Path

import pytest

from harness.service import Service
from harness.waiting import wait_until

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "client/typescript"

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node")


@pytest.fixture(scope="module")
def built() -> None:
    subprocess.run(["make", "--silent", "typescript"], cwd=ROOT, check=True)


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a script of JavaScript that has the package's `Client` and `ShaperouterError`."""
    imports = f'import {{ Client, ShaperouterError }} from "{PACKAGE}/dist/src/index.js";'
    return subprocess.run(
        ["node", "--input-type=module", "--eval", imports + script, *arguments],
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
