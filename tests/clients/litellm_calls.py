"""Calls a service with LiteLLM, and prints what it found as JSON.

Run as `python litellm_calls.py URL MODEL`, with a model that has a chat template, or with the model
`embeddings=NAME`, a text encoder, in an environment that has only `litellm`.
"""

import asyncio
import json
import os
import sys
from typing import Any

# Otherwise it downloads a list of prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm

litellm.suppress_debug_info = True

PROMPT: dict[str, Any] = {"max_tokens": 6, "temperature": 0}
PART = {"type": "text", "text": "Hello"}
PARAMETERS = {"type": "object", "properties": {}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}


def chats(where: dict[str, Any], model: str) -> dict[str, Any]:
    asked = {"model": f"openai/{model}", "messages": [{"role": "user", "content": "Hello"}]}
    asked |= PROMPT | where
    parts = asked | {"messages": [{"role": "user", "content": [PART]}]}
    whole = litellm.completion(**asked)
    pieces = litellm.completion(**asked, stream=True)
    return {
        "whole": whole.choices[0].message.content,
        "streamed": text_of(pieces),
        "parts": litellm.completion(**parts).choices[0].message.content,
        "async": asyncio.run(asynchronous(asked)),
        "tokens": whole.usage.completion_tokens,
    }


def text_of(pieces: Any) -> str:
    return "".join(piece.choices[0].delta.content or "" for piece in pieces)


async def asynchronous(asked: dict[str, Any]) -> str:
    answer = await litellm.acompletion(**asked)
    return str(answer.choices[0].message.content)


def completions(where: dict[str, Any]) -> list[str]:
    asked = {"model": "text-completion-openai/demo", "prompt": "TensorFlow is"}
    asked |= PROMPT | where
    pieces = litellm.text_completion(**asked, stream=True)
    whole = litellm.text_completion(**asked).choices[0].text
    return [whole, "".join(piece.choices[0].text or "" for piece in pieces)]


def errors(where: dict[str, Any], model: str) -> list[Any]:
    asked = {"model": f"openai/{model}", "messages": [{"role": "user", "content": "Hello"}]} | where
    found = []
    for wrong in ({"temperature": -1}, {"tools": [TOOL]}):
        try:
            litellm.completion(**asked, **wrong)
        except litellm.BadRequestError as error:
            found.append([error.status_code, "got -1" in str(error)])
    return found


def embeddings(where: dict[str, Any], model: str) -> list[list[float]]:
    found = litellm.embedding(model=f"openai/{model}", input=["a cat", "a dog"], **where)
    return [each["embedding"] for each in found.data]


if __name__ == "__main__":
    url, model = sys.argv[1:]
    where = {"api_base": f"{url}/v1", "api_key": "none"}
    encoder = model.removeprefix("embeddings=")
    if encoder != model:
        result: Any = embeddings(where, encoder)
    else:
        result = {"chat": chats(where, model), "completions": completions(where)}
        result["errors"] = errors(where, model)
    json.dump(result, sys.stdout)
