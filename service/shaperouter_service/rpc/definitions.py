"""Pools of message definitions, and what is in them."""

from collections.abc import Iterator

from google.protobuf import any_pb2, wrappers_pb2
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

# The definitions of other projects' protocols. Protobuf's default pool refuses a second file of the
# same name with other content, and other packages of the process, such as TensorFlow, register the
# same files there.
OWN_POOL = DescriptorPool()
for _file in (any_pb2, wrappers_pb2):
    OWN_POOL.AddSerializedFile(_file.DESCRIPTOR.serialized_pb)


def files_of(file: FileDescriptor) -> Iterator[FileDescriptorProto]:
    """The files that a file imports, then the file itself."""
    for dependency in file.dependencies:
        yield from files_of(dependency)
    yield FileDescriptorProto.FromString(file.serialized_pb)
