"""The keys of every object in requests that the official packages ``openai`` and ``ollama`` know, from their type
definitions: API -> place of the object -> its type or role ("" if it has none) -> its keys.

    .venv-clients/bin/python tests/vectors/make_published_keys.py > tests/vectors/published_keys.json
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, Literal, get_args, get_origin

from ollama import _types as ollama
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params
from typing_extensions import get_type_hints, is_typeddict

REQUESTS = {
    "openai chat": chat_create_params.CompletionCreateParamsStreaming,
    "openai completion": completion_create_params.CompletionCreateParamsStreaming,
    "openai responses": response_create_params.ResponseCreateParamsStreaming,
    "openai embedding": embedding_create_params.EmbeddingCreateParams,
    "ollama chat": ollama.ChatRequest,
    "ollama generate": ollama.GenerateRequest,
    "ollama embed": ollama.EmbedRequest,
    "ollama embeddings": ollama.EmbeddingsRequest,
}


def fields_of(kind: Any) -> dict[str, Any] | None:
    """The keys of an object with the types of their values; None for a type that is none."""
    if is_typeddict(kind):
        return get_type_hints(kind)
    if inspect.isclass(kind) and hasattr(kind, "model_fields"):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    return None


def words(kind: Any) -> Iterator[str]:
    """The values of all literals in a type."""
    for each in get_args(kind):
        if get_origin(kind) is Literal:
            yield each
        else:
            yield from words(each)


def walk(kind: Any, place: str, found: dict[str, dict[str, set[str]]], within: tuple[Any, ...] = ()) -> None:
    """Add the objects of a type, and those inside them, to ``found``."""
    fields = fields_of(kind)
    if fields is None:
        for each in get_args(kind):
            walk(each, place, found, within)
        return
    if kind in within:
        return
    names = list(words(fields.get("type"))) or list(words(fields.get("role"))) or [""]
    for name in names:
        found.setdefault(place, {}).setdefault(name, set()).update(fields)
    for key, inner in fields.items():
        if key != "parameters":  # a JSON schema
            walk(inner, f"{place}.{key}".lstrip("."), found, (*within, kind))


def main() -> None:
    """Print them as JSON, with the versions that they are from."""
    versions = {name: version(name) for name in ("openai", "ollama")}
    told: dict[str, Any] = {"source": "the Python packages of these versions", "versions": versions, "keys": {}}
    for name, kind in REQUESTS.items():
        found: dict[str, dict[str, set[str]]] = {}
        walk(kind, "", found)
        told["keys"][name] = {place: {each: " ".join(sorted(keys)) for each, keys in sorted(kinds.items())}
                              for place, kinds in sorted(found.items())}
    print(json.dumps(told, indent=0))


main()
