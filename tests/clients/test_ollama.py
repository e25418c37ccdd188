"""Ollama's Python client against `bitnet-edge serve`."""

from __future__ import annotations

import json

import pytest
from clients import serve

MESSAGES = [{"role": "user", "content": "Two teas and a scone, please."}]


def test_ollama() -> None:
    ollama = pytest.importorskip("ollama")
    with serve() as url:
        client = ollama.Client(host=url)
        name = client.list().models[0].model
        assert client.show(name).modelinfo and "tools" in client.show(name).capabilities
        with pytest.raises(ollama.ResponseError, match="not available"):
            client.show("another")
        with pytest.raises(ollama.ResponseError, match=r"messages\[0\].images is not supported"):
            client.chat(model=name, messages=[{**MESSAGES[0], "images": [b"\x89PNG"]}])
        options = {"temperature": 0, "num_predict": 16, "num_ctx": 2048}
        whole = client.chat(model=name, messages=MESSAGES, options=options, keep_alive="5m", tools=[])
        parts = client.chat(model=name, messages=MESSAGES, options=options, stream=True)
        assert whole.message.content == "".join(part.message.content for part in parts)
        assert client.generate(model=name, prompt="Two teas.", options=options).response
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        found = client.chat(model=name, messages=MESSAGES, format=schema, options={"num_predict": 60})
        assert isinstance(json.loads(found.message.content)["n"], int)
        large = {**options, "num_ctx": 1 << 20}  # it gets the context that there is
        assert client.chat(model=name, messages=MESSAGES, options=large).message.content == whole.message.content
        assert client.ps().models[0].context_length == 2048
        assert client.chat(model=name, messages=MESSAGES, options=options, think=False).message.content
        with pytest.raises(ollama.ResponseError, match="does not think"):
            client.chat(model=name, messages=MESSAGES, think=True)
        told = client.chat(model=name, messages=MESSAGES, options=options, logprobs=True, top_logprobs=2)
        assert len(told.logprobs) == told.eval_count and len(told.logprobs[0].top_logprobs) == 2
        begun = [*MESSAGES, {"role": "assistant", "content": "Certainly,"}]
        assert client.chat(model=name, messages=begun, options=options).message.content is not None
        random = {"temperature": 3.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "num_predict": 24, "seed": -1}
        assert len({client.generate(model=name, prompt="Hi", options=random).response for _ in range(3)}) == 3


def test_ollama_embeds() -> None:
    ollama = pytest.importorskip("ollama")
    with serve("--embeddings") as url:
        client = ollama.Client(host=url)
        found = client.embed(model="any", input=["Two teas.", "A scone."])
        assert len(found.embeddings) == 2 and found.prompt_eval_count > 2
        assert client.embed(model="any", input="Two teas.").embeddings[0] == found.embeddings[0]
        assert client.embeddings(model="any", prompt="Two teas.").embedding == found.embeddings[0]
        with pytest.raises(ollama.ResponseError, match="the model reads"):
            client.embed(model="any", input="tea " * 9000)
        assert len(client.embed(model="any", input="tea " * 9000, truncate=True).embeddings) == 1
