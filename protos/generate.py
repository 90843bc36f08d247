"""Generates the Python stubs and their types from the protos, or checks that they match.

`python protos/generate.py client` writes client/shaperouter/v1;
`python protos/generate.py --check client` fails if that would change anything.
"""

import argparse
import filecmp
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

PROTOS = Path(__file__).parent
PACKAGE = Path("shaperouter/v1")


def generate(target: Path) -> None:
    """Writes the stubs of all protos below `target`."""
    # The plugin that types the gRPC stubs lies beside the interpreter.
    plugin = Path(sys.executable).parent / "protoc-gen-mypy_grpc"
    sources = sorted(str(path) for path in (PROTOS / PACKAGE).glob("*.proto"))
    arguments = [
        "protoc",
        f"--proto_path={PROTOS}",
        f"--plugin=protoc-gen-mypy_grpc={plugin}",
        f"--python_out={target}",
        f"--pyi_out={target}",
        f"--grpc_python_out={target}",
        f"--mypy_grpc_out=quiet:{target}",
    ]
    if protoc.main([*arguments, *sources]) != 0:
        sys.exit("protoc failed")


def differences(target: Path) -> list[str]:
    """Names the stubs below `target` that are not what the protos give."""
    with tempfile.TemporaryDirectory() as directory:
        generate(Path(directory))
        fresh, committed = Path(directory) / PACKAGE, target / PACKAGE
        names = {path.name for folder in (fresh, committed) for path in folder.glob("*_pb2*")}
        _, differing, missing = filecmp.cmpfiles(fresh, committed, names, shallow=False)
        return sorted(differing + missing)


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only tell whether they match")
    parser.add_argument("target", type=Path, help="folder that holds the package shaperouter")
    arguments = parser.parse_args()
    if not arguments.check:
        generate(arguments.target)
    elif stale := differences(arguments.target):
        sys.exit(f"stubs do not match the protos, run make protos: {', '.join(stale)}")


if __name__ == "__main__":
    main()
