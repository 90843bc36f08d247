"""Preparation of requests for workers: validation, tokenizing and default options."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from shaperouter_service.conversation import MessageRules, TextPart
from shaperouter_service.conversation.formats import THINK
from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.generation.chat import Chat, chat_violations
from shaperouter_service.generation.contradictions import contradictions
from shaperouter_service.generation.events import Delta
from shaperouter_service.generation.inputs import (
    decoder_input_violations,
    input_violations,
    prompt_violations,
    rendered_violations,
    source_violations,
)
from shaperouter_service.generation.limits import MAX_BIASES
from shaperouter_service.generation.option_validation import (
    option_violations,
    room_violations,
    without,
    word_violations,
)
from shaperouter_service.generation.request import GenerationRequest
from shaperouter_service.generation.resolution import Given, Resolved, expected_tokens, resolve
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.serving.generation.grammars import (
    grammar_of_answer,
    grammar_of_options,
)
from shaperouter_service.serving.generation.languages import (
    SOURCE,
    TARGET,
    language_violations,
    with_target_language,
)
from shaperouter_service.text import (
    ChatTemplateError,
    ClientTokenizer,
    constraint_violations,
    search_stop_violations,
)

# Seconds that tokens may stay at the worker while nobody reads them; if the worker is lost, they
# are generated again.
UNREAD_INTERVAL = 1.0


@dataclass(frozen=True, kw_only=True)
class PreparedRequest:
    """A validated request, ready to run.

    Attributes:
        model: Name of the model.
        prompt: Tokens of the prompt; the decoder's, if the model has an encoder.
        source: Tokens that an encoder reads; empty without one.
        options: How to generate, with every default resolved.
        stop: Texts that end a sequence.
        grammar: What the text must follow; empty for any text.
        context: Tokens of the prompt's end that the new text depends on; empty if it is a text of
            its own, such as an answer to a conversation.
        echo: The prompt to begin sequences with; None for none.
        explain: Whether to return how the request was routed.
        message: How to read sequences as messages; None if they are only text.
        expected_tokens: New tokens that each sequence is expected to take.
    """

    model: str
    prompt: Sequence[int]
    source: Sequence[int]
    options: Resolved
    stop: Sequence[str]
    grammar: str
    context: Sequence[int]
    echo: Delta | None
    explain: bool
    message: MessageRules | None
    expected_tokens: int

    def runs(
        self, request_id: str, client: str, *, prefix_scope: str = "", reads_along: bool
    ) -> list[RunRequest]:
        """The runs for the workers: one, or one for each sampled sequence without beam search.

        The first has the request's id and seed. The others have ids and seeds derived from these.

        Args:
            request_id: Id of the request.
            client: The client.
            prefix_scope: See `RunRequest`.
            reads_along: Whether the caller reads tokens before the end.
        """
        # Any token may complete a stop string, or the only call.
        at_once = reads_along or self.stop or (self.message and self.message.single_call)
        count = 1 if self.options["num_beams"] > 1 else self.options["num_return_sequences"]
        runs = []
        for sequence in range(count):
            options = self.options
            if count > 1:
                seed = sequence_seed(options["seed"], sequence)
                options = {**options, "num_return_sequences": 1, "seed": seed}
            if sequence:
                # All have the same prompt.
                options = {**options, "prompt_logprobs": None}
            runs.append(
                RunRequest(
                    request_id=f"{request_id}/{sequence}" if sequence else request_id,
                    model=self.model,
                    client=client,
                    prefix_scope=prefix_scope,
                    token_ids=self.prompt,
                    source_token_ids=self.source,
                    options=options,
                    grammar=self.grammar,
                    continues_text=bool(self.context),
                    tokens_interval_seconds=0 if at_once else UNREAD_INTERVAL,
                    expected_tokens=self.expected_tokens,
                )
            )
        return runs


async def prepare(
    request: GenerationRequest, model: ServedModel, tokenizer: ClientTokenizer | None
) -> PreparedRequest:
    """Validates a request, tokenizes it and resolves its options.

    Args:
        request: The request as received.
        model: The model that serves it.
        tokenizer: The model's tokenizer, if it has one.

    Raises:
        InvalidRequestError: It is invalid; contains all violations.
        TextQueueFullError: Too much text is already waiting to be tokenized.
    """
    given = request.options
    wrong_options = [
        *option_violations(given, model),
        *language_violations(request, model, tokenizer),
    ]
    wrong_source: list[Violation] = []
    source: Sequence[int] = ()
    message: MessageRules | None = None
    if request.chat is not None:
        prompt, message, wrong_prompt = await _chat_prompt(request, request.chat, model, tokenizer)
    elif model.is_encoder_decoder:
        sound = without(given, wrong_options)
        source, wrong_source = await _source(request, sound, model, tokenizer)
        prompt, wrong_prompt = await _decoder_prompt(request, model, tokenizer)
    else:
        prompt, wrong_prompt = await _prompt(request, model, tokenizer)
    # If the prompt is invalid, check the options as if it had one token.
    prompt_tokens = 1 if wrong_prompt else len(prompt)
    wrong_options += room_violations(given, model, prompt_tokens)
    sound = with_target_language(without(given, wrong_options), tokenizer)
    bad_words: list[list[int]] = []
    if tokenizer and "bad_words" in sound:
        bad_words = await tokenizer.encode_words(sound["bad_words"][:MAX_BIASES])
        wrong_options += word_violations(model, bad_words)
    resolved = resolve(
        sound,
        model,
        room=model.max_length - prompt_tokens,
        bad_words=bad_words,
        is_chat=request.chat is not None,
    )
    violations = [
        *wrong_source,
        *wrong_prompt,
        *wrong_options,
        *contradictions(sound, resolved, model),
    ]
    if tokenizer:
        violations += constraint_violations(tokenizer, sound, resolved)
        violations += search_stop_violations(
            tokenizer, sound.get("stop", ()), resolved["num_beams"]
        )
    grammar = ""
    context: Sequence[int] = ()
    if tokenizer and not violations:
        if request.chat is None or message is None:
            context = tokenizer.context(prompt)
            grammar, violations = await grammar_of_options(
                given, tokenizer, continues_text=bool(context)
            )
        else:
            grammar, message, violations = await grammar_of_answer(
                request.chat,
                message,
                given,
                tokenizer,
                may_call=request.reads_messages,
            )
    if violations:
        raise InvalidRequestError(*violations)
    return PreparedRequest(
        model=model.name,
        prompt=prompt,
        source=source,
        options=resolved,
        stop=given.get("stop", ()),
        grammar=grammar,
        context=context,
        echo=_echo(request, model, prompt, tokenizer) if given.get("echo") else None,
        explain=request.explain,
        message=message if request.reads_messages else None,
        expected_tokens=expected_tokens(given, resolved, is_chat=request.chat is not None),
    )


async def _prompt(
    request: GenerationRequest, model: ServedModel, tokenizer: ClientTokenizer | None
) -> tuple[Sequence[int], list[Violation]]:
    wrong = [
        *input_violations(request.input, model),
        *decoder_input_violations(request.decoder_input, model),
    ]
    if wrong:
        return (), wrong
    field, prompt = await request.input.tokens(tokenizer.encode if tokenizer else None)
    return prompt, list(prompt_violations(model, field, prompt))


async def _chat_prompt(
    request: GenerationRequest,
    chat: Chat,
    model: ServedModel,
    tokenizer: ClientTokenizer | None,
) -> tuple[Sequence[int], MessageRules | None, list[Violation]]:
    """Returns the prompt that the checkpoint's chat template makes of a conversation.

    Returns:
        The prompt, how to read the answer, and what is wrong.
    """
    if model.is_encoder_decoder:
        why = f"model {model.name} has an encoder, which reads no conversations"
        return (), None, [_messages_violation(why)]
    if tokenizer is None or not tokenizer.has_chat_template:
        why = f"model {model.name} has no chat template, so it only continues prompts"
        return (), None, [_messages_violation(why)]
    wrong = [*chat_violations(chat), *decoder_input_violations(request.decoder_input, model)]
    if request.input.text is not None or request.input.token_ids is not None:
        wrong.append(_messages_violation("must not be set together with text or token_ids"))
    if wrong:
        return (), None, wrong
    try:
        text = await tokenizer.render_chat(chat)
    except ChatTemplateError as error:
        why = f"the chat template of {model.name} cannot render them: {error}"
        return (), None, [Violation(field=error.field, description=why)]
    if wrong := list(rendered_violations(model, "messages", text)):
        return (), None, wrong
    # The template has written the special tokens.
    prompt = await tokenizer.encode_plain(text)
    form = tokenizer.message_format(chat)
    rules = MessageRules(
        format=form,
        in_reasoning=form.thinks and text.rstrip().endswith(THINK),
        tools=chat.tool_names,
        single_call=not chat.parallel_tool_calls,
    )
    return prompt, rules, list(prompt_violations(model, "messages", prompt))


def _messages_violation(description: str) -> Violation:
    return Violation(field="messages", description=description)


async def _source(
    request: GenerationRequest,
    sound: Given,
    model: ServedModel,
    tokenizer: ClientTokenizer | None,
) -> tuple[Sequence[int], list[Violation]]:
    if wrong := list(input_violations(request.input, model)):
        return (), wrong
    encode = None
    if tokenizer:
        encode = partial(
            tokenizer.encode_source,
            source_language=sound.get(SOURCE, ""),
            target_language=sound.get(TARGET, ""),
        )
    field, source = await request.input.tokens(encode)
    return source, list(source_violations(model, field, source))


async def _decoder_prompt(
    request: GenerationRequest,
    model: ServedModel,
    tokenizer: ClientTokenizer | None,
) -> tuple[Sequence[int], list[Violation]]:
    """Returns a decoder's prompt, with the start token first in any case."""
    if wrong := list(decoder_input_violations(request.decoder_input, model)):
        return (), wrong
    encode = tokenizer.encode_plain if tokenizer else None
    field, prompt = await request.decoder_input.tokens(encode)
    # A list that is too long is refused anyway and need not be copied.
    start = model.decoder_start_token_id
    if start is not None and len(prompt) <= model.max_length and prompt[:1] != [start]:
        prompt = [start, *prompt]
    return prompt, list(prompt_violations(model, field, prompt))


def sequence_seed(seed: int, sequence: int) -> int:
    """The seed of one of several sequences that are sampled side by side.

    Sequence 0 has the request's own seed, so it is the sequence that this seed gives alone. The
    others have the first 63 bits of the BLAKE2b digest of seed and number, 8 bytes each in
    big-endian order. Such seeds are as unrelated as random ones, whatever the requests' own seeds
    are.
    """
    if sequence == 0:
        return seed
    numbers = seed.to_bytes(8, "big") + sequence.to_bytes(8, "big")
    return int.from_bytes(hashlib.blake2b(numbers, digest_size=8).digest(), "big") >> 1


def _echo(
    request: GenerationRequest,
    model: ServedModel,
    prompt: Sequence[int],
    tokenizer: ClientTokenizer | None,
) -> Delta:
    given = request.decoder_input if model.is_encoder_decoder else request.input
    text = given.text
    if text is None:
        text = tokenizer.decode(prompt) if tokenizer else ""
    parts = [TextPart(text)] if request.reads_messages and text else []
    return Delta(sequence=0, text=text, token_ids=prompt, parts=parts)
