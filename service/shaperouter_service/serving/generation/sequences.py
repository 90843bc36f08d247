"""Conversion of a run's events to those of its sequences: text, ends and completions."""

import contextlib
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from shaperouter_service.conversation import MessagePart, joined
from shaperouter_service.fleet import Fleet
from shaperouter_service.generation.events import Delta, SequenceEnd
from shaperouter_service.generation.run_events import (
    FinishReason,
    Hypothesis,
    NewTokens,
    PromptLogprobs,
    RunCompletion,
    RunTimings,
    Stalled,
    TokenLogprobs,
)
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.serving.generation.messages import MessageWriter
from shaperouter_service.serving.request_record import RequestRecord
from shaperouter_service.text import Detokenizer, StopMatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """A run has ended successfully.

    Attributes:
        sequences: The ends of its sequences, in order.
        account: The run's completion.
        worker: The worker that ran it.
    """

    sequences: Sequence[SequenceEnd]
    account: RunCompletion
    worker: str


SequenceEvent: TypeAlias = Stalled | PromptLogprobs | Delta | RunEnd
_Ended: TypeAlias = RunCompletion | Hypothesis


class SequenceWriter:
    """Writes one sequence as deltas, which together have all of its tokens and text.

    Attributes:
        sequence: Number of the sequence.
    """

    def __init__(
        self,
        sequence: int,
        *,
        detokenizer: Detokenizer,
        eos_token_ids: Sequence[int],
        stop: Sequence[str],
        echo: Delta | None,
        message: MessageWriter | None = None,
    ) -> None:
        """Starts an empty sequence.

        Args:
            sequence: Number of the sequence.
            detokenizer: Converts its tokens to text.
            eos_token_ids: Tokens that end it. They are not text, even if a tokenizer shows them.
            stop: Texts that end it.
            echo: The prompt, if the sequence begins with it.
            message: Reads it as a message; None if it is only text.
        """
        self.sequence = sequence
        self._detokenizer = detokenizer
        self._eos_token_ids = frozenset(eos_token_ids)
        self._stop = StopMatcher(stop)
        self._has_stop = bool(stop)
        self._echo = echo
        self._message = message

    @property
    def may_be_stopped(self) -> bool:
        """Whether a stop string, or the message, may end it."""
        return self._has_stop or (self._message is not None and self._message.may_end)

    @property
    def stopped(self) -> bool:
        """Whether a stop string has appeared, or the message has ended; nothing is written then."""
        return self._stop.matched or (self._message is not None and self._message.is_complete)

    def write(self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs]) -> Delta:
        """Takes new tokens, up to the one that completes a stop string or the message."""
        # Only the last token can be an end token.
        ended = bool(token_ids) and token_ids[-1] in self._eos_token_ids
        shown = token_ids[:-1] if ended else token_ids
        text, taken, reasoning = "", 0, 0
        parts: list[MessagePart] = []
        for piece in self._pieces(shown):
            was_reasoning = self._in_reasoning
            new, new_parts = self._push(piece)
            text += new
            parts += new_parts
            taken += len(piece)
            reasoning += len(piece) if was_reasoning or self._in_reasoning else 0
            if self.stopped:
                break
        else:
            taken = len(token_ids)
        return Delta(
            sequence=self.sequence,
            text=text,
            token_ids=token_ids[:taken],
            logprobs=logprobs[:taken],
            parts=joined(parts),
            reasoning_tokens=reasoning,
        )

    @property
    def _in_reasoning(self) -> bool:
        return self._message is not None and self._message.in_reasoning

    def _pieces(self, token_ids: Sequence[int]) -> Iterable[Sequence[int]]:
        # Stop texts are looked for after each token, so that the result does not depend on chunks.
        if self._has_stop or (self._message and self._message.reads_one_by_one):
            return ([token] for token in token_ids)
        return self._message.split(token_ids) if self._message else [token_ids]

    def _push(self, token_ids: Sequence[int]) -> tuple[str, Sequence[MessagePart]]:
        new = self._detokenizer.push(token_ids)
        if self._message is None:
            return self._stop.push(new), ()
        self._message.detokenized(token_ids, new)
        text = self._stop.push(new)
        return text, self._message.write(text)

    def rest(self) -> Delta:
        """Ends the sequence; returns what was held back. A stop string may still appear in it."""
        text = "" if self.stopped else self._stop.push(self._detokenizer.finish())
        text += self._stop.finish()
        parts: list[MessagePart] = []
        if self._message is not None and not self._message.is_complete:
            parts = [*self._message.write(text), *self._message.finish()]
        return Delta(sequence=self.sequence, text=text, parts=joined(parts))

    def echo(self) -> list[Delta]:
        """Returns the deltas before the first written one: the prompt, if it is requested."""
        if self._echo is None:
            return []
        echo, self._echo = self._echo, None
        return [replace(echo, sequence=self.sequence)]


async def run_events(
    fleet: Fleet,
    run: RunRequest,
    writers: Sequence[SequenceWriter],
    record: RequestRecord,
    deadline: float | None,
) -> AsyncGenerator[SequenceEvent, None]:
    """Runs on the fleet and yields the events of the run's sequences.

    A stop string cancels the run at its worker, which frees the slot. The worker's completion is
    then lost; the router's own record replaces it.

    Args:
        fleet: The fleet that runs it.
        run: The run.
        writers: Writers of its sequences: as many as beam search returns, otherwise one.
        record: Records every event.
        deadline: Deadline on the monotonic clock, in seconds.

    Yields:
        Stalls, log-probabilities of the prompt, deltas, and finally the end.

    Raises:
        ServiceError: Any error of `Fleet.run`.
    """
    # The only writer, except with beam search, which writes nothing before its end.
    growing = writers[0]
    options = run.options
    may_end = growing.may_be_stopped or run.grammar or options["eos_token_ids"]
    min_tokens = max(1, options["min_new_tokens"]) if may_end else options["max_new_tokens"]
    events = fleet.run(
        run, deadline, min_tokens=min_tokens, on_route=record.routed, on_loss=record.lost
    )
    async with contextlib.aclosing(events):
        async for worker, event in events:
            record.worker = worker
            match event:
                case Stalled():
                    record.stalls(growing.sequence)
                    yield event
                case PromptLogprobs():
                    yield event
                case NewTokens(token_ids, logprobs, input_usage):
                    if input_usage is not None:
                        record.input_read(input_usage, growing.sequence)
                    delta = growing.write(token_ids, logprobs)
                    record.tokens(len(delta.token_ids), growing.sequence)
                    if growing.stopped:
                        # Record it before the caller reads on, which may take a while.
                        await events.aclose()
                    for part in (*growing.echo(), delta):
                        yield part
                    if growing.stopped:
                        if (rest := growing.rest()).parts:
                            yield rest
                        account = _account_of_stopped(record, growing.sequence)
                        yield RunEnd(
                            sequences=[_end(growing, account)], account=account, worker=worker
                        )
                        return
                case RunCompletion() as account:
                    for delta in _last_deltas(writers, account, record):
                        yield delta
                    ended: Sequence[_Ended] = account.hypotheses or [account]
                    ends = [_end(*pair) for pair in zip(writers, ended, strict=False)]
                    yield RunEnd(sequences=ends, account=account, worker=worker)


def _last_deltas(
    writers: Sequence[SequenceWriter], account: RunCompletion, record: RequestRecord
) -> Iterator[Delta]:
    """The deltas at a run's end: hypotheses, or the rest of a text."""
    if not account.hypotheses:
        # There may have been no new token.
        yield from writers[0].echo()
        rest = writers[0].rest()
        if rest.text or rest.parts:
            yield rest
    for writer, hypothesis in zip(writers, account.hypotheses, strict=False):
        delta = writer.write(hypothesis.token_ids, hypothesis.logprobs)
        rest = writer.rest()
        parts = joined((*delta.parts, *rest.parts))
        delta = replace(delta, text=delta.text + rest.text, parts=parts)
        record.tokens(len(delta.token_ids), writer.sequence)
        yield from (*writer.echo(), delta)


def _end(writer: SequenceWriter, ended: _Ended) -> SequenceEnd:
    reason = FinishReason.STOP if writer.stopped else ended.finish_reason
    score = ended.score if isinstance(ended, Hypothesis) else None
    return SequenceEnd(finish_reason=reason, score=score)


def _account_of_stopped(record: RequestRecord, sequence: int) -> RunCompletion:
    """The completion of a run that the router has cancelled, from what the router has received."""
    progress = record.progress(sequence)
    return RunCompletion(
        finish_reason=FinishReason.STOP,
        timings=RunTimings(
            stall_seconds=progress.stall_seconds, decode_seconds=progress.decode_seconds
        ),
        input_usage=progress.input_usage,
    )
