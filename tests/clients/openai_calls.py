"""Calls a service with OpenAI's client, and prints what it found as JSON.

Run as `python openai_calls.py URL MODEL`, with a model that has a chat template, in an environment
that has only `openai`.
"""

import asyncio
import json
import sys
from typing import Any

import openai

PROMPT = {"model": "demo", "prompt": "TensorFlow is", "max_tokens": 8, "temperature": 0}
SAMPLED = {"model": "demo", "prompt": "TensorFlow is", "max_tokens": 8, "seed": 7, "n": 2}


def blocking(url: str) -> dict[str, Any]:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    found: dict[str, Any] = {"models": [model.id for model in client.models.list()]}
    whole = client.completions.create(**PROMPT, logprobs=1)
    found["text"] = whole.choices[0].text
    found["finish_reason"] = whole.choices[0].finish_reason
    found["usage"] = whole.usage.model_dump()
    found["tokens"] = whole.choices[0].logprobs.tokens
    sampled = client.completions.create(**SAMPLED)
    found["sampled"] = [choice.text for choice in sampled.choices]
    beams = client.completions.create(**PROMPT, extra_body={"num_beams": 2})
    found["beams"] = beams.choices[0].text
    pieces = client.completions.create(
        **PROMPT, stream=True, stream_options={"include_usage": True}
    )
    *pieces, total = pieces
    found["streamed"] = "".join(piece.choices[0].text for piece in pieces)
    found["streamed_usage"] = total.usage.model_dump()
    errors = {
        "model": lambda: client.completions.create(model="nobody", prompt="x"),
        "option": lambda: client.completions.create(**PROMPT | {"temperature": -1}),
        "stream": lambda: client.completions.create(**PROMPT | {"top_p": 3}, stream=True),
        "chat": lambda: client.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": "x"}]
        ),
    }
    found["errors"] = {name: _error(call) for name, call in errors.items()}
    return found


def _error(call: Any) -> list[Any]:
    try:
        call()
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.param]
    return []


async def asynchronous(url: str) -> dict[str, Any]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        whole, other = await asyncio.gather(
            client.completions.create(**PROMPT), client.completions.create(**PROMPT)
        )
        text = ""
        async for piece in await client.completions.create(**PROMPT, stream=True):
            text += piece.choices[0].text
        return {"texts": [whole.choices[0].text, other.choices[0].text, text]}


def chat(url: str, model: str) -> dict[str, Any]:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    asked = {
        "model": model,
        "messages": [{"role": "user", "content": "Hello"}],
        "max_completion_tokens": 6,
        "temperature": 0,
    }
    whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    with client.chat.completions.stream(**asked) as stream:
        events = list(stream)
    content = whole.choices[0].logprobs.content
    return {
        "content": whole.choices[0].message.content,
        "streamed": "".join(each.delta for each in events if each.type == "content.delta"),
        "role": whole.choices[0].message.role,
        "top": [len(token.top_logprobs) for token in content],
        "prompt_tokens": whole.usage.prompt_tokens,
    }


def responses(url: str, model: str) -> dict[str, Any]:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    asked = {"model": model, "input": "Hello", "max_output_tokens": 6, "temperature": 0}
    whole = client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        deltas = [each.delta for each in stream if each.type == "response.output_text.delta"]
    return {
        "text": whole.output_text,
        "streamed": "".join(deltas),
        "status": whole.status,
        "output_tokens": whole.usage.output_tokens,
    }


if __name__ == "__main__":
    url, model = sys.argv[1:]
    result = {"blocking": blocking(url), "asynchronous": asyncio.run(asynchronous(url))}
    result |= {"chat": chat(url, model), "responses": responses(url, model)}
    json.dump(result, sys.stdout)
