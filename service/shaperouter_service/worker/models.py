"""Loading of a worker's models, with their ladders and their sections of the compile cache."""

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from shaperouter_service.compile_cache import CompileCache, Section
from shaperouter_service.decoding import prepare_caches
from shaperouter_service.graphs import cache_key
from shaperouter_service.models import Model, load_model, resolve_dtype
from shaperouter_service.routing.costs import Dimensions
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.worker.config import EngineConfig
from shaperouter_service.worker.ladders import make_ladders

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class LoadedModels:
    """The models of a worker, by name.

    Attributes:
        models: The models.
        ladders: Their ladders.
        sections: Their sections of the compile cache; empty without a cache.
    """

    models: Mapping[str, Model]
    ladders: Mapping[str, Ladders]
    sections: Mapping[str, Section]

    def dimensions(self, name: str) -> Dimensions:
        """The dimensions of a model that the costs of its graphs depend on."""
        model, ladders = self.models[name], self.ladders[name]
        return Dimensions(
            weight_bytes=model.weight_bytes,
            cache_bytes_per_token=model.kv_cache_bytes_per_token,
            prefill_piece=ladders.prefill_piece,
            encoder_weight_bytes=model.encoder_weight_bytes,
            max_source_length=model.family.max_source_length,
            has_whole_source=ladders.encoder is not None and ladders.encoder.has_whole_source,
        )


def load_models(
    config: EngineConfig, *, kernels: str | None, compile_cache: CompileCache | None
) -> LoadedModels:
    """Loads all models of a worker.

    Args:
        config: The configuration of the engine.
        kernels: Instruction set of the native kernels; None without them.
        compile_cache: The compile cache, if there is one.

    Raises:
        StartupError: A model cannot be loaded, or cannot have the chosen rungs.
    """
    models: dict[str, Model] = {}
    ladders: dict[str, Ladders] = {}
    sections: dict[str, Section] = {}
    packed = kernels is not None
    dtype = resolve_dtype(config.dtype, packed=packed)
    for name, directory in config.models.items():
        log.info("loading model", model=name, directory=str(directory))
        model = load_model(name, directory, dtype, packed=packed)
        prepare_caches(model)
        models[name] = model
        ladders[name] = make_ladders(
            name,
            model.family,
            slots=config.slots,
            prefill_piece=config.prefill_piece,
            prefill_lengths=config.prefill_lengths.get(name, ()),
            decode_lengths=config.decode_lengths.get(name, ()),
            encode_lengths=config.encode_lengths.get(name, ()),
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
        )
    return LoadedModels(models=models, ladders=ladders, sections=sections)


def _section(compile_cache: CompileCache, model: Model) -> Section:
    """A model's section of the cache; logs why graphs that were cached before do not match."""
    key = cache_key(model)
    changed = compile_cache.changed_parts(key)
    # With other dimensions it is another model, not a changed one.
    if changed and "dimensions" not in changed:
        log.info("no cached graph matched", model=model.name, changed=changed, section=key.name)
    return compile_cache.section(key)
