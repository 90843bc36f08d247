"""Reading a run's results from the state of its batch."""

from collections.abc import Sequence

from shaperouter_service.decoding import Aligned, Logprobs, Piece
from shaperouter_service.decoding.state import Beams, State
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.generation.option import NO_TOKEN
from shaperouter_service.generation.run_events import (
    FinishReason,
    Hypothesis,
    NewTokens,
    PromptLogprobs,
    TokenLogprobs,
)
from shaperouter_service.worker.run import Run


def new_tokens(run: Run, state: State, logprobs: Logprobs) -> NewTokens:
    """The new tokens of a run without beam search.

    Args:
        run: The run; `generated` says how many tokens it had before.
        state: The state after the call that generated them.
        logprobs: The log-probabilities of that call, [R, steps, ...].
    """
    known = len(run.token_ids) + run.generated
    token_ids = state.tokens[run.row, 0, known : state.lengths[run.row]].tolist()
    input_usage = None if run.begun else run.input_usage
    if run.logprobs is None:
        return NewTokens(token_ids, input_usage=input_usage)
    found = _of_tokens(run, token_ids, logprobs, top=run.logprobs)
    return NewTokens(token_ids, found, input_usage)


def prompt_logprobs(run: Run, piece: Piece) -> PromptLogprobs | None:
    """The log-probabilities of a run's prompt that a piece adds; None if it adds none.

    The last piece may have tokens of the one before it, and those that another worker generated.
    """
    if piece.logprobs is None or run.prompt_logprobs is None:
        return None
    length = piece.logprobs.chosen.shape[1]
    first, end = run.scored, min(piece.start + length, len(run.token_ids) - 1)
    if first >= end:
        return None
    # The first token of a prompt has no log-probability.
    token_ids = run.token_ids[first + 1 : end + 1]
    found = _of_tokens(
        run, token_ids, piece.logprobs, top=run.prompt_logprobs, first=first - piece.start
    )
    return PromptLogprobs(found)


def _of_tokens(
    run: Run, token_ids: Sequence[int], logprobs: Logprobs, *, top: int, first: int = 0
) -> list[TokenLogprobs]:
    """The log-probabilities of a run's tokens, which are [R, first:, ...] of those of its batch."""
    return [
        TokenLogprobs(
            token_id=token_id,
            logprob=float(logprobs.chosen[run.row, step]),
            top=list(
                zip(
                    logprobs.top_tokens[run.row, step, :top].tolist(),
                    logprobs.top[run.row, step, :top].tolist(),
                    strict=True,
                )
            ),
        )
        for step, token_id in enumerate(token_ids, start=first)
    ]


def hypotheses(run: Run, state: State) -> list[Hypothesis]:
    """The hypotheses of a run with beam search, from best to worst.

    There may be fewer than requested, or none, if the search had too few tokens to choose from.
    """
    beams, prompt = state.beams, len(run.token_ids)
    if not isinstance(beams, Beams):
        raise TypeError("a run with beam search needs a state with beams")
    found = []
    for rank in range(run.num_return_sequences):
        if not beams.ended[run.row, rank]:
            break
        end = beams.ended_lengths[run.row, rank]
        token_ids = beams.ended_tokens[run.row, rank, prompt:end].tolist()
        logprobs = beams.ended_logprobs[run.row, rank, prompt:end].tolist()
        found.append(
            Hypothesis(
                token_ids=token_ids,
                finish_reason=finish_reason(run, token_ids),
                score=float(beams.ended_scores[run.row, rank]),
                logprobs=[]
                if run.logprobs is None
                else [
                    TokenLogprobs(token_id=token_id, logprob=logprob)
                    for token_id, logprob in zip(token_ids, logprobs, strict=True)
                ],
            )
        )
    return found


def no_hypothesis(run: Run) -> InvalidRequestError:
    """The error of a beam search that ended without a hypothesis."""
    return InvalidRequestError.of(
        "options",
        "must allow beam search a token at every step, but ban every token "
        f"after at most {run.generated} new tokens; allow an end token, or lower "
        "max_new_tokens",
    )


def no_speech(run: Run, state: State) -> float | None:
    """The probability that nobody speaks; None if it was not requested."""
    rules = run.options.transcript
    if not rules or rules.no_speech_token[0] == NO_TOKEN:
        return None
    return float(state.no_speech[run.row])


def aligned(run: Run, found: Aligned) -> Aligned:
    """The part of an alignment that belongs to a run."""
    tokens = len(run.token_ids)
    return Aligned(
        scores=found.scores[run.row, :, :tokens], logprobs=found.logprobs[run.row, : tokens - 1]
    )


def finish_reason(run: Run, token_ids: Sequence[int]) -> FinishReason:
    """Why a sequence ended, by its last token."""
    if token_ids[-1] in run.eos_token_ids:
        return FinishReason.EOS
    if run.stop_tokens is not None and run.stop_tokens.completed_by(token_ids):
        return FinishReason.STOP
    return FinishReason.LENGTH
