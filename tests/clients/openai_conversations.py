"""Calls tools through OpenAI's client, and prints what it found as JSON.

Run as `python openai_conversations.py URL`, with a model that thinks, writes a text, and calls the
tool `add`, in an environment that has only `openai`.
"""

import asyncio
import json
import sys
from typing import Any

import openai

MODEL = "tiny"
PARAMETERS = {"type": "object", "properties": {"a": {"type": "number"}}}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}]
FLAT = [{"type": "function", "name": "add", "parameters": PARAMETERS, "strict": False}]


def chat(client: openai.OpenAI) -> dict[str, Any]:
    messages: list[Any] = [{"role": "user", "content": "hello"}]
    asked = {"model": MODEL, "messages": messages, "tools": TOOLS}
    whole = client.chat.completions.create(**asked).choices[0]
    with client.chat.completions.stream(**asked) as stream:
        kinds = {event.type for event in stream}
        streamed = stream.get_final_completion().choices[0]
    # The answer and the tool's result go back as they came.
    messages.append(whole.message)
    call = whole.message.tool_calls[0]
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "2"})
    again = client.chat.completions.create(**asked).choices[0]
    return {
        "whole": message(whole.message),
        "streamed": message(streamed.message),
        "again": message(again.message),
        "finish_reasons": [whole.finish_reason, streamed.finish_reason],
        "kinds": sorted(kinds),
    }


def message(given: Any) -> list[Any]:
    calls = [[call.function.name, call.function.arguments] for call in given.tool_calls]
    return [given.reasoning_content, given.content, calls]


def responses(client: openai.OpenAI) -> dict[str, Any]:
    items: list[Any] = [{"role": "user", "content": "hello"}]
    asked = {"model": MODEL, "input": items, "tools": FLAT}
    whole = client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_response()
    raw = [event.type for event in client.responses.create(**asked, stream=True)]
    items += whole.output
    call = whole.output[-1]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "2"})
    again = client.responses.create(**asked)
    return {
        "whole": output(whole),
        "streamed": output(streamed),
        "again": output(again),
        "status": whole.status,
        "text": whole.output_text,
        "last": [kinds[-1], raw[-1]],
        "reasoning_tokens": whole.usage.output_tokens_details.reasoning_tokens,
    }


def output(response: Any) -> list[Any]:
    reasoning, text, call = response.output
    return [reasoning.content[0].text, text.content[0].text, [[call.name, call.arguments]]]


async def asynchronous(url: str) -> dict[str, Any]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        asked = {"model": MODEL, "input": "hello", "tools": FLAT}
        whole = await client.responses.create(**asked)
        async with client.responses.stream(**asked) as stream:
            streamed = await stream.get_final_response()
    return {"whole": output(whole), "streamed": output(streamed)}


def refused(client: openai.OpenAI) -> list[Any]:
    try:
        client.responses.create(model=MODEL, input="hello", previous_response_id="resp_1")
    except openai.BadRequestError as error:
        return [error.status_code, error.param]
    return []


if __name__ == "__main__":
    (url,) = sys.argv[1:]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    result = {"chat": chat(client), "responses": responses(client), "refused": refused(client)}
    json.dump(result | {"asynchronous": asyncio.run(asynchronous(url))}, sys.stdout)
