"""Clients of other projects, which tests run in environments of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from shaperouter_service.rpc.definitions import files_of

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests/clients"
_TRITON = ROOT / ".venvs/triton/bin/python"
_OPENAI = ROOT / ".venvs/openai/bin/python"
# LiteLLM is in the environment of OpenAI's client.
_LITELLM = ROOT / ".venvs/openai/bin/litellm"
_TFSERVING = ROOT / ".venvs/tfserving/packages"


def run_with_tritonclient(script: str, *arguments: str) -> str:
    """Runs a script of `tests/clients` with Triton's client and returns what it prints."""
    return _run(str(_needed(_TRITON)), script, *arguments)


def run_with_openai(script: str, *arguments: str) -> str:
    """Runs a script likewise with OpenAI's client."""
    return _run(str(_needed(_OPENAI)), script, *arguments)


def run_with_litellm(script: str, *arguments: str) -> str:
    """Runs a script likewise with LiteLLM."""
    _needed(_LITELLM)
    return run_with_openai(script, *arguments)


def run_with_tfserving(script: str, *arguments: str) -> str:
    """Runs a script likewise with TensorFlow Serving's stubs, and the TensorFlow of the tests."""
    return _run(sys.executable, script, *arguments, path=str(_needed(_TFSERVING)))


def write_definitions(path: Path, *services: ServiceDescriptor) -> None:
    """Writes the definitions of services to a file."""
    files = {file.name: file for service in services for file in files_of(service.file)}
    path.write_bytes(FileDescriptorSet(file=files.values()).SerializeToString())


def _needed(path: Path) -> Path:
    """A part of an environment. If it is missing, the test is skipped; in CI it fails."""
    if path.exists():
        return path
    message = f"{path.relative_to(ROOT)} is not here: `make test` makes it"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def _run(python: str, script: str, *arguments: str, path: str = "") -> str:
    done = subprocess.run(
        [python, str(SCRIPTS / script), *arguments],
        env=os.environ | {"PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        check=True,
    )
    return done.stdout
