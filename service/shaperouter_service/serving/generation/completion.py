"""The completion of a request, combined from those of its runs."""

from collections.abc import Iterable, Sequence

from shaperouter.v1 import generation_pb2, worker_pb2
from shaperouter_service.serving.generation.preparation import PreparedRequest
from shaperouter_service.serving.generation.sequences import RunEnd
from shaperouter_service.telemetry.requests import RequestRecord
from shaperouter_service.wire.messages import route_to_proto


def completion_of(
    prepared: PreparedRequest, ends: Sequence[RunEnd], record: RequestRecord
) -> generation_pb2.StreamCompletion:
    """Builds the completion of a request whose runs have ended.

    The runs of a request go side by side: each time is the longest of any run, and the calls of
    their graphs are added up.

    Args:
        prepared: The request.
        ends: Ends of its runs, in order.
        record: The router's own record of the request.
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
                queue_seconds=max(account.queue_seconds for account in accounts),
                stall_seconds=max(account.stall_seconds for account in accounts),
                prefill_seconds=max(account.prefill_seconds for account in accounts),
                decode_seconds=max(account.decode_seconds for account in accounts),
                time_to_first_token_seconds=record.time_to_first_token,
                total_seconds=record.total_seconds,
            ),
            graphs=graph_uses(accounts),
            worker=ends[0].worker,
            routes=map(route_to_proto, record.routes) if prepared.explain else (),
        ),
    )


def graph_uses(
    accounts: Iterable[worker_pb2.RunCompletion],
) -> Iterable[generation_pb2.GraphUse]:
    """Merges uses of graphs with the same asked and served signature."""
    uses: dict[tuple[bytes, bytes], generation_pb2.GraphUse] = {}
    for use in (use for account in accounts for use in account.graphs):
        # The keys are bytes, because messages cannot be keys.
        pair = use.asked.SerializeToString(), use.served.SerializeToString()
        if pair in uses:
            uses[pair].calls += use.calls
            uses[pair].device_seconds += use.device_seconds
        else:
            uses[pair] = generation_pb2.GraphUse()
            uses[pair].CopyFrom(use)
    return uses.values()
