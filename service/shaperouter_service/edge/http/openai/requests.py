"""Requests for completions and chat completions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from shaperouter_service.edge.http.openai.fields import Fields, told
from shaperouter_service.edge.http.openai.messages import take_messages
from shaperouter_service.edge.http.openai.response_format import add_schema
from shaperouter_service.edge.http.openai.tools import Tools, take_tools
from shaperouter_service.generation.chat import Chat
from shaperouter_service.generation.inputs import Input
from shaperouter_service.generation.option import INT64_MAX, Needs
from shaperouter_service.generation.option_table import OPTIONS
from shaperouter_service.generation.request import GenerationRequest

# OpenAI's default for completions, which most clients rely on.
COMPLETION_TOKENS = 16
# Maximum number of prompts in one request.
MAX_PROMPTS = 256
# The argument of templates, and the field of chat completions, that says how much to reason.
_EFFORT = "reasoning_effort"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIRequest:
    """A request to generate, and how to answer it.

    Attributes:
        requests: A request for each prompt.
        fields: Its fields, for errors in the caller's words.
        is_chat: Whether it is a chat completion.
        streams: Whether to answer as text is generated.
        includes_usage: Whether a stream ends with the numbers of tokens.
        counts_along: Whether each of its pieces has those so far.
        scores_prompt: Whether the log-probabilities of a choice begin with those of its prompt,
            which its text begins with.
    """

    requests: Sequence[GenerationRequest]
    fields: Fields
    is_chat: bool
    streams: bool
    includes_usage: bool
    counts_along: bool
    scores_prompt: bool


def chat_request(body: Mapping[str, Any]) -> OpenAIRequest:
    """Reads a request for a chat completion.

    Raises:
        InvalidRequestError: A field is unknown, missing, not supported, or not of its type.
    """
    fields = Fields(body)
    messages = take_messages(fields)
    tools, effort = take_tools(fields, nested=True), fields.take("reasoning_effort")
    chat = take_chat(fields, messages, tools, effort=effort, effort_field="reasoning_effort")
    logprobs, top = fields.flag("logprobs"), fields.count("top_logprobs")
    if top is not None and not logprobs:
        fields.refuse("top_logprobs", f"must not be set unless logprobs is true, got {top}")
    fields.only("modalities", ["text"])
    for name in ("audio", "functions", "function_call", "prediction"):
        fields.only(name)
    fields.only("verbosity", "medium")
    fields.only("web_search_options")
    return _request(fields, [no_input()], chat=chat, logprobs=(top or 0) if logprobs else None)


def take_chat(
    fields: Fields,
    messages: Sequence[Mapping[str, Any]],
    tools: Tools,
    *,
    effort: Any,
    effort_field: str,
) -> Chat:
    """Makes a conversation, and takes the arguments of its template.

    Args:
        fields: The fields of the request.
        messages: The messages, as templates read them.
        tools: The tools.
        effort: How much to reason, as the caller says; None if the caller does not. Only templates
            that read it can do it.
        effort_field: The field that says so.
    """
    arguments = fields.mapping("chat_template_kwargs")
    if effort is not None:
        if not isinstance(effort, str):
            fields.refuse(effort_field, f"must be a text, got {told(effort)}")
        elif arguments.get(_EFFORT, effort) != effort:
            rule = f"must equal chat_template_kwargs.{_EFFORT}"
            fields.refuse(
                effort_field, f"{rule}, got {told(effort)} and {told(arguments[_EFFORT])}"
            )
        arguments = {**arguments, _EFFORT: effort}
        fields.names[f"chat_template_kwargs.{_EFFORT}"] = effort_field
    return Chat(
        messages=messages,
        tools=tools.offered,
        template_arguments=arguments,
        parallel_tool_calls=tools.parallel,
        must_call=tools.must_call,
    )


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
    model, streams = take_model(fields), fields.flag("stream")
    stream_options = Fields(fields.mapping("stream_options"))
    includes_usage = stream_options.flag("include_usage")
    counts_along = stream_options.flag("continuous_usage_stats")
    if counts_along and not includes_usage:
        stream_options.refuse("continuous_usage_stats", "needs include_usage true, got true alone")
    stream_options.only("include_obfuscation", False)
    fields.refuse_rest("stream_options", stream_options)
    for name in ("presence_penalty", "frequency_penalty"):
        fields.only(name, 0, why="use repetition_penalty")
    fields.only("store", False)
    options = take_options(fields, scores_prompt=scores_prompt, may_score=chat is None)
    add_schema(fields, options)
    if counts_along and options.get("echo"):
        fields.refuse(
            "stream_options", "continuous_usage_stats must not be set with echo, got true"
        )
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
            generation_request(model, each, options, chat=chat, streams=streams) for each in inputs
        ],
        fields=fields,
        is_chat=chat is not None,
        streams=streams,
        includes_usage=includes_usage,
        counts_along=counts_along,
        scores_prompt=scores_prompt,
    )


def take_model(fields: Fields) -> str:
    """Takes the name of the model."""
    model = fields.text("model")
    if not model:
        fields.refuse("model", "is required; GET /v1/models lists the models")
    return model


def generation_request(
    model: str, given: Input, options: Mapping[str, Any], *, chat: Chat | None, streams: bool
) -> GenerationRequest:
    """The core's request for a prompt or a conversation."""
    return GenerationRequest(
        model=model,
        input=given,
        chat=chat,
        decoder_input=Input(
            text_field="decoder_text",
            text=None,
            ids_field="decoder_token_ids",
            token_ids=None,
        ),
        options=options,
        reads_along=streams,
        reads_messages=chat is not None,
    )


def take_options(
    fields: Fields, *, scores_prompt: bool = False, may_score: bool = False
) -> dict[str, Any]:
    """Takes all options, with OpenAI's meaning where it is another than ours.

    Args:
        fields: The fields of the request.
        scores_prompt: See `OpenAIRequest`; such a request may generate nothing.
        may_score: Whether it is a request that could score its prompt.
    """
    fields.only("prompt_logprobs", why="completions return them with echo and logprobs")
    options = fields.options()
    _convert_seed(fields, options)
    options.setdefault("num_return_sequences", 1)
    if options.get("max_new_tokens") == 0 and not scores_prompt:
        unless = " without both echo and logprobs" if may_score else ""
        fields.refuse(fields.names["max_new_tokens"], f"must be at least 1{unless}, got 0")
    # The name that load generators have for it.
    if fields.flag("ignore_eos"):
        if options.get("eos_token_ids"):
            fields.refuse("ignore_eos", "must not be set together with eos_token_ids, got true")
        options["eos_token_ids"] = ()
    if options.get("top_k") == -1:
        options["top_k"] = 0  # all tokens, as vLLM has it
    if 0 in (options.get("temperature"), options.get("top_p")):
        # Greedy decoding, whatever the other options of sampling are.
        for name in [name for name in options if _is_of_sampling(name, options[name])]:
            del options[name]
        options["do_sample"] = False
    several = options["num_return_sequences"] > 1
    if several and "do_sample" not in options and options.get("num_beams", 1) == 1:
        options["do_sample"] = True
    return options


def _convert_seed(fields: Fields, options: dict[str, Any]) -> None:
    """Converts the seeds of OpenAI's API, which may be negative, to ours, which may not."""
    seed, low = options.get("seed", 0), -INT64_MAX - 1
    if low <= seed <= INT64_MAX:
        if seed < 0:
            options["seed"] = seed % -low
    else:
        fields.refuse(fields.names["seed"], f"must be from {low} to {INT64_MAX}, got {told(seed)}")


def _is_of_sampling(name: str, value: Any) -> bool:
    """Whether an option acts only on sampling; a value out of its range is refused later."""
    option = OPTIONS[name]
    if option.needs is not Needs.SAMPLING:
        return False
    high = option.range.high if option.range else None
    limit = high if isinstance(high, int | float) else inf
    # Zero is out of the ranges of these two, but means greedy decoding.
    is_zero = name in ("temperature", "top_p") and value == 0
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
    # Ids of 32 bits, as in messages; the core checks whether the vocabulary has them.
    return (
        isinstance(prompt, list)
        and bool(prompt)
        and all(type(each) is int and -(2**31) <= each < 2**31 for each in prompt)
    )


def no_input() -> Input:
    """The prompt of a request that has a conversation instead."""
    return Input(text_field="text", text=None, ids_field="token_ids", token_ids=None)
