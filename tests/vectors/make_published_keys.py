"""The keys of requests that the official packages ``openai`` and ``ollama`` know, from their type definitions.

    .venv-clients/bin/python tests/vectors/make_published_keys.py > tests/vectors/published_keys.json
"""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

from ollama import _types as ollama
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

TYPED = {
    "openai chat": chat_create_params.CompletionCreateParamsStreaming,
    "openai completion": completion_create_params.CompletionCreateParamsStreaming,
    "openai responses": response_create_params.ResponseCreateParamsStreaming,
    "openai embedding": embedding_create_params.EmbeddingCreateParams,
}
MODELS = {
    "ollama chat": ollama.ChatRequest,
    "ollama generate": ollama.GenerateRequest,
    "ollama embed": ollama.EmbedRequest,
    "ollama embeddings": ollama.EmbeddingsRequest,
    "ollama options": ollama.Options,
}


def main() -> None:
    """Print them as JSON, with the versions that they are from."""
    found = {name: sorted(each.__required_keys__ | each.__optional_keys__) for name, each in TYPED.items()}
    found |= {name: sorted(each.model_fields) for name, each in MODELS.items()}
    versions = {name: version(name) for name in ("openai", "ollama")}
    told: dict[str, Any] = {"source": "the Python packages of these versions", "versions": versions, "keys": found}
    print(json.dumps(told, indent=1))


main()
