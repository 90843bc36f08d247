"""Graphs update their caches in place, according to XLA's compiled module."""

import math
from collections.abc import Iterator

import pytest
from tensorflow.compiler.xla.service import hlo_pb2

from harness.engine import GOLDENS
from shaperouter_service.decoding import DecodeProgram, PrefillProgram
from shaperouter_service.decoding.program import Program
from shaperouter_service.models import Model, load_model

ROWS = 2
# Beyond what the vocabulary and the options' records take, so that a cache stands out.
DECODE_LENGTH = 1024
# No simple multiple or part of the head size and of the length: nothing but a copy of a cache then
# has a multiple of its elements.
PIECE = 44


class Compiled:
    """The module that XLA compiled for a graph.

    Attributes:
        cache_elements: Of one layer's keys, R * H * T * D.
    """

    def __init__(self, program: Program) -> None:
        program.trace()
        batch = program._new_batch()
        arguments = (*program._idle_arguments(batch), program._handles(batch))
        compiler = program._function.experimental_get_compiler_ir(*arguments)
        proto = hlo_pb2.HloProto.FromString(compiler(stage="optimized_hlo_proto_serialized"))
        family = program.model.family
        self.cache_dimensions = [program.rows, family.heads, program.length, family.head_size]
        self.cache_elements = math.prod(self.cache_dimensions)
        self.caches = 2 * family.layers
        self.module, self._buffers = proto.hlo_module, proto.buffer_assignment
        (self.entry,) = (
            computation
            for computation in self.module.computations
            if computation.id == self.module.entry_computation_id
        )
        self._instructions = {
            instruction.id: instruction
            for computation in self.module.computations
            for instruction in computation.instructions
        }

    @property
    def cache_parameters(self) -> list[int]:
        """Indices of the entry's parameters that are caches, in order."""
        return sorted(
            instruction.parameter_number
            for instruction in self.entry.instructions
            if instruction.opcode == "parameter"
            and list(instruction.shape.dimensions) == self.cache_dimensions
        )

    @property
    def temporary_bytes(self) -> int:
        """Memory of a call in addition to its arguments and results."""
        return sum(allocation.size for allocation in self._temporaries())

    def temporary_values(self) -> Iterator[tuple[str, str, list[int]]]:
        """The temporary values of a call: name, opcode, dimensions."""
        defined = {buffer.id: buffer.defined_at for buffer in self._buffers.logical_buffers}
        for allocation in self._temporaries():
            for assigned in allocation.assigned:
                place = defined[assigned.logical_buffer_id]
                instruction = self._instructions[place.instruction_id]
                shape = instruction.shape
                for index in place.shape_index:
                    shape = shape.tuple_shapes[index]
                yield instruction.name, instruction.opcode, list(shape.dimensions)

    def _temporaries(self) -> Iterator[hlo_pb2.BufferAllocationProto]:
        for allocation in self._buffers.buffer_allocations:
            if not (
                allocation.is_entry_computation_parameter
                or allocation.maybe_live_out
                or allocation.is_constant
                or allocation.is_thread_local
            ):
                yield allocation


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model("tiny", GOLDENS / "gpt2-odd-heads", "float32")


@pytest.fixture(scope="module")
def prefill_whole(model: Model) -> Compiled:
    return Compiled(PrefillProgram("whole", model, rows=ROWS, length=24, piece=PIECE))


@pytest.fixture(scope="module")
def prefill_pieces(model: Model) -> Compiled:
    return Compiled(PrefillProgram("pieces", model, rows=ROWS, length=120, piece=PIECE))


@pytest.fixture(scope="module")
def decode(model: Model) -> Compiled:
    return Compiled(DecodeProgram("decode", model, rows=ROWS, beams=1, length=DECODE_LENGTH))


@pytest.fixture(scope="module")
def decode_beams(model: Model) -> Compiled:
    return Compiled(DecodeProgram("beams", model, rows=ROWS, beams=4, length=DECODE_LENGTH))


ALL = ["prefill_whole", "prefill_pieces", "decode", "decode_beams"]
# A prompt that is read whole is all of its cache: every layer's is computed, then written.
IN_PLACE = [name for name in ALL if name != "prefill_whole"]


@pytest.fixture
def compiled(request: pytest.FixtureRequest) -> Compiled:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Compiled)
    return found


@pytest.mark.parametrize("compiled", ALL, indirect=True)
def test_every_cache_is_updated_in_place(compiled: Compiled) -> None:
    assert len(compiled.cache_parameters) == compiled.caches
    results = {
        entry.parameter_number: list(entry.output_shape_index)
        for entry in compiled.module.input_output_alias.entries
    }
    aliases = [results[number] for number in compiled.cache_parameters]
    # Of its own result: both lists are in the order of the handles.
    assert aliases == sorted(aliases)
    assert len({tuple(alias) for alias in aliases}) == compiled.caches


@pytest.mark.parametrize("compiled", IN_PLACE, indirect=True)
def test_no_cache_is_copied(compiled: Compiled) -> None:
    """A copy of a cache, or of part of a layer's, would be a temporary value."""
    copies = [
        value
        for value in compiled.temporary_values()
        if math.prod(value[2]) % compiled.cache_elements == 0
    ]
    assert not copies


def test_no_cache_of_a_source_is_copied() -> None:
    """Steps only read it."""
    model = load_model("tiny", GOLDENS / "t5-gated", "float32")
    compiled = Compiled(DecodeProgram("source", model, rows=ROWS, beams=4, length=208))
    family = model.family
    elements = ROWS * family.heads * family.max_source_length * family.head_size
    copies = [v for v in compiled.temporary_values() if math.prod(v[2]) % elements == 0]
    assert not copies


@pytest.mark.parametrize("compiled", ["decode", "decode_beams"], indirect=True)
def test_a_step_takes_less_memory_than_the_keys_of_a_layer(compiled: Compiled) -> None:
    """Only scores and masks grow with the cache, by at most one number per position and head."""
    assert compiled.temporary_bytes < compiled.cache_elements * 4


@pytest.mark.parametrize("compiled", ["prefill_whole", "prefill_pieces"], indirect=True)
def test_the_call_that_compiles_a_prefill_can_skip_the_prompt(compiled: Compiled) -> None:
    opcodes = {instruction.opcode for instruction in compiled.entry.instructions}
    assert "while" in opcodes
    assert "dot" not in opcodes
