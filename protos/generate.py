"""Generates the Python stubs and their types from the protos, or checks that they match.

`python protos/generate.py` writes the stubs of `shaperouter.v1` to the client, and those of other
projects' protos to the doors that serve them. With `--check` it fails if that would change
anything.
"""

import argparse
import filecmp
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).parents[1]
PROTOS = ROOT / "protos"


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Protos, and where their stubs go.

    Attributes:
        protos: Folder that the imports of the protos start from.
        stubs: Folder that the imports of the stubs start from, in the repository.
        contents: What of this folder is generated.
        package: The Python package of this folder; empty if stubs are imported by the names of
            their protos. Such stubs register with the default pool of Protobuf, and all others with
            a pool of our own, because other packages may register the same files.
    """

    protos: Path
    stubs: Path
    contents: str = "."
    package: str = ""


TREES = (
    Tree(protos=PROTOS, stubs=Path("client"), contents="shaperouter/v1"),
    Tree(
        protos=PROTOS / "third_party/triton",
        stubs=Path("service/shaperouter_service/edge/inference/stubs"),
        package="shaperouter_service.edge.inference.stubs",
    ),
    Tree(
        protos=PROTOS / "third_party/tensorflow",
        stubs=Path("service/shaperouter_service/edge/tfserving/stubs"),
        package="shaperouter_service.edge.tfserving.stubs",
    ),
)

# Protobuf's own protos.
_WELL_KNOWN = Path(grpc_tools.__file__).parent / "_proto"

_DEFAULT_POOL = "from google.protobuf import descriptor_pool as _descriptor_pool\n"
_OWN_POOL = "from shaperouter_service.rpc.definitions import OWN_POOL as _OWN_POOL\n"
_IMPORT = re.compile(r"^(?:from (?!google|grpc)([\w.]+) )?import (\w+_pb2)\b", re.MULTILINE)


def generate(tree: Tree, root: Path) -> None:
    """Writes the stubs of a tree below `root`."""
    target = root / tree.stubs
    target.mkdir(parents=True, exist_ok=True)
    # The plugin that types the gRPC stubs lies beside the interpreter.
    plugin = Path(sys.executable).parent / "protoc-gen-mypy_grpc"
    sources = sorted((tree.protos / tree.contents).rglob("*.proto"))
    messages = [f"--python_out={target}", f"--pyi_out={target}"]
    services = [f"--grpc_python_out={target}", f"--mypy_grpc_out=quiet:{target}"]
    has_services = [path for path in sources if "\nservice " in path.read_text()]
    for outputs, paths in ((messages, sources), (services, has_services)):
        arguments = [
            "protoc",
            f"--proto_path={tree.protos}",
            f"--proto_path={_WELL_KNOWN}",
            f"--plugin=protoc-gen-mypy_grpc={plugin}",
            *outputs,
            *map(str, paths),
        ]
        if protoc.main(arguments) != 0:
            sys.exit("protoc failed")
    if tree.package:
        for path in sorted(target.rglob("*_pb2*")):
            path.write_text(_moved(path.read_text(), tree.package))
            for folder in path.relative_to(target).parents:
                (target / folder / "__init__.py").write_text('"""Generated stubs."""\n')


def _moved(stub: str, package: str) -> str:
    """A stub that imports its siblings from a package, and registers with the pool of our own."""

    def moved(found: re.Match[str]) -> str:
        folder, module = found.groups()
        return f"from {package}{f'.{folder}' if folder else ''} import {module}"

    stub = _IMPORT.sub(moved, stub)
    stub = stub.replace(_DEFAULT_POOL, _OWN_POOL)
    return stub.replace("_descriptor_pool.Default()", "_OWN_POOL")


def differences(tree: Tree) -> list[str]:
    """Names the committed stubs of a tree that are not what the protos give."""
    with tempfile.TemporaryDirectory() as directory:
        generate(tree, Path(directory))
        place = tree.stubs / tree.contents
        fresh, committed = Path(directory) / place, ROOT / place
        names = {
            str(path.relative_to(folder))
            for folder in (fresh, committed)
            for path in folder.rglob("*_pb2*")
            if path.suffix != ".pyc"
        }
        _, differing, missing = filecmp.cmpfiles(fresh, committed, names, shallow=False)
        return sorted(str(place / name) for name in differing + missing)


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only tell whether they match")
    if not parser.parse_args().check:
        for tree in TREES:
            generate(tree, ROOT)
    elif stale := [path for tree in TREES for path in differences(tree)]:
        sys.exit(f"stubs do not match the protos, run make protos: {', '.join(stale)}")


if __name__ == "__main__":
    main()
