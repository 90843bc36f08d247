"""The engine: a worker's models, lanes, graphs and device thread, without any gRPC."""

from collections.abc import Callable, Mapping
from pathlib import Path

import structlog
import tensorflow as tf

from shaperouter.v1 import model_pb2, worker_pb2
from shaperouter_service.decoding import Lane, decode_program, prefill_program
from shaperouter_service.decoding.program import Program
from shaperouter_service.errors import UnknownModelError
from shaperouter_service.graphs import GraphTable
from shaperouter_service.models import load_model
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.worker.device import DeviceThread
from shaperouter_service.worker.run import Run
from shaperouter_service.worker.scheduler import LaneScheduler
from shaperouter_service.worker.snapshot import graph_message, lane_message, model_message

log = structlog.get_logger(__name__)

# One lane a model for now: without beam search, a request is one row.
BEAMS = 1


class Engine:
    """Everything a worker computes with. Its methods may be called from any thread."""

    def __init__(
        self,
        models: Mapping[str, Path],
        *,
        slots: int,
        queue_limit: int,
        compile_threads: int,
        on_change: Callable[[], None],
        on_defect: Callable[[], None],
    ) -> None:
        """Loads the models and starts the threads.

        Args:
            models: Directory of each model by name.
            slots: Requests that run at a time, for each model.
            queue_limit: Requests that wait for a slot, for each model.
            compile_threads: Compilations at a time.
            on_change: Called from other threads when `snapshot` would tell something new.
            on_defect: Called from the device thread if it can't go on.

        Raises:
            StartupError: A model cannot be loaded.
        """
        self._device = _device_name()
        self._on_change = on_change
        self._lanes: dict[str, LaneScheduler] = {}
        self._graphs = GraphTable(
            self._build, threads=compile_threads, on_change=self._graph_changed
        )
        for name, directory in models.items():
            log.info("loading model", model=name, directory=str(directory))
            model = load_model(name, directory)
            lane = Lane(model, slots)
            self._lanes[name] = LaneScheduler(
                lane,
                Ladders.default(max_length=model.family.max_length, slots=slots),
                self._graphs,
                beams=BEAMS,
                queue_limit=queue_limit,
            )
            log.info(
                "model loaded",
                model=name,
                parameters=model.parameters,
                weight_bytes=model.weight_bytes,
                kv_cache_bytes=lane.cache_bytes,
            )
        self._models = {name: model_message(scheduler) for name, scheduler in self._lanes.items()}
        self._thread = DeviceThread(
            list(self._lanes.values()), on_turn=on_change, on_defect=on_defect
        )
        self._thread.start()

    def submit(self, run: Run, model: str) -> None:
        """Queues a run.

        Raises:
            QueueFullError: There is no room.
        """
        self._lanes[model].submit(run)
        self._thread.wake()
        self._on_change()

    def cancel(self, run: Run, model: str) -> None:
        """Frees the run's slot at the next chunk boundary; nothing happens if it has ended."""
        self._lanes[model].cancel(run)
        self._thread.wake()

    def model(self, name: str) -> model_pb2.Model:
        """Describes a model.

        Raises:
            UnknownModelError: It is not loaded.
        """
        if name not in self._models:
            raise UnknownModelError(name, list(self._models))
        return self._models[name]

    def snapshot(self, worker: str, incarnation: str) -> worker_pb2.WatchResponse:
        """Tells the whole state."""
        return worker_pb2.WatchResponse(
            worker=worker,
            incarnation=incarnation,
            device=self._device,
            models=self._models.values(),
            graphs=[graph_message(graph, worker) for graph in self._graphs.graphs()],
            lanes=[lane_message(scheduler) for scheduler in self._lanes.values()],
            compile_queue_depth=self._graphs.queue_depth,
        )

    def _build(self, signature: Signature) -> Program:
        make = prefill_program if signature.kind is GraphKind.PREFILL else decode_program
        return make(
            f"{signature.model}_{signature.kind}_{signature.rows}x{signature.length}",
            self._lanes[signature.model].lane,
            rows=signature.rows,
            length=signature.length,
        )

    def _graph_changed(self) -> None:
        self._thread.wake()
        self._on_change()


def _device_name() -> str:
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    return f"{kind}:0"
