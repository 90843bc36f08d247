"""The parts of an engine that tests look into."""

from collections.abc import Mapping
from dataclasses import dataclass

from shaperouter_service.graphs import GraphTable
from shaperouter_service.routing.costs import Costs
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.traffic_record import TrafficRecorder
from shaperouter_service.worker.call_scheduler import CallScheduler
from shaperouter_service.worker.device import DeviceThread
from shaperouter_service.worker.prefix_cache import PrefixCache
from shaperouter_service.worker.programs import ProgramFactory
from shaperouter_service.worker.scheduler import LaneScheduler
from shaperouter_service.worker.warm_up import WarmUp


@dataclass(frozen=True, kw_only=True)
class EngineParts:
    """Parts of an engine. Only tests use it, to look inside and to hold a lane at a step.

    Attributes:
        graphs: The table of graphs.
        costs: The costs of graphs that the table records and compares.
        lanes: The lanes, by model and beam width; see `LaneScheduler` for their steps.
        calls: The schedulers of models that are called once.
        ladders: The ladders, by model.
        programs: Creates programs.
        warm_up: The graphs compiled before the worker is ready.
        recorder: Records the traffic.
        prefixes: The cache of prefixes.
        device: The thread that gives the lanes their turns.
        kernels: Instruction set of the native kernels; None without them.
    """

    graphs: GraphTable
    costs: Costs
    lanes: Mapping[tuple[str, int], LaneScheduler]
    calls: Mapping[str, CallScheduler]
    ladders: Mapping[str, Ladders]
    programs: ProgramFactory
    warm_up: WarmUp
    recorder: TrafficRecorder
    prefixes: PrefixCache
    device: DeviceThread
    kernels: str | None
