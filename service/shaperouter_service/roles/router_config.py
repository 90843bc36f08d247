"""Settings of a router, apart from the router's code, which takes longer to import."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shaperouter_service.checkpoints.model_locations import ModelLocation
from shaperouter_service.routing.deployments import Target
from shaperouter_service.routing.on_demand import OnDemandLimits
from shaperouter_service.rpc.tls import ServerTls, WorkerTls


@dataclass(frozen=True, kw_only=True)
class RouterConfig:
    """Settings of a router.

    Attributes:
        models: The served models, whose tokenizers it reads.
        listen: Address of the gRPC server.
        metrics_listen: Address of /metrics.
        grace: Seconds that running requests get to finish when the service stops.
        max_queue_seconds: Maximum expected wait for a slot.
        max_calls: Maximum number of generations, transcriptions and calls of functions in progress.
        max_recording_memory: Maximum bytes of all recordings.
        max_tensor_memory: Maximum bytes of all tensors and their requests.
        http_listen: Address of the HTTP server; None means no such server.
        console: Whether the HTTP server serves the console.
        trace_url: Address of a request's trace, with `{trace_id}`; empty for no links to traces.
        traffic_record: Directory of the record of traffic; None if this process has none.
        own_workers: Whether the workers are child processes, whose metrics this process shows.
        health_listen: Address of the health server; None means no such server.
        tls: TLS settings of the gRPC server; None means plain text.
        tokens: File of the clients that may call; None means that anyone may.
        shares_prefixes: Whether clients with different tokens share cached prefixes.
        worker_tls: TLS settings for workers; None means plain text.
        signature_histograms: Whether each signature of own workers has its own histograms.
        repository: Directory below which models may be loaded at run time; None if they must not.
        on_demand: Limits of the models that requests load; None if they load none.
        aliases: Further names, and the models that their requests go to, with their shares.
        ready_without_workers: Whether the service is ready as soon as it listens; else once every
            model has a worker, and while one of them has.
    """

    models: Sequence[ModelLocation]
    listen: str
    metrics_listen: str
    grace: float
    max_queue_seconds: float
    max_calls: int
    max_recording_memory: int
    max_tensor_memory: int
    own_workers: bool
    http_listen: str | None = None
    console: bool = True
    trace_url: str = ""
    traffic_record: Path | None = None
    health_listen: str | None = None
    tls: ServerTls | None = None
    tokens: Path | None = None
    shares_prefixes: bool = False
    worker_tls: WorkerTls | None = None
    signature_histograms: bool = True
    repository: Path | None = None
    on_demand: OnDemandLimits | None = None
    aliases: Mapping[str, Sequence[Target]] = field(default_factory=dict)
    ready_without_workers: bool = False
