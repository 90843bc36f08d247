"""The engine: a worker's models, lanes, graphs and device thread, without any gRPC."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import structlog
import tensorflow as tf

from shaperouter.v1 import model_pb2, worker_pb2
from shaperouter_service.cache import CompileCache, Section
from shaperouter_service.decoding import DecodeProgram, PrefillProgram, Program, prepare_caches
from shaperouter_service.errors import UnknownModelError
from shaperouter_service.graphs import CachedMaking, GraphTable, Making, cache_key
from shaperouter_service.models import DeviceKind, Model, load_model, resolve_dtype
from shaperouter_service.routing.ladders import PREFILL_PIECE, Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.worker.device import DeviceThread
from shaperouter_service.worker.run import Run
from shaperouter_service.worker.scheduler import LaneScheduler
from shaperouter_service.worker.snapshot import graph_message, lane_message, model_message

log = structlog.get_logger(__name__)


class Engine:
    """Everything a worker computes with. Its methods may be called from any thread."""

    def __init__(
        self,
        models: Mapping[str, Path],
        *,
        dtype: Literal["auto", "float32", "bfloat16"],
        slots: int,
        queue_limit: int,
        compile_threads: int,
        on_change: Callable[[], None],
        on_defect: Callable[[], None],
        prefill_piece: int = PREFILL_PIECE,
        compile_cache: CompileCache | None = None,
    ) -> None:
        """Loads the models and starts the threads.

        Args:
            models: Directory of each model by name.
            dtype: Type of weights and caches; auto is bfloat16 on a GPU, float32 elsewhere.
            slots: Requests without beam search that run at a time, for each model.
            queue_limit: Requests that wait for a slot, for each model and beam width.
            compile_threads: Compilations at a time.
            on_change: Called from other threads when `snapshot` would tell something new.
            on_defect: Called from the device thread if it can't go on.
            prefill_piece: Tokens of a prompt that are read at a time.
            compile_cache: What graphs are loaded from and kept in, if anything.

        Raises:
            StartupError: A model cannot be loaded.
        """
        # Read when graphs are traced: tokens must not depend on the device's TensorFloat-32.
        tf.config.experimental.enable_tensor_float_32_execution(False)
        self._device = _device_name()
        self._on_change = on_change
        self._prefill_piece = prefill_piece
        self._models: dict[str, Model] = {}
        self._ladders: dict[str, Ladders] = {}
        self._lanes: dict[tuple[str, int], LaneScheduler] = {}
        self._sections: dict[str, Section] = {}
        self._graphs = GraphTable(
            self._build,
            threads=compile_threads,
            on_change=self._graph_changed,
            making=self._making,
        )
        for name, directory in models.items():
            log.info("loading model", model=name, directory=str(directory))
            model = load_model(name, directory, resolve_dtype(dtype))
            prepare_caches(model)
            ladders = Ladders.default(
                max_length=model.family.max_length, slots=slots, prefill_piece=prefill_piece
            )
            self._models[name], self._ladders[name] = model, ladders
            if compile_cache is not None:
                self._sections[name] = compile_cache.section(cache_key(model))
            for lane in ladders.lanes:
                self._lanes[name, lane.beams] = LaneScheduler(
                    model, ladders, self._graphs, beams=lane.beams, queue_limit=queue_limit
                )
            log.info(
                "model loaded",
                model=name,
                dtype=model.dtype.name,
                parameters=model.parameters,
                weight_bytes=model.weight_bytes,
            )
        self._thread = DeviceThread(
            list(self._lanes.values()), on_turn=on_change, on_defect=on_defect
        )
        self._thread.start()

    def submit(self, run: Run, model: str) -> None:
        """Queues a run.

        Raises:
            QueueFullError: There is no room.
        """
        self._lane(run, model).submit(run)
        self._thread.wake()
        self._on_change()

    def cancel(self, run: Run, model: str) -> None:
        """Frees the run's slot at the next chunk boundary; nothing happens if it has ended."""
        self._lane(run, model).cancel(run)
        self._thread.wake()

    def model(self, name: str) -> model_pb2.Model:
        """Describes a model.

        Raises:
            UnknownModelError: It is not loaded.
        """
        if name not in self._models:
            raise UnknownModelError(name, list(self._models))
        lanes = [lane for (model, _), lane in self._lanes.items() if model == name]
        return model_message(self._models[name], self._ladders[name], lanes)

    def snapshot(self, worker: str, incarnation: str) -> worker_pb2.WatchResponse:
        """Tells the whole state."""
        return worker_pb2.WatchResponse(
            worker=worker,
            incarnation=incarnation,
            device=self._device,
            models=[self.model(name) for name in self._models],
            graphs=[graph_message(graph, worker) for graph in self._graphs.graphs()],
            lanes=[lane_message(scheduler) for scheduler in self._lanes.values()],
            compile_queue_depth=self._graphs.queue_depth,
        )

    def _lane(self, run: Run, model: str) -> LaneScheduler:
        return self._lanes[model, self._ladders[model].lane(run.num_beams).beams]

    def _build(self, signature: Signature) -> Program:
        model = self._models[signature.model]
        rows, beams, length = signature.rows, signature.beams, signature.length
        name = f"{signature.model}_{signature.kind}_{rows}x{length}"
        if signature.kind is GraphKind.PREFILL:
            return PrefillProgram(name, model, rows=rows, length=length, piece=self._prefill_piece)
        name = f"{name}_beams{beams}"
        return DecodeProgram(name, model, rows=rows, beams=beams, length=length)

    def _making(self, program: Program) -> Making:
        section = self._sections.get(program.model.name)
        return Making(program) if section is None else CachedMaking(program, section)

    def _graph_changed(self) -> None:
        self._thread.wake()
        self._on_change()


def _device_name() -> str:
    return f"{DeviceKind.present()}:0"
