"""The completion of a request, combined from those of its runs."""

from collections.abc import Iterable, Sequence

from shaperouter.v1 import generation_pb2
from shaperouter_service.generation.run_events import (
    GraphUse,
    RunCompletion,
    RunTimings,
    merge_uses,
)
from shaperouter_service.serving.generation.preparation import PreparedRequest
from shaperouter_service.serving.generation.sequences import RunEnd
from shaperouter_service.telemetry.requests import RequestRecord
from shaperouter_service.wire.decisions import decision_to_message
from shaperouter_service.wire.run_events import graph_use_to_message


def completion_of(
    prepared: PreparedRequest,
    ends: Sequence[RunEnd],
    record: RequestRecord,
    *,
    timings: RunTimings,
    graphs: Iterable[GraphUse],
) -> generation_pb2.StreamCompletion:
    """Builds the completion of a request whose runs have ended.

    Args:
        prepared: The request.
        ends: Ends of its runs, in order.
        record: The router's own record of the request.
        timings: See `longest_timings`.
        graphs: See `graph_uses`.
    """
    accounts = [end.account for end in ends]
    return generation_pb2.StreamCompletion(
        sequences=[sequence for end in ends for sequence in end.sequences],
        completion=generation_pb2.Completion(
            request_id=record.request_id,
            model=prepared.model,
            seed=prepared.options.seed,
            usage=generation_pb2.Usage(
                prompt_tokens=len(prepared.prompt),
                padded_prompt_tokens=max(account.padded_prompt_tokens for account in accounts),
                source_tokens=len(prepared.source),
                padded_source_tokens=max(account.padded_source_tokens for account in accounts),
                generated_tokens=record.generated_tokens,
            ),
            timings=generation_pb2.Timings(
                route_seconds=record.route_seconds,
                queue_seconds=timings.queue_seconds,
                stall_seconds=timings.stall_seconds,
                prefill_seconds=timings.prefill_seconds,
                decode_seconds=timings.decode_seconds,
                time_to_first_token_seconds=record.time_to_first_token,
                total_seconds=record.total_seconds,
            ),
            graphs=map(graph_use_to_message, graphs),
            worker=ends[0].worker,
            routes=map(decision_to_message, record.routes) if prepared.explain else (),
        ),
    )


def longest_timings(accounts: Sequence[RunCompletion]) -> RunTimings:
    """The longest of each duration, because the runs of a request go side by side."""
    return RunTimings(
        queue_seconds=max(account.timings.queue_seconds for account in accounts),
        stall_seconds=max(account.timings.stall_seconds for account in accounts),
        prefill_seconds=max(account.timings.prefill_seconds for account in accounts),
        decode_seconds=max(account.timings.decode_seconds for account in accounts),
    )


def graph_uses(accounts: Iterable[RunCompletion]) -> list[GraphUse]:
    """The uses of graphs by several runs, with the calls of each graph added up."""
    return merge_uses(use for account in accounts for use in account.graphs)
