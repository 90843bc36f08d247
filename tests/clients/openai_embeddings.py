"""Embeds texts with OpenAI's client, and prints the embeddings as JSON.

Run as `python openai_embeddings.py URL MODEL`, in an environment that has only `openai`.
"""

import json
import sys

import openai

TEXTS = ["a cat", "a dog"]

if __name__ == "__main__":
    url, model = sys.argv[1:]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    # The client asks for base64 unless it is told otherwise.
    usual = client.embeddings.create(model=model, input=TEXTS)
    plain = client.embeddings.create(model=model, input=TEXTS, encoding_format="float")
    json.dump([[each.embedding for each in found.data] for found in (usual, plain)], sys.stdout)
