"""The models that are loaded on a worker, with the lanes and schedulers that serve them."""

import dataclasses
import functools
import threading
from collections.abc import Sequence
from typing import TypeVar

from shaperouter_service.errors import UnknownModelError
from shaperouter_service.graphs import GraphTable
from shaperouter_service.models import Model
from shaperouter_service.models.call_model import CallModel
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.traffic_record import TrafficRecorder
from shaperouter_service.worker.call_scheduler import CallScheduler
from shaperouter_service.worker.config import EngineConfig
from shaperouter_service.worker.device import Scheduler
from shaperouter_service.worker.input_reader import EncodedSources
from shaperouter_service.worker.memory_need import Need
from shaperouter_service.worker.models import LoadedModels
from shaperouter_service.worker.prefix_cache import PrefixCache
from shaperouter_service.worker.programs import ProgramFactory
from shaperouter_service.worker.run import Run
from shaperouter_service.worker.scheduler import LaneScheduler
from shaperouter_service.worker.snapshot import describe_call_model, describe_model
from shaperouter_service.worker.watchdog import Watchdog

T = TypeVar("T")


class ModelTable:
    """The models of a worker, by name. Any thread may read it, while one thread changes it.

    Each mapping is replaced, not changed, so that threads that look through one are not disturbed.

    Attributes:
        ladders: The ladders of the models that generate tokens.
        lanes: Their lanes, by model and beam width.
        calls: The schedulers of the models that are called once.
        prefixes: The cache of prefixes.
    """

    def __init__(
        self,
        config: EngineConfig,
        graphs: GraphTable,
        programs: ProgramFactory,
        recorder: TrafficRecorder,
        watchdog: Watchdog,
        *,
        kernels: str | None,
    ) -> None:
        """Starts without models; takes the parts that all lanes and schedulers share."""
        self._config = config
        self._graphs = graphs
        self._programs = programs
        self._recorder = recorder
        self._watchdog = watchdog
        self._kernels = kernels or ""
        # Held while the mappings change, and while all models are described by them.
        self._lock = threading.Lock()
        self._models: dict[str, Model] = {}
        self._call_models: dict[str, CallModel] = {}
        self._needs: dict[str, Need] = {}
        self._loaded: dict[str, LoadedModels] = {}
        self.prefixes = PrefixCache((), config.prefix_cache_bytes)
        self.ladders: dict[str, Ladders] = {}
        self.lanes: dict[tuple[str, int], LaneScheduler] = {}
        self.calls: dict[str, CallScheduler] = {}

    def add(self, loaded: LoadedModels) -> None:
        """Serves further models; the table of graphs and the programs must know them already."""
        for name, model in loaded.models.items():
            if not model.family.max_source_length:
                self.prefixes.add(name)
        lanes = self._make_lanes(loaded)
        calls = {name: self._make_scheduler(model) for name, model in loaded.call_models.items()}
        with self._lock:
            self._models = {**self._models, **loaded.models}
            self._call_models = {**self._call_models, **loaded.call_models}
            self._needs = {**self._needs, **loaded.needs}
            self._loaded = {**self._loaded, **dict.fromkeys(loaded.digesting, loaded)}
            self.ladders = {**self.ladders, **loaded.ladders}
            self.lanes = {**self.lanes, **lanes}
            self.calls = {**self.calls, **calls}

    def remove(self, name: str) -> None:
        """Stops serving a model; it must have no runs and no calls."""

        def others(known: dict[str, T]) -> dict[str, T]:
            return {model: value for model, value in known.items() if model != name}

        with self._lock:
            self.lanes = {key: lane for key, lane in self.lanes.items() if key[0] != name}
            self.calls, self.ladders = others(self.calls), others(self.ladders)
            self._models, self._call_models = others(self._models), others(self._call_models)
            self._needs, self._loaded = others(self._needs), others(self._loaded)
        self.prefixes.remove(name)

    @property
    def names(self) -> list[str]:
        """The names of all models."""
        return [*self._models, *self._call_models]

    @property
    def schedulers(self) -> Sequence[Scheduler]:
        """All lanes and schedulers of calls."""
        return [*self.lanes.values(), *self.calls.values()]

    @property
    def all_ladders(self) -> dict[str, Ladders | CallLadders]:
        """The present ladders of all models."""
        called = {name: scheduler.covers.ladders for name, scheduler in self.calls.items()}
        return {**self.ladders, **called}

    def schedulers_of(self, name: str) -> Sequence[LaneScheduler | CallScheduler]:
        """The lanes of a model, or its scheduler of calls."""
        lanes = [lane for (model, _), lane in self.lanes.items() if model == name]
        return [*lanes, *(scheduler for model, scheduler in self.calls.items() if model == name)]

    @property
    def cache_growth(self) -> int:
        """Bytes by which the caches of all models may still grow, on a CPU."""
        need = sum(need.caches for need in self._needs.values())
        return max(0, need - sum(lane.cache_bytes for lane in self.lanes.values()))

    def lane(self, run: Run, model: str) -> LaneScheduler:
        """The lane of a run.

        Raises:
            UnknownModelError: No such model is loaded.
        """
        ladders, lanes = self.ladders, self.lanes
        if model in ladders:
            key = model, ladders[model].lane(run.lane_beams or run.num_beams).beams
            # It may just have been removed.
            if key in lanes:
                return lanes[key]
        raise UnknownModelError(model, list(ladders))

    def call_scheduler(self, model: str) -> CallScheduler:
        """The scheduler of a model that is called once.

        Raises:
            UnknownModelError: No such model is loaded.
        """
        if model not in self.calls:
            raise UnknownModelError(model, list(self.calls))
        return self.calls[model]

    def descriptions(self) -> list[ServedModel]:
        """Describes all models."""
        with self._lock:
            return [self._describe(name) for name in self.names]

    def describe(self, name: str) -> ServedModel:
        """Describes a model.

        Raises:
            UnknownModelError: The model is not loaded.
        """
        with self._lock:
            return self._describe(name)

    def _describe(self, name: str) -> ServedModel:
        if name in self.calls:
            ladders = self.calls[name].covers.ladders
            model = describe_call_model(self._call_models[name], ladders, kernels=self._kernels)
        elif name in self._models:
            lanes = [lane for (its, _), lane in self.lanes.items() if its == name]
            model = describe_model(
                self._models[name], self.ladders[name], lanes, kernels=self._kernels
            )
        else:
            raise UnknownModelError(name, self.names)
        return dataclasses.replace(model, revision=self._loaded[name].digests.get(name, ""))

    def is_used(self, name: str) -> bool:
        """Whether a model has runs or calls."""
        for scheduler in self.schedulers_of(name):
            if isinstance(scheduler, CallScheduler):
                if scheduler.report().calls:
                    return True
            # In this order, because an admitted run has a slot before it leaves the queue.
            elif scheduler.queued or scheduler.active_slots:
                return True
        return False

    def _make_lanes(self, loaded: LoadedModels) -> dict[tuple[str, int], LaneScheduler]:
        encoded = {name: EncodedSources() for name in loaded.models}
        return {
            (name, lane.beams): LaneScheduler(
                loaded.models[name],
                ladders,
                self._graphs,
                beams=lane.beams,
                queue_limit=self._config.queue_limit,
                encoded=encoded[name],
                prefixes=self.prefixes,
                watchdog=self._watchdog,
                recorder=self._recorder,
                speculates=self._config.speculate == "ngram",
            )
            for name, ladders in loaded.ladders.items()
            for lane in ladders.lanes
        }

    def _make_scheduler(self, model: CallModel) -> CallScheduler:
        return CallScheduler(
            model,
            self._graphs,
            queue_limit=self._config.queue_limit,
            watchdog=self._watchdog,
            recorder=self._recorder,
            on_ladders=functools.partial(self._programs.set_call_ladders, model.name),
            check_padding=self._config.check_padding,
        )
