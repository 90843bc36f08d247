"""Builds the native kernels for ARM, and runs their test on an emulated processor.

Only a real processor can show what is faster. Here the results are checked, with the instructions
for bytes and without them.

Run by ``make test-arm``.
"""

import importlib.util
import subprocess
import tempfile
from pathlib import Path

from harness.debian import have_programs

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
FLAGS = ["-std=c++17", "-O3", "-ffp-contract=fast", "-Wall", "-Wextra", "-Werror"]
# With dot products of bytes, and without: the kernels that each can run are tested.
PROCESSORS = ("max", "cortex-a72")

TESTS = [Path(__file__).with_name(name) for name in ("kernels_test.cc", "rows_test.cc")]


def main() -> None:
    """Builds and runs; fails if anything does."""
    have_programs({COMPILER: "g++-aarch64-linux-gnu", EMULATOR: "qemu-user"}, "to test for ARM")
    service, tensorflow = map(_directory, ("shaperouter_service", "tensorflow"))
    native = service / "kernels/native"
    sources = sorted(native.glob("*.cc"))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        library, test = directory / "library.so", directory / "test"
        print("==> Building the library", flush=True)
        subprocess.run(
            [COMPILER, *FLAGS, "-fPIC", "-shared", "-isystem", tensorflow / "include", *sources,
             "-o", library],
            check=True,
        )  # fmt: skip
        print("==> Building its test", flush=True)
        # Nor what needs a GPU.
        others = ("handlers.cc", "row_handlers.cc", "clock.cc", "clock_handlers.cc")
        without_xla = [source for source in sources if source.name not in others]
        subprocess.run(
            [COMPILER, *FLAGS, "-static", "-pthread", f"-I{native}", *TESTS, *without_xla,
             "-o", test],
            check=True,
        )  # fmt: skip
        for processor in PROCESSORS:
            print(f"==> Running it on {processor}", flush=True)
            subprocess.run([EMULATOR, "-cpu", processor, test], check=True)


def _directory(package: str) -> Path:
    """Where a package lies, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(package)
    return Path(spec.origin).parent


if __name__ == "__main__":
    main()
