"""Requests for completions and chat completions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from shaperouter_service.edge.http.openai.fields import Fields, told
from shaperouter_service.edge.http.openai.response_format import add_schema
from shaperouter_service.generation.chat import Chat
from shaperouter_service.generation.inputs import Input
from shaperouter_service.generation.option import Needs
from shaperouter_service.generation.request import GenerationRequest
from shaperouter_service.generation.table import OPTIONS

# OpenAI's default for completions, which most clients rely on.
COMPLETION_TOKENS = 16
# Maximum number of prompts in one request.
MAX_PROMPTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIRequest:
    """A request to generate, and how to answer it.

    Attributes:
        requests: A request for each prompt.
        fields: Its fields, for errors in the caller's words.
        is_chat: Whether it is a chat completion.
        streams: Whether to answer as text is generated.
        includes_usage: Whether a stream ends with the numbers of tokens.
        scores_prompt: Whether the log-probabilities of a choice begin with those of its prompt,
            which its text begins with.
    """

    requests: Sequence[GenerationRequest]
    fields: Fields
    is_chat: bool
    streams: bool
    includes_usage: bool
    scores_prompt: bool


def chat_request(body: Mapping[str, Any]) -> OpenAIRequest:
    """Reads a request for a chat completion.

    Raises:
        InvalidRequestError: A field is unknown, missing, not supported, or not of its type.
    """
    fields = Fields(body)
    messages = fields.objects("messages")
    if not messages and not fields.violations:
        fields.refuse("messages", "must have at least one message, got none")
    tools = fields.objects("tools")
    choice = fields.take("tool_choice")
    if choice not in (None, "auto", "none"):
        fields.refuse("tool_choice", f"must be 'auto' or 'none', got {told(choice)}")
    chat = Chat(
        messages=messages,
        tools=() if choice == "none" else tools,
        template_arguments=fields.mapping("chat_template_kwargs"),
    )
    logprobs, top = fields.flag("logprobs"), fields.count("top_logprobs")
    if top is not None and not logprobs:
        fields.refuse("top_logprobs", f"must not be set unless logprobs is true, got {top}")
    fields.only("modalities", ["text"])
    fields.only("parallel_tool_calls", True)
    for name in ("audio", "functions", "function_call", "prediction", "reasoning_effort"):
        fields.only(name)
    for name in ("verbosity", "web_search_options"):
        fields.only(name)
    return _request(fields, [_empty()], chat=chat, logprobs=(top or 0) if logprobs else None)


def completion_request(body: Mapping[str, Any]) -> OpenAIRequest:
    """Reads a request for completions of one or more prompts.

    Raises:
        InvalidRequestError: See `chat_request`.
    """
    fields = Fields(body)
    inputs = _prompts(fields)
    logprobs = fields.count("logprobs")
    scores_prompt = logprobs is not None and body.get("echo") is True
    fields.only("suffix", "")
    best_of, n = fields.take("best_of"), body.get("n")
    if best_of not in (None, n or 1):
        fields.refuse("best_of", f"must be n, {n or 1}, got {told(best_of)}")
    return _request(fields, inputs, chat=None, logprobs=logprobs, scores_prompt=scores_prompt)


def _request(
    fields: Fields,
    inputs: Sequence[Input],
    *,
    chat: Chat | None,
    logprobs: int | None,
    scores_prompt: bool = False,
) -> OpenAIRequest:
    """Reads the fields that both kinds of requests have."""
    model, streams = fields.text("model"), fields.flag("stream")
    if not model:
        fields.refuse("model", "is required; GET /v1/models lists the models")
    stream_options = Fields(fields.mapping("stream_options"))
    includes_usage = stream_options.flag("include_usage")
    stream_options.only("include_obfuscation", False)
    if stream_options.violations:
        fields.refuse("stream_options", stream_options.violations[0].description)
    for name in ("presence_penalty", "frequency_penalty"):
        fields.only(name, 0, why="repetition_penalty is")
    fields.only("store", False)
    fields.only("prompt_logprobs", why="completions return them with echo and logprobs")
    options = _as_meant(fields.options())
    add_schema(fields, options)
    if options.get("max_new_tokens") == 0 and not scores_prompt:
        unless = "" if chat else " without both echo and logprobs"
        fields.refuse(fields.names["max_new_tokens"], f"must be at least 1{unless}, got 0")
    options.setdefault("num_return_sequences", 1)
    if chat is None:
        options.setdefault("max_new_tokens", COMPLETION_TOKENS)
    if logprobs is not None:
        options["logprobs"] = logprobs
        fields.names["logprobs"] = "logprobs" if chat is None else "top_logprobs"
    if scores_prompt:
        options["prompt_logprobs"] = logprobs
        fields.names["prompt_logprobs"] = "logprobs"
    fields.end()
    return OpenAIRequest(
        requests=[
            GenerationRequest(
                model=model,
                input=each,
                chat=chat,
                decoder_input=Input(
                    text_field="decoder_text",
                    text=None,
                    ids_field="decoder_token_ids",
                    token_ids=None,
                ),
                options=options,
                reads_along=streams,
            )
            for each in inputs
        ],
        fields=fields,
        is_chat=chat is not None,
        streams=streams,
        includes_usage=includes_usage,
        scores_prompt=scores_prompt,
    )


def _as_meant(options: dict[str, Any]) -> dict[str, Any]:
    """Options with OpenAI's meaning where it is another than ours."""
    if options.get("temperature") == 0:
        # Greedy decoding, whatever the other options of sampling are.
        for name in [name for name in options if _is_of_sampling(name, options[name])]:
            del options[name]
        options["do_sample"] = False
    several = options.get("num_return_sequences", 1) > 1
    if several and "do_sample" not in options and options.get("num_beams", 1) == 1:
        options["do_sample"] = True
    return options


def _is_of_sampling(name: str, value: Any) -> bool:
    """Whether an option acts only on sampling. One out of its range stays, to be refused."""
    option = OPTIONS[name]
    if option.needs is not Needs.SAMPLING:
        return False
    high = option.range.high if option.range else None
    limit = high if isinstance(high, int | float) else inf
    # A temperature of zero is out of the range, but means greedy decoding.
    is_zero = name == "temperature"
    return is_zero or option.range is None or option.range.contains(value, limit)


def _prompts(fields: Fields) -> list[Input]:
    """The prompts: a text, a list of token ids, or a list of either."""
    given = fields.take("prompt")
    if given is None:
        fields.refuse("prompt", "is required")
        return []
    prompts = given if isinstance(given, list) and not _is_ids(given) else [given]
    if not 1 <= len(prompts) <= MAX_PROMPTS:
        fields.refuse("prompt", f"must have from 1 to {MAX_PROMPTS} prompts, got {len(prompts)}")
        return []
    inputs = []
    for index, prompt in enumerate(prompts):
        field = "prompt" if prompts[0] is given else f"prompt[{index}]"
        if not isinstance(prompt, str) and not _is_ids(prompt):
            fields.refuse(field, f"must be a text or a list of token ids, got {told(prompt)}")
            continue
        is_text = isinstance(prompt, str)
        inputs.append(
            Input(
                text_field=field,
                text=prompt if is_text else None,
                ids_field=field,
                token_ids=None if is_text else prompt,
            )
        )
    return inputs


def _is_ids(prompt: Any) -> bool:
    # Of 32 bits, as in messages; whether the vocabulary has them is the core's to say.
    return (
        isinstance(prompt, list)
        and bool(prompt)
        and all(type(each) is int and -(2**31) <= each < 2**31 for each in prompt)
    )


def _empty() -> Input:
    return Input(text_field="text", text=None, ids_field="token_ids", token_ids=None)
