"""Definitions of other projects' protocols do not clash with those that others register."""

import subprocess
import sys

from harness.waiting import TIMEOUT

REGISTER = """
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default
for name, package, message in (
    ("grpc_service.proto", "inference", "ModelInferRequest"),
    ("tensorflow/core/framework/tensor.proto", "tensorflow", "TensorProto"),
):
    file = FileDescriptorProto(name=name, package=package)
    file.message_type.add(name=message).field.add(name="theirs", number=1, type="TYPE_BOOL",
                                                  label="LABEL_OPTIONAL")
    Default().AddSerializedFile(file.SerializeToString())
"""
IMPORT = """
from shaperouter_service.edge.inference.stubs.grpc_service_pb2 import ModelInferRequest
from shaperouter_service.edge.tfserving.stubs.tensorflow.core.framework.tensor_pb2 import (
    TensorProto,
)
"""
USE = """
from google.protobuf.descriptor_pool import Default
assert Default().FindMessageTypeByName("inference.ModelInferRequest").fields[0].name == "theirs"
assert ModelInferRequest.FromString(ModelInferRequest(id="1").SerializeToString()).id == "1"
assert TensorProto(float_val=[1.5]).float_val == [1.5]
"""


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, timeout=TIMEOUT)


def test_others_may_register_their_definitions_before_ours() -> None:
    run(REGISTER + IMPORT + USE)


def test_others_may_register_their_definitions_after_ours() -> None:
    run(IMPORT + REGISTER + USE)
