"""Graphs update their caches in place and do not grow with layers, by XLA's compiled module."""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator

import pytest
import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

from harness.clocks import graphs_read_a_clock
from harness.engine import GOLDENS
from shaperouter_service import kernels
from shaperouter_service.decoding import DecodeProgram, EncodeProgram, PrefillProgram
from shaperouter_service.decoding.program import Program
from shaperouter_service.models import Model, Weights, load_model

ROWS = 2
# Beyond what the vocabulary and the options' records take, so that a cache stands out.
DECODE_LENGTH = 1024
# No simple multiple or part of the head size and of the length: nothing but a copy of a cache then
# has a multiple of its elements.
PIECE = 44


class Compiled:
    """The module that XLA compiled for a graph.

    Attributes:
        cache_elements: Number of elements of one layer's keys, R * H * T * D.
    """

    def __init__(self, program: Program) -> None:
        program.trace()
        batch = program._new_batch()
        arguments = (*program._idle_arguments(batch), program._handles(batch))
        compiler = program._function.experimental_get_compiler_ir(*arguments)
        proto = hlo_pb2.HloProto.FromString(compiler(stage="optimized_hlo_proto_serialized"))
        family = program.model.family
        is_looped = program.model.weights.is_packed
        layers = [program.rows, family.layers if is_looped else 1]
        of_layer = [family.heads, program.length, family.head_size]
        self.cache_dimensions = [*layers, *of_layer]
        self.cache_elements = program.rows * math.prod(of_layer)
        self.caches = 2 if is_looped else 2 * family.layers
        # Size of one matrix in the kernels' layout.
        self.panels = [
            list(program.model.weights[name].shape[-3:]) for name in program.model.weights.packed
        ]
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


# Programs by name; a prompt that is read whole is all of its cache.
PROGRAMS: dict[str, Callable[[Model], Program]] = {
    "prefill_whole": lambda model: PrefillProgram("p", model, rows=ROWS, length=24, piece=PIECE),
    "prefill_pieces": lambda model: PrefillProgram("p", model, rows=ROWS, length=120, piece=PIECE),
    "decode": lambda model: DecodeProgram("d", model, rows=ROWS, beams=1, length=DECODE_LENGTH),
    "decode_proposals": lambda model: DecodeProgram(
        "d", model, rows=ROWS, beams=1, length=DECODE_LENGTH, speculates=True
    ),
    "decode_beams": lambda model: DecodeProgram(
        "d", model, rows=ROWS, beams=4, length=DECODE_LENGTH
    ),
    "prefill_pieces_timed": lambda model: PrefillProgram(
        "p", model, rows=ROWS, length=120, piece=PIECE
    ),
    "decode_timed": lambda model: DecodeProgram(
        "d", model, rows=ROWS, beams=1, length=DECODE_LENGTH
    ),
}
ALL = [(name, packed) for name in PROGRAMS for packed in (False, True)]
# If a prompt is read whole, every layer's keys and values are computed, then written.
IN_PLACE = [one for one in ALL if one[0] != "prefill_whole"]
PREFILL = [one for one in ALL if one[0].startswith("prefill")]
DECODE = [one for one in ALL if one[0].startswith("decode")]


@functools.cache
def loaded(name: str, *, packed: bool) -> Model:
    """A tiny model, whose layers graphs loop over if it is packed."""
    if packed and kernels.choose("auto") is None:
        pytest.skip("there are no kernels here")
    return load_model("tiny", GOLDENS / name, "float32", packed=packed)


@functools.cache
def compiled_program(name: str, *, packed: bool) -> Compiled:
    model = loaded("gpt2-odd-heads", packed=packed)
    with graphs_read_a_clock() if name.endswith("_timed") else contextlib.nullcontext():
        return Compiled(PROGRAMS[name](model))


@pytest.fixture
def compiled(request: pytest.FixtureRequest) -> Compiled:
    name, packed = request.param
    return compiled_program(name, packed=packed)


@pytest.mark.parametrize("compiled", ALL, indirect=True)
def test_every_cache_is_updated_in_place(compiled: Compiled) -> None:
    assert len(compiled.cache_parameters) == compiled.caches
    results = {
        entry.parameter_number: list(entry.output_shape_index)
        for entry in compiled.module.input_output_alias.entries
    }
    aliases = [results[number] for number in compiled.cache_parameters]
    # Its own result: both lists are in the order of the handles.
    assert aliases == sorted(aliases)
    assert len({tuple(alias) for alias in aliases}) == compiled.caches


@pytest.mark.parametrize("compiled", IN_PLACE, indirect=True)
def test_no_cache_is_copied(compiled: Compiled) -> None:
    """A copy of a cache, or of part of a layer's, would be a temporary value."""
    copies = [
        value
        for value in compiled.temporary_values()
        # A kernel's results and its working memory can be as large, but are no copies.
        if value[1] != "custom-call" and math.prod(value[2]) % compiled.cache_elements == 0
    ]
    assert not copies


@pytest.mark.parametrize("compiled", ALL, indirect=True)
def test_no_weight_is_copied(compiled: Compiled) -> None:
    """A loop over layers hands the stacks of all layers to the kernels."""
    copies = [value for value in compiled.temporary_values() if value[2][-3:] in compiled.panels]
    assert not copies


@pytest.mark.parametrize("packed", [False, True], ids=["unrolled", "looped"])
def test_no_cache_of_a_source_is_copied(packed: bool) -> None:
    """Steps only read it."""
    model = loaded("t5-gated", packed=packed)
    compiled = Compiled(DecodeProgram("source", model, rows=ROWS, beams=4, length=208))
    family = model.family
    elements = ROWS * family.heads * family.max_source_length * family.head_size
    copies = [v for v in compiled.temporary_values() if math.prod(v[2]) % elements == 0]
    assert not copies


@pytest.mark.parametrize("compiled", DECODE, indirect=True)
def test_a_step_takes_less_memory_than_the_keys_of_a_layer(compiled: Compiled) -> None:
    """Only scores and masks grow with the cache, by at most one number per position and head."""
    assert compiled.temporary_bytes < compiled.cache_elements * 4


@pytest.mark.parametrize("compiled", PREFILL, indirect=True)
def test_the_call_that_compiles_a_prefill_can_skip_the_prompt(compiled: Compiled) -> None:
    opcodes = {instruction.opcode for instruction in compiled.entry.instructions}
    assert "while" in opcodes
    assert "dot" not in opcodes


def deepened(model: Model, layers: int) -> Model:
    """A model of another number of layers, whose weights are zeros."""
    stacks = tuple(f"{stack}." for stack in model.family.stacks)
    fields = {
        field.name: layers
        # All families are dataclasses.
        for field in dataclasses.fields(model.family)  # type: ignore[arg-type]
        if field.name in LAYER_FIELDS
    }
    weights = {
        name: tf.Variable(
            tf.zeros([layers, *one.shape[1:]] if name.startswith(stacks) else one.shape, one.dtype)
        )
        for name, one in model.weights.items()
    }
    family = dataclasses.replace(model.family, **fields)  # type: ignore[type-var]  # likewise
    return dataclasses.replace(
        model,
        family=family,
        weights=Weights(weights, model.weights.device, model.weights.packed),
    )


LAYER_FIELDS = {
    "n_layer",
    "num_hidden_layers",
    "num_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
}


@pytest.mark.parametrize("name", ["gpt2-odd-heads", "opt-pre", "t5-gated", "whisper-uneven"])
def test_a_deep_model_has_the_graphs_of_a_flat_one(name: str) -> None:
    flat, lines = loaded(name, packed=True), []
    for layers in (3, 17):
        model = deepened(flat, layers)
        programs: list[Program] = [
            PrefillProgram("prefill", model, rows=1, length=16, piece=8),
            DecodeProgram("decode", model, rows=1, beams=1, length=16),
            DecodeProgram("beams", model, rows=1, beams=2, length=16),
        ]
        if longest := model.family.max_source_length:
            programs.append(EncodeProgram("encode", model, rows=1, length=longest))
        lines.append([program.lower().module.count("\n") for program in programs])
    assert lines[0] == lines[1]
