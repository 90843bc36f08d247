"""Requests for responses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shaperouter_service.edge.http.openai.fields import Fields
from shaperouter_service.edge.http.openai.requests import (
    generation_request,
    no_input,
    take_chat,
    take_model,
    take_options,
)
from shaperouter_service.edge.http.openai.response_format import add_text_schema
from shaperouter_service.edge.http.openai.response_items import take_conversation
from shaperouter_service.edge.http.openai.tools import take_tools
from shaperouter_service.generation.request import GenerationRequest

_OPTION_NAMES: Mapping[str, str] = {"max_output_tokens": "max_new_tokens"}
_STATELESS = "the service keeps no responses; send the whole conversation as input"
# Fields of a request that its response repeats, and what they are if the request lacks them.
_REPEATED: Mapping[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "tool_choice": "auto",
    "tools": [],
    "user": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRequest:
    """A request for a response.

    Attributes:
        request: The core's request.
        fields: Its fields, for errors in the caller's words.
        streams: Whether to answer with events.
        repeated: Fields that the response repeats.
    """

    request: GenerationRequest
    fields: Fields
    streams: bool
    repeated: Mapping[str, Any]


def response_request(body: Mapping[str, Any]) -> ResponseRequest:
    """Reads a request for a response.

    Raises:
        InvalidRequestError: A field is unknown, missing, not supported, or not of its type.
    """
    fields = Fields(body, _OPTION_NAMES)
    fields.names["messages"] = "input"
    model, streams = take_model(fields), fields.flag("stream")
    messages, tools = take_conversation(fields), take_tools(fields, nested=False)
    reasoning = Fields(fields.mapping("reasoning"))
    effort = reasoning.take("effort")
    for name in ("summary", "generate_summary"):
        reasoning.only(name, why="reasoning is returned whole, as text")
    fields.refuse_rest("reasoning", reasoning)
    chat = take_chat(fields, messages, tools, effort=effort, effort_field="reasoning.effort")
    stream_options = Fields(fields.mapping("stream_options"))
    stream_options.only("include_obfuscation", False)
    fields.refuse_rest("stream_options", stream_options)
    fields.only("store", False, why=_STATELESS)
    fields.only("background", False, why=_STATELESS)
    for name in ("previous_response_id", "conversation"):
        fields.only(name, why=_STATELESS)
    fields.only("truncation", "disabled", why="nothing is dropped silently")
    fields.only("include", [])
    fields.only("top_logprobs", 0)
    for name in ("context_management", "logprobs", "max_tool_calls", "moderation", "prompt"):
        fields.only(name)
    fields.only("num_return_sequences", 1)
    options = take_options(fields)
    add_text_schema(fields, options)
    fields.end()
    return ResponseRequest(
        request=generation_request(model, no_input(), options, chat=chat, streams=streams),
        fields=fields,
        streams=streams,
        repeated={
            **{name: body.get(name) or default for name, default in _REPEATED.items()},
            "parallel_tool_calls": tools.parallel,
            "reasoning": {"effort": effort, "summary": None},
            "temperature": body.get("temperature"),
            "top_p": body.get("top_p"),
            "text": body.get("text") or {"format": {"type": "text"}},
        },
    )
