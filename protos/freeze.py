"""Keeps the definitions of `shaperouter.v1` of a version, which later versions are tested against.

`python protos/freeze.py 0.1.0` writes protos/released/0.1.0.binpb, a FileDescriptorSet without
comments. `make release` does so for the version that it makes. Tests of version skew read the file.
"""

import argparse
import importlib
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor

HERE = Path(__file__).parent


def frozen() -> bytes:
    """The definitions in the stubs, with all that they import first."""
    found: dict[str, FileDescriptor] = {}

    def add(file: FileDescriptor) -> None:
        for each in file.dependencies:
            add(each)
        found.setdefault(file.name, file)

    for path in sorted((HERE / "shaperouter" / "v1").glob("*.proto")):
        add(importlib.import_module(f"shaperouter.v1.{path.stem}_pb2").DESCRIPTOR)
    definitions = descriptor_pb2.FileDescriptorSet()
    for each in found.values():
        each.CopyToProto(definitions.file.add())
    return definitions.SerializeToString(deterministic=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help="version that they are of")
    (HERE / "released" / f"{parser.parse_args().version}.binpb").write_bytes(frozen())
