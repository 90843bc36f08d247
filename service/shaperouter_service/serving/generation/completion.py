"""Results of requests: completions of runs combined, and events collected."""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence

from shaperouter_service.conversation import joined
from shaperouter_service.generation.events import (
    Completed,
    Completion,
    Delta,
    GeneratedSequence,
    Generation,
    GenerationEvent,
    Timings,
    Usage,
)
from shaperouter_service.generation.run_events import (
    GraphUse,
    PromptLogprobs,
    RunCompletion,
    RunTimings,
    TokenLogprobs,
    merge_uses,
)
from shaperouter_service.routing.deployments import public_name
from shaperouter_service.serving.generation.preparation import PreparedRequest
from shaperouter_service.serving.generation.sequences import RunEnd
from shaperouter_service.serving.request_record import RequestRecord


def completion_of(
    prepared: PreparedRequest,
    ends: Sequence[RunEnd],
    record: RequestRecord,
    *,
    timings: RunTimings,
    graphs: Sequence[GraphUse],
) -> Completed:
    """Builds the completion of a request whose runs have ended.

    Args:
        prepared: The request.
        ends: Ends of its runs, in order.
        record: The router's own record of the request.
        timings: See `longest_timings`.
        graphs: See `graph_uses`.
    """
    inputs = [end.account.input_usage for end in ends]
    return Completed(
        sequences=[sequence for end in ends for sequence in end.sequences],
        completion=Completion(
            request_id=record.request_id,
            model=public_name(prepared.model),
            revision=record.revision,
            seed=prepared.options["seed"],
            usage=Usage(
                prompt_tokens=len(prepared.prompt),
                cached_prompt_tokens=min(each.cached_prompt_tokens for each in inputs),
                padded_prompt_tokens=max(each.padded_prompt_tokens for each in inputs),
                source_tokens=len(prepared.source),
                padded_source_tokens=max(each.padded_source_tokens for each in inputs),
                generated_tokens=record.generated_tokens,
            ),
            timings=Timings(
                runs=timings,
                route_seconds=record.route_seconds,
                time_to_first_token_seconds=record.time_to_first_token,
                total_seconds=record.total_seconds,
            ),
            graphs=graphs,
            worker=ends[0].worker,
            routes=tuple(record.routes) if prepared.explain else (),
        ),
    )


async def collected(events: AsyncIterator[GenerationEvent]) -> Generation:
    """Reads the events of a generation to their end and returns the result."""
    deltas: defaultdict[int, list[Delta]] = defaultdict(list)
    prompt_logprobs: list[TokenLogprobs] = []
    async for event in events:
        match event:
            case PromptLogprobs(logprobs):
                prompt_logprobs += logprobs
            case Delta():
                deltas[event.sequence].append(event)
            case Completed():
                completed = event
    return Generation(
        sequences=[
            GeneratedSequence(
                text="".join(delta.text for delta in deltas[number]),
                token_ids=[token for delta in deltas[number] for token in delta.token_ids],
                logprobs=[each for delta in deltas[number] for each in delta.logprobs],
                parts=joined(part for delta in deltas[number] for part in delta.parts),
                reasoning_tokens=sum(delta.reasoning_tokens for delta in deltas[number]),
                end=end,
            )
            for number, end in enumerate(completed.sequences)
        ],
        completion=completed.completion,
        prompt_logprobs=prompt_logprobs,
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
