"""Parses answers with OpenAI's client into its own types, and prints the results as JSON.

Run as `python openai_structured.py URL MODEL TOOLS_MODEL`, with a model that has a chat template
and one that calls tools, in an environment that has only `openai`.
"""

import json
import sys
from typing import Any, Literal

import openai
from pydantic import BaseModel, ConfigDict, Field


class Person(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=8)
    age: int = Field(ge=0, le=120)
    mood: Literal["glad", "sad"]


def main(url: str, model: str, tools_model: str) -> dict[str, Any]:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    asked = {
        "model": model,
        "messages": [{"role": "user", "content": "A person: "}],
        "max_completion_tokens": 200,
        "temperature": 0,
    }
    whole = client.beta.chat.completions.parse(**asked, response_format=Person)
    with client.chat.completions.stream(**asked, response_format=Person) as stream:
        streamed = stream.get_final_completion()
    free = {"type": "json_object"}
    anything = client.chat.completions.create(**asked, response_format=free)
    chosen = client.completions.create(
        model=model, prompt="It is ", max_tokens=20, extra_body={"choices": ["rainy", "sunny"]}
    )
    function = {"name": "remember", "strict": True, "parameters": Person.model_json_schema()}
    tools = [{"type": "function", "function": function}]
    called = client.chat.completions.create(
        **asked | {"model": tools_model},
        tools=tools,
        tool_choice="required",
        parallel_tool_calls=False,
    )
    (call,) = called.choices[0].message.tool_calls
    return {
        "called": [call.function.name, Person.model_validate_json(call.function.arguments).mood],
        "whole": whole.choices[0].message.parsed.model_dump(),
        "streamed": streamed.choices[0].message.parsed.model_dump(),
        "finish_reason": whole.choices[0].finish_reason,
        "anything": anything.choices[0].message.content,
        "chosen": chosen.choices[0].text,
    }


if __name__ == "__main__":
    json.dump(main(*sys.argv[1:]), sys.stdout)
