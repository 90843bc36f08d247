"""A worker without TensorFlow for tests of routers, which plays a script."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from grpc import aio

from harness.cuttable_socket import Wire, cuttable
from harness.fake_events import Events, Step, has, with_logprobs, with_tokens, without_scores
from harness.fake_model import SLOTS, describe_model
from shaperouter.v1 import (
    graph_pb2,
    model_pb2,
    signature_pb2,
    worker_pb2,
    worker_pb2_grpc,
)
from shaperouter_service.errors import StoppingError, UnknownModelError
from shaperouter_service.generation.run_events import GraphUse
from shaperouter_service.inference.calls import CallTimings, Tensors, WorkerResult
from shaperouter_service.routing.call_decision import CallShape
from shaperouter_service.routing.deployments import newest, public_name
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.rpc.heartbeat import HEARTBEAT
from shaperouter_service.rpc.server import listen, make_server
from shaperouter_service.rpc.tls import ServerTls
from shaperouter_service.system.drain import Drain
from shaperouter_service.tensors.checking import sizes_of
from shaperouter_service.wire import models as wire_models
from shaperouter_service.wire.calls import (
    ISOLATED_KEY,
    served_call_from_message,
    worker_call_from_message,
    worker_result_to_message,
)
from shaperouter_service.wire.deployments import deployments_from_message, deployments_to_message
from shaperouter_service.wire.signatures import signature_to_message
from shaperouter_service.worker.run_stream import RunStreams, Send


class FakeWorker(Events, worker_pb2_grpc.WorkerServiceServicer):
    """A worker that plays a script for every run, behind a socket whose connections can be cut.

    By default `script_of` returns `script`, or with beam search `hypotheses`; `after_completion`
    follows. A step is an event to send, an error to raise, or a function to await.

    The fake keeps the promises of the real worker: it sends its state at once, after each change
    and at each heartbeat; nothing follows a completion; log-probabilities are sent on request;
    errors are statuses; a run continues after the tokens of its request, and ends when it is
    cancelled. It loads the revisions of deployments once the test has set `loading_ends`, unless
    their locations are in `load_failures`. A requested graph is traced, compiled once the test sets
    `compiling_ends`, and then ready, unless its length is in `refusals` or `failures`. A killed
    process has no graphs.
    """

    def __init__(
        self, name: str, address: Path, models: Sequence[str], tls: ServerTls | None = None
    ) -> None:
        self.name = name
        self._tls = tls
        self.address = f"unix:{address}"
        self.incarnation = 0
        self.script: list[Step] = [self.tokens(5), self.tokens(7, 8), self.completion()]
        self.after_completion: list[Step] = []
        self.hypotheses = [self.hypothesis(-0.5, 5, 7, 8), self.hypothesis(-1.25, 9)]
        self.script_of: Callable[[worker_pb2.RunRequest], list[Step]] = self._script_of
        self.requests: list[worker_pb2.RunRequest] = []
        self.calls: list[worker_pb2.CallRequest] = []
        self.call_script: list[Step] = []  # before a call's answer
        self.answer: Callable[[Tensors], Tensors] = lambda inputs: {"y": 2 * inputs["x"]}
        self.metadata: list[dict[str, Any]] = []  # of each run
        self.seconds_left: list[float | None] = []  # until each run's deadline
        self.running = 0
        self.cancelled = 0  # runs that ended before their script
        self.released = asyncio.Event()  # lets paused runs continue
        self.draining = False
        self.isolates = True  # suspects; they never get that far otherwise
        self.warm = True
        self.told = 0  # snapshots
        self.models = [describe_model(name) for name in models]
        # What it loads while it runs: the description of a revision.
        self.describe: Callable[..., model_pb2.Model] = describe_model
        self.graphs: list[graph_pb2.Graph] = []
        self.budget = worker_pb2.CompileBudget(
            mode=worker_pb2.COMPILE_MODE_LAZY, room=100, max_graphs=100, threads=1
        )
        self.wanted: list[worker_pb2.WantRequest] = []
        self.refusals: dict[int, str] = {}  # reasons, by the signature's length
        # Reasons that are reported when a graph's turn comes.
        self.late_refusals: dict[int, str] = {}
        self.failures: dict[int, str] = {}  # errors, likewise
        self.before_compile_request: Step | None = None  # an error, or a function to await
        self.accepts_compile_requests = True
        self.compiling_ends = asyncio.Event()
        self.compiling_ends.set()
        self.orders: list[worker_pb2.DeployRequest] = []
        self.load_failures: dict[str, str] = {}  # errors, by location
        self.loading_ends = asyncio.Event()
        self.loading_ends.set()
        self.idle_seconds: dict[str, float] = {}  # of revisions, by their public names
        self._deployments: dict[str, worker_pb2.Deployment] = {}
        self._revisions: dict[str, worker_pb2.RevisionReport] = {}
        self._making: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self._path = address
        self._server: aio.Server | None = None
        self._wire: Wire | None = None
        self._stack = contextlib.AsyncExitStack()
        self._streams = RunStreams(self._run, Drain())

    @property
    def reports(self) -> list[worker_pb2.RevisionReport]:
        """The state of each revision that it was told to load."""
        return list(self._revisions.values())

    async def hold(self) -> None:
        """A step that blocks until the test sets `released`."""
        await self.released.wait()

    async def make_first_graphs(self) -> None:
        """Adds the graphs of a warm worker, which cover every request without beam search."""
        for model in self.models:
            if model.HasField("call"):
                first = served_call_from_message(model.call).ladders.first(model.name)
                signatures = [first] if first else []
            else:
                ladders = wire_models.LADDERS.from_message(model.ladders)
                signatures = [ladders.first_of(model.name, GraphKind.PREFILL)]
                signatures.append(ladders.first_decode(model.name, 1))
            for signature in signatures:
                self.graphs.append(self.graph(signature_to_message(signature)))
        await self.change()

    def graph(self, signature: signature_pb2.Signature) -> graph_pb2.Graph:
        """A ready graph on this worker."""
        return graph_pb2.Graph(
            signature=signature,
            worker=self.name,
            state=graph_pb2.GRAPH_STATE_READY,
            traces=1,
            compiles=1,
            compile_seconds=graph_pb2.Histogram(bounds=[1], counts=[0, 1], sum=2.5),
            stall_seconds=graph_pb2.Histogram(bounds=[1], counts=[1, 0], sum=0.5),
            device_seconds=graph_pb2.Histogram(bounds=[1], counts=[3, 0], sum=0.25),
        )

    # Its life.

    async def start(self) -> None:
        """Starts to serve, like a new process."""
        self.incarnation += 1
        inner = self._path.with_suffix(f".{self.incarnation}")
        server = self._server = make_server(
            [worker_pb2.DESCRIPTOR.services_by_name["WorkerService"]]
        )
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(self, server)
        listen(server, f"unix:{inner}", tls=self._tls)
        await server.start()
        self.draining = False
        self._stack.push_async_callback(server.stop, None)
        self._wire = await self._stack.enter_async_context(cuttable(self._path, inner))

    async def kill(self) -> None:
        """Cuts every connection without closing it, like SIGKILL."""
        await self._stack.aclose()
        for task in self._making:
            task.cancel()
        await asyncio.gather(*self._making, return_exceptions=True)
        self.graphs = []
        self._deployments.clear()
        self._revisions.clear()

    async def stop(self) -> None:
        """Ends all runs, like SIGTERM at the end of the grace period."""
        assert self._server
        await self._server.stop(None)
        await self.kill()

    def freeze(self) -> None:
        """Freezes without breaking connections, like SIGSTOP."""
        assert self._wire
        self._wire.open.clear()

    def thaw(self) -> None:
        """Continues, like SIGCONT."""
        assert self._wire
        self._wire.open.set()

    async def also_at(self, address: Path) -> str:
        """Serves at another address as well, and returns it."""
        inner = self._path.with_suffix(f".{self.incarnation}")
        await self._stack.enter_async_context(cuttable(address, inner))
        return f"unix:{address}"

    async def drain(self) -> None:
        """Stops accepting runs and ends watching, like SIGTERM; runs continue."""
        self.draining = True
        await self.change()

    async def change(self) -> None:
        """Notifies watchers of a changed state."""
        async with self._changed:
            self._changed.notify_all()

    # The service.

    async def Watch(  # noqa: N802 (gRPC's name)
        self, request: worker_pb2.WatchRequest, context: Any
    ) -> AsyncIterator[worker_pb2.WatchResponse]:
        """Sends the state, at once and after each change."""
        async with self._changed:
            while not self.draining:
                self.told += 1
                for report in self._revisions.values():
                    report.idle_seconds = self.idle_seconds.get(public_name(report.model), 0.0)
                yield worker_pb2.WatchResponse(
                    worker=self.name,
                    incarnation=f"{self._path.name}.{self.incarnation}",
                    device="CPU:0",
                    models=self.models,
                    graphs=self.graphs,
                    warm=self.warm,
                    budget=self.budget,
                    deployments=self._deployments.values(),
                    revisions=self._revisions.values(),
                    call_queues=[
                        worker_pb2.CallQueue(model=model.name)
                        for model in self.models
                        if model.HasField("call")
                    ],
                    lanes=[
                        worker_pb2.Lane(
                            model=model.name,
                            beams=lane.beams,
                            active_slots=self.running if lane.beams == 1 else 0,
                            # SLOTS in all.
                            total_slots=SLOTS - 1 if lane.beams == 1 else 1,
                        )
                        for model in self.models
                        for lane in model.ladders.lanes
                    ],
                )
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), HEARTBEAT)

    async def Runs(  # noqa: N802 (gRPC's name)
        self, request_iterator: AsyncIterator[worker_pb2.RunsRequest], context: Any
    ) -> AsyncIterator[worker_pb2.RunsResponse]:
        """Plays the script for each run, over streams like the real worker's."""
        async with contextlib.aclosing(self._streams.responses(request_iterator)) as responses:
            async for response in responses:
                yield response

    async def _run(self, start: worker_pb2.RunStart, send: Send) -> None:
        if self.draining:
            raise StoppingError
        request = start.request
        self.requests.append(request)
        self.metadata.append(dict(start.trace_context))
        known, scored = len(request.generated_token_ids), request.scored_tokens
        has_deadline = start.HasField("timeout_seconds")
        self.seconds_left.append(start.timeout_seconds if has_deadline else None)
        if request.model not in [model.name for model in self.models]:
            raise UnknownModelError(request.model, [])
        self.running += 1
        ended = False
        try:
            if request.suspect and self.isolates:
                send(worker_pb2.RunResponse(isolated=worker_pb2.Isolated()))
            for step in list(self.script_of(request)):
                if isinstance(step, Exception):
                    ended = True
                    raise step
                if isinstance(step, worker_pb2.RunResponse) and step.HasField("prompt_logprobs"):
                    skipped = min(scored, len(step.prompt_logprobs.logprobs))
                    scored -= skipped
                    if asked := without_scores(step, skipped, request):
                        send(asked)
                elif isinstance(step, worker_pb2.RunResponse):
                    new = step.tokens.token_ids[known:]
                    known -= len(step.tokens.token_ids) - len(new)
                    if new or not step.tokens.token_ids:
                        send(with_logprobs(with_tokens(step, new), request.options))
                else:
                    await step()
            ended = True
        finally:
            self.running -= 1
            self.cancelled += not ended

    async def Call(  # noqa: N802 (gRPC's name)
        self, request: worker_pb2.CallRequest, context: Any
    ) -> worker_pb2.CallResponse:
        """Plays the script of calls, and answers with the requested outputs."""
        if self.draining:
            raise StoppingError
        self.calls.append(request)
        self.metadata.append(dict(context.invocation_metadata() or ()))
        self.seconds_left.append(context.time_remaining())
        (model,) = (model for model in self.models if model.name == request.model)
        self.running += 1
        ended = False
        try:
            if request.suspect and self.isolates:
                await context.send_initial_metadata(((ISOLATED_KEY, "1"),))
            for step in list(self.call_script):
                if isinstance(step, Exception):
                    ended = True
                    raise step
                assert callable(step)
                await step()
            call, served = worker_call_from_message(request), served_call_from_message(model.call)
            sizes = sizes_of(call.inputs, served.spec)
            outputs = self.answer(call.inputs)
            ended = True
            shape = CallShape(model=model.name, rows=sizes.rows, sizes=sizes.axes)
            graph = shape.tight(served.ladders)
            result = WorkerResult(
                outputs={name: outputs[name] for name in call.outputs},
                timings=CallTimings(queue_seconds=0.125, stall_seconds=2.5, device_seconds=0.25),
                graphs=[GraphUse(asked=graph, served=graph, calls=1, device_seconds=0.0625)],
            )
            return worker_result_to_message(result)
        finally:
            self.running -= 1
            self.cancelled += not ended

    async def Want(  # noqa: N802 (gRPC's name)
        self, request: worker_pb2.WantRequest, context: Any
    ) -> worker_pb2.WantResponse:
        """Starts to compile the graphs that it does not refuse."""
        self.wanted.append(request)
        if isinstance(self.before_compile_request, Exception):
            raise self.before_compile_request
        if callable(self.before_compile_request):
            await self.before_compile_request()
        refused = []
        for signature in request.signatures:
            if reason := self.refusals.get(signature.length):
                refused.append(worker_pb2.RefusedGraph(signature=signature, reason=reason))
            elif self.accepts_compile_requests:
                task = asyncio.create_task(self._make(signature))
                self._making.add(task)
                task.add_done_callback(self._making.discard)
        return worker_pb2.WantResponse(refused=refused)

    async def Deploy(  # noqa: N802 (gRPC's name)
        self, request: worker_pb2.DeployRequest, context: Any
    ) -> worker_pb2.DeployResponse:
        """Begins to load revisions, and frees those that nothing uses any more."""
        self.orders.append(request)
        # The real rule, because routers rely on workers to decide as they do.
        told = deployments_from_message(
            worker_pb2.DeployResponse(
                deployments=[*self._deployments.values(), *request.deployments]
            )
        )
        for deployment in deployments_to_message(newest({}, told).values()).deployments:
            self._deployments[deployment.name] = deployment
        wanted = {each.model: each for each in request.held} | {
            revision.model: revision
            for deployment in self._deployments.values()
            for revision in deployment.revisions
        }
        present = {model.name for model in self.models}
        for revision in wanted.values():
            known = self._deployments.get(public_name(revision.model))
            progress = f"reads its files for version {known.version if known else 0}"
            if revision.model in self._revisions:
                # A load may go on for a later deployment; this one may have missed those between.
                if self._revisions[revision.model].progress:
                    self._revisions[revision.model].progress = progress
            elif revision.model not in present:
                task = asyncio.create_task(self._load(revision, progress))
                self._making.add(task)
                task.add_done_callback(self._making.discard)
        for model in self._revisions.keys() - wanted.keys():
            del self._revisions[model]
        for model in present - wanted.keys():
            if public_name(model) in self._deployments:
                self.models = [each for each in self.models if each.name != model]
        await self.make_first_graphs()
        return worker_pb2.DeployResponse(deployments=self._deployments.values())

    def learn(self, deployment: worker_pb2.Deployment) -> None:
        """Takes a deployment from another router. This one hears of it with the next snapshot."""
        self._deployments[deployment.name] = deployment

    async def _load(self, revision: worker_pb2.Revision, progress: str) -> None:
        report = self._revisions[revision.model] = worker_pb2.RevisionReport(
            model=revision.model,
            state=worker_pb2.REVISION_STATE_LOADING,
            progress=progress,
        )
        await self.change()
        await self.loading_ends.wait()
        if self._revisions.get(revision.model) is not report:
            # It was freed meanwhile.
            return
        report.ClearField("progress")
        if error := self.load_failures.get(revision.location):
            report.state, report.error = worker_pb2.REVISION_STATE_FAILED, error
        else:
            report.state = worker_pb2.REVISION_STATE_READY
            self.models.append(self.describe(revision.model, revision=revision.digest))
        await self.make_first_graphs()

    async def _make(self, signature: signature_pb2.Signature) -> None:
        graph = next((each for each in self.graphs if each.signature == signature), None)
        if graph is None:
            nothing = graph_pb2.Histogram(bounds=[1], counts=[0, 0])
            graph = graph_pb2.Graph(
                signature=signature,
                worker=self.name,
                compile_seconds=nothing,
                stall_seconds=nothing,
                device_seconds=nothing,
            )
            self.graphs.append(graph)
        elif graph.state not in (graph_pb2.GRAPH_STATE_FAILED, graph_pb2.GRAPH_STATE_COLD):
            return
        graph.ClearField("error")
        graph.ClearField("state_seconds")
        if reason := self.late_refusals.get(signature.length):
            graph.state = graph_pb2.GRAPH_STATE_QUEUED
            await self.change()
            graph.state, graph.error = graph_pb2.GRAPH_STATE_COLD, reason
            await self.change()
            return
        for state in (graph_pb2.GRAPH_STATE_TRACING, graph_pb2.GRAPH_STATE_COMPILING):
            graph.state = state
            await self.change()
        await self.compiling_ends.wait()
        if error := self.failures.get(signature.length):
            graph.state, graph.error = graph_pb2.GRAPH_STATE_FAILED, error
            graph.failures += 1
        else:
            graph.CopyFrom(self.graph(signature))
        await self.change()

    def _script_of(self, request: worker_pb2.RunRequest) -> list[Step]:
        if request.options.num_beams > 1:
            found = self.hypotheses[: request.options.num_return_sequences]
            return [self.completion(found[0].finish_reason, found), *self.after_completion]
        if not request.options.max_new_tokens:
            # It only reads the prompt.
            script = [s for s in self.script if not has(s, "tokens")]
            return [*script, *self.after_completion]
        return [*self.script, *self.after_completion]
