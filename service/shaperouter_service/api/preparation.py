"""From a message to what workers run: checked, tokenized, with nothing left to default."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shaperouter.v1 import generation_pb2, model_pb2, worker_pb2
from shaperouter_service.api.contradictions import contradictions
from shaperouter_service.api.options import resolve_options
from shaperouter_service.api.validation import (
    GenerateAny,
    decoder_input_violations,
    has_encoder,
    input_violations,
    option_violations,
    prompt_violations,
    room_violations,
    source_violations,
    without,
    word_violations,
)
from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.limits import MAX_BIASES
from shaperouter_service.text import Tokenizer

# Seconds for which tokens that nobody reads yet may stay at the worker: if that is lost, they are
# made again.
UNREAD_INTERVAL = 1.0


@dataclass(frozen=True, kw_only=True)
class PreparedRequest:
    """A request that can be run.

    Attributes:
        model: Name of the model.
        prompt: Its tokens; the decoder's, if the model has an encoder.
        source: Tokens of what an encoder reads; empty without one.
        options: How to generate, resolved.
        stop: Strings that end a sequence.
        echo: The prompt as its sequences begin with it; None if they do not.
        explain: Whether to tell how it was routed.
    """

    model: str
    prompt: Sequence[int]
    source: Sequence[int]
    options: worker_pb2.RunOptions
    stop: Sequence[str]
    echo: generation_pb2.Delta | None
    explain: bool

    def runs(
        self, request_id: str, client: str, *, reads_along: bool
    ) -> list[worker_pb2.RunRequest]:
        """What goes to the workers: one run, or one for each sequence that is sampled alone.

        The first has the request's id and seed, the others have ones that are made of them.

        Args:
            request_id: Id of the request.
            client: Who asks.
            reads_along: Whether the caller reads tokens before the end.
        """
        # Each token may be the one that completes a stop string.
        at_once = reads_along or self.stop
        count = 1 if self.options.num_beams > 1 else self.options.num_return_sequences
        runs = []
        for sequence in range(count):
            run = worker_pb2.RunRequest(
                request_id=f"{request_id}/{sequence}" if sequence else request_id,
                model=self.model,
                client=client,
                token_ids=self.prompt,
                source_token_ids=self.source,
                options=self.options,
                tokens_interval_seconds=0 if at_once else UNREAD_INTERVAL,
            )
            if count > 1:
                run.options.num_return_sequences = 1
                run.options.seed = sequence_seed(self.options.seed, sequence)
            runs.append(run)
        return runs


async def prepare(
    request: GenerateAny, model: model_pb2.Model, tokenizer: Tokenizer | None
) -> PreparedRequest:
    """Checks a request, tokenizes it and resolves its options.

    Args:
        request: As it came.
        model: That serves it.
        tokenizer: Of the model, if it has one.

    Raises:
        InvalidRequestError: With all violations there are.
    """
    options = request.options
    wrong_options = list(option_violations(options, model))
    wrong_source: list[Violation] = []
    source: Sequence[int] = ()
    if has_encoder(model):
        source, wrong_source = await _source(request, model, tokenizer)
        prompt, wrong_prompt = await _decoder_prompt(request, model, tokenizer)
    else:
        prompt, wrong_prompt = await _prompt(request, model, tokenizer)
    # Of a prompt that is wrong nothing follows: the options are checked as after one token.
    prompt_tokens = 1 if wrong_prompt else len(prompt)
    wrong_options += room_violations(options, model, prompt_tokens)
    sound = without(options, wrong_options)
    bad_words: list[list[int]] = []
    if tokenizer and sound.bad_words:
        bad_words = await tokenizer.encode_words(sound.bad_words[:MAX_BIASES])
        wrong_options += word_violations(model, bad_words)
    resolved = resolve_options(
        sound, model, room=model.max_length - prompt_tokens, bad_words=bad_words
    )
    violations = [*wrong_source, *wrong_prompt, *wrong_options, *contradictions(sound, resolved)]
    if violations:
        raise InvalidRequestError(*violations)
    return PreparedRequest(
        model=model.name,
        prompt=prompt,
        source=source,
        options=resolved,
        stop=options.stop,
        echo=_echo(request, model, prompt, tokenizer) if options.echo else None,
        explain=request.explain,
    )


async def _prompt(
    request: GenerateAny, model: model_pb2.Model, tokenizer: Tokenizer | None
) -> tuple[Sequence[int], list[Violation]]:
    wrong = [*input_violations(request, model), *decoder_input_violations(request, model)]
    if wrong:
        return (), wrong
    field, prompt = await _input(request, tokenizer)
    return prompt, list(prompt_violations(model, field, prompt))


async def _source(
    request: GenerateAny, model: model_pb2.Model, tokenizer: Tokenizer | None
) -> tuple[Sequence[int], list[Violation]]:
    if wrong := list(input_violations(request, model)):
        return (), wrong
    field, source = await _input(request, tokenizer)
    return source, list(source_violations(model, field, source))


async def _input(request: GenerateAny, tokenizer: Tokenizer | None) -> tuple[str, Sequence[int]]:
    """The field that was set of text and token ids, and its tokens."""
    if tokenizer and request.HasField("text"):
        return "text", await tokenizer.encode(request.text)
    return "token_ids.ids", request.token_ids.ids


async def _decoder_prompt(
    request: GenerateAny, model: model_pb2.Model, tokenizer: Tokenizer | None
) -> tuple[Sequence[int], list[Violation]]:
    """A decoder's prompt begins with its start, whether that was given or not."""
    if wrong := list(decoder_input_violations(request, model)):
        return (), wrong
    field, prompt = "decoder_token_ids.ids", list(request.decoder_token_ids.ids)
    if tokenizer and request.HasField("decoder_text"):
        field, prompt = "decoder_text", await tokenizer.encode_plain(request.decoder_text)
    if prompt[:1] != [model.decoder_start_token_id]:
        prompt = [model.decoder_start_token_id, *prompt]
    return prompt, list(prompt_violations(model, field, prompt))


def sequence_seed(seed: int, sequence: int) -> int:
    """The seed of one of several sequences that are sampled side by side.

    Sequence 0 has the request's own seed, so that it is what the seed gives alone. The others have
    the first 63 bits of the BLAKE2b digest of seed and number, 8 bytes each in big-endian order:
    seeds as far apart as if they were drawn, whatever the requests' own seeds are.
    """
    if sequence == 0:
        return seed
    numbers = seed.to_bytes(8, "big") + sequence.to_bytes(8, "big")
    return int.from_bytes(hashlib.blake2b(numbers, digest_size=8).digest(), "big") >> 1


def _echo(
    request: GenerateAny,
    model: model_pb2.Model,
    prompt: Sequence[int],
    tokenizer: Tokenizer | None,
) -> generation_pb2.Delta:
    field: Any = "decoder_text" if has_encoder(model) else "text"
    text = getattr(request, field)
    if tokenizer and not request.HasField(field):
        text = tokenizer.decode(prompt)
    return generation_pb2.Delta(text=text, token_ids=prompt)
