"""Loading of a worker's models, with their ladders and their sections of the compile cache."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import structlog

from shaperouter_service.checkpoints.digest_cache import DigestCache
from shaperouter_service.checkpoints.functions import is_function
from shaperouter_service.checkpoints.model_files import read_json
from shaperouter_service.checkpoints.number_types import DType
from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.compile_cache import CompileCache, Section
from shaperouter_service.decoding import enter_thread, prepare_caches
from shaperouter_service.functions.loading import check_compiles, load_function
from shaperouter_service.graphs import cache_key, call_cache_key
from shaperouter_service.models import (
    Model,
    load_model,
    read_family,
    resolve_cache_dtype,
    resolve_dtype,
)
from shaperouter_service.models.call_model import CallModel
from shaperouter_service.models.encoders import is_encoder, load_encoder
from shaperouter_service.models.weight_loading import StartReading
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.costs import Dimensions
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.system.populated_memory import PopulatedMemory
from shaperouter_service.worker.config import EngineConfig
from shaperouter_service.worker.drafts import check_draft, check_no_draft
from shaperouter_service.worker.ladders import lengths_of, make_ladders
from shaperouter_service.worker.memory_need import MemoryCheck, MemoryNeed, Need, call_need
from shaperouter_service.worker.snapshot import describe_call_model, describe_model

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class LoadedModels:
    """The models of a worker, by name; `wait_for_weights` says when they can run.

    Attributes:
        models: The models that generate tokens.
        call_models: The models that are called once.
        ladders: The ladders of `models`.
        sections: The sections of all of them of the compile cache; empty without a cache.
        reading: What still reads weights, in order.
        digesting: What computes the digests of the models' files, by name.
        needs: The memory that models need, by name, on a CPU.
        kernels: Instruction set of the native kernels; empty without them.
    """

    models: Mapping[str, Model]
    call_models: Mapping[str, CallModel]
    ladders: Mapping[str, Ladders]
    sections: Mapping[str, Section]
    reading: Sequence[Future[None]]
    digesting: Mapping[str, Future[str]]
    needs: Mapping[str, Need]
    kernels: str

    def wait_for_weights(self) -> None:
        """Waits until all weights have been read. Graphs can be traced and compiled before that.

        Raises:
            StartupError: A weight cannot be read.
            OSError: No file descriptor is free for the thread that reads them.
        """
        for read in self.reading:
            read.result()
        for digest in self.digesting.values():
            digest.result()

    @property
    def all_ladders(self) -> dict[str, Ladders | CallLadders]:
        """The ladders of all of these models, by name."""
        return {**self.ladders, **{name: m.ladders for name, m in self.call_models.items()}}

    @property
    def digests(self) -> dict[str, str]:
        """The digests of the models' files, by name, as far as they are known."""
        return {name: digest.result() for name, digest in self.digesting.items() if digest.done()}

    @property
    def dimensions(self) -> dict[str, Dimensions]:
        """The dimensions of each model that the costs of its graphs depend on."""
        described = {
            name: describe_model(model, self.ladders[name], (), kernels=self.kernels)
            for name, model in self.models.items()
        } | {
            name: describe_call_model(model, model.ladders, kernels=self.kernels)
            for name, model in self.call_models.items()
        }
        return {name: Dimensions.of(model) for name, model in described.items()}


def load_models(
    config: EngineConfig,
    directories: Mapping[str, Path],
    *,
    kernels: str | None,
    compile_cache: CompileCache | None,
    prefix_growth: int,
    cache_growth: int | None = None,
    prefetched: dict[str, PopulatedMemory] | None = None,
) -> LoadedModels:
    """Loads models of a worker; a thread may still read weights when it returns.

    Args:
        config: The configuration of the engine.
        directories: The directory of each model, by name.
        kernels: Instruction set of the native kernels; None without them.
        compile_cache: The compile cache, if there is one.
        prefix_growth: See `require_memory`.
        cache_growth: Likewise.
        prefetched: Memory for the weights of models, by name; see `prefetch_weights`. It is emptied
            here, so that the memory is freed with its model.

    Raises:
        StartupError: A model cannot be loaded, does not fit into memory, or cannot have the chosen
            rungs.
    """
    memories = dict(prefetched or {})
    if prefetched:
        prefetched.clear()
    reader = ThreadPoolExecutor(1, thread_name_prefix="weights")
    try:
        return _load_models(
            config,
            directories,
            reader,
            kernels=kernels,
            compile_cache=compile_cache,
            prefix_growth=prefix_growth,
            cache_growth=cache_growth,
            memories=memories,
        )
    except BaseException:
        # What has not been read yet is of no use any more.
        reader.shutdown(wait=False, cancel_futures=True)
        raise


def _load_models(
    config: EngineConfig,
    directories: Mapping[str, Path],
    reader: ThreadPoolExecutor,
    *,
    kernels: str | None,
    compile_cache: CompileCache | None,
    prefix_growth: int,
    cache_growth: int | None,
    memories: Mapping[str, PopulatedMemory],
) -> LoadedModels:
    models: dict[str, Model] = {}
    call_models: dict[str, CallModel] = {}
    ladders: dict[str, Ladders] = {}
    memory = MemoryCheck(memories, prefix_growth=prefix_growth, cache_growth=cache_growth)
    sections: dict[str, Section] = {}
    reading: list[Future[None]] = []
    digesting: dict[str, Future[str]] = {}

    def start_reading(read: Callable[[], None]) -> None:
        def prepared() -> None:
            enter_thread()
            read()

        reading.append(reader.submit(prepared))

    digests = DigestCache(compile_cache)
    packed = kernels is not None
    dtype = resolve_dtype(config.dtype, packed=packed)
    cache_dtype = resolve_cache_dtype(config.kv_cache_dtype, dtype, packed=packed)
    for name, directory in directories.items():
        log.info("loading model", model=name, directory=str(directory))
        if (of_call := call_need(directory, dtype, packed=packed)) is not None:
            memory.require(name, of_call)
        called = _load_call_model(
            name,
            directory,
            dtype,
            packed=packed,
            cache=compile_cache,
            start_reading=start_reading,
            populated=memories.get(name),
        )
        if called is not None:
            check_no_draft(name, config.drafts, called.model.kind)
            digesting[name] = reader.submit(digests.digest, directory)
            call_models[name] = called.model
            if called.section is not None:
                sections[name] = called.section
            continue
        checkpoint = Checkpoint(directory, only_headers=True)
        family = read_family(checkpoint).limited(config.max_length)
        draft = config.drafts.get(name)
        of_draft = None
        if draft is not None:
            of_draft = check_draft(name, checkpoint, family, draft, packed=packed)
        need = MemoryNeed.of(
            checkpoint,
            family,
            dtype=dtype,
            packed=packed,
            number_bytes=cache_dtype.size,
            slots=config.slots,
            draft=of_draft,
        )
        memory.require(name, need)
        model = load_model(
            name,
            directory,
            dtype,
            packed=packed,
            cache_dtype=cache_dtype,
            max_length=config.max_length,
            start_reading=start_reading,
            draft=draft,
            populated=memories.get(name),
        )
        # Read after the weights, whose files are then in memory.
        digesting[name] = reader.submit(digests.digest, directory)
        prepare_caches(model)
        models[name] = model
        ladders[name] = make_ladders(
            name,
            model.family,
            slots=config.slots,
            prefill_piece=config.prefill_piece,
            prefill_lengths=lengths_of(config.prefill_lengths, name),
            decode_lengths=lengths_of(config.decode_lengths, name),
            encode_lengths=lengths_of(config.encode_lengths, name),
        )
        if compile_cache is not None:
            sections[name] = _section(compile_cache, model)
        log.info(
            "model loaded",
            model=name,
            dtype=model.weight_dtype.name,
            kernels=kernels,
            parameters=model.parameters,
            weight_bytes=model.weight_bytes,
            **({} if draft is None else {"draft": str(draft)}),
        )
    reader.shutdown(wait=False)
    return LoadedModels(
        models=models,
        call_models=call_models,
        ladders=ladders,
        sections=sections,
        reading=reading,
        digesting=digesting,
        needs=memory.needs,
        kernels=kernels or "",
    )


class _CallModel(NamedTuple):
    """A model that is called once, with its section of the compile cache, if it has one."""

    model: CallModel
    section: Section | None


def _load_call_model(
    name: str,
    directory: Path,
    dtype: DType,
    *,
    packed: bool,
    cache: CompileCache | None,
    start_reading: StartReading,
    populated: PopulatedMemory | None,
) -> _CallModel | None:
    """Loads a function or a text encoder; None if the directory has neither.

    Raises:
        StartupError: See `load_models`.
    """
    model: CallModel
    if is_function(directory):
        model, sizes = load_function(name, directory)
        section = _call_section(cache, model)
        if model.compiled:
            check_compiles(model, sizes, section)
    elif is_encoder(read_json(directory / "config.json")):
        model = load_encoder(
            name,
            directory,
            dtype,
            packed=packed,
            start_reading=start_reading,
            populated=populated,
        )
        section = _call_section(cache, model)
    else:
        return None
    log.info(
        "model loaded",
        model=name,
        kind=str(model.kind),
        dtype=model.weight_dtype.name,
        compiled=model.compiled,
        parameters=model.parameters,
        weight_bytes=model.weight_bytes,
    )
    return _CallModel(model, section)


def _call_section(cache: CompileCache | None, model: CallModel) -> Section | None:
    return cache.section(call_cache_key(model)) if cache and model.compiled else None


def _section(compile_cache: CompileCache, model: Model) -> Section:
    """A model's section of the cache; logs why graphs that were cached before do not match."""
    key = cache_key(model)
    changed = compile_cache.changed_parts(key)
    # With other dimensions it is another model, not a changed one.
    if changed and "dimensions" not in changed:
        log.info("no cached graph matched", model=model.name, changed=changed, section=key.name)
    return compile_cache.section(key)
