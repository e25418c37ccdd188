"""Real programs against `bitnet-edge serve`: the clients of OpenAI and Ollama, in Python and npm, and LangChain.

Run by `make test-clients`, which installs tests/clients/requirements.txt (pinned) into an environment of its own;
everything stays on loopback.  SERVE_COMMAND tries another program than this checkout: the frozen one, for example.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from clients import serve

openai = pytest.importorskip("openai")
HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def url() -> Any:
    with serve() as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=120)


MESSAGES = [{"role": "user", "content": "Two teas and a scone, please."}]
SCHEMA = {"type": "object", "properties": {"drink": {"enum": ["tea", "coffee"]}, "count": {"type": "integer"}},
          "required": ["drink", "count"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "order", "description": "Order a drink", "parameters": SCHEMA}}


def test_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == [client.models.list().data[0].id]


def test_chat_whole_and_streamed(client: Any) -> None:
    whole = client.chat.completions.create(model="any", messages=MESSAGES, temperature=0, max_tokens=16)
    streamed = client.chat.completions.create(model="any", messages=MESSAGES, temperature=0, max_tokens=16, stream=True,
                                              stream_options={"include_usage": True})
    text, usage = "", None
    for chunk in streamed:
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        usage = chunk.usage or usage
    assert text == whole.choices[0].message.content and text
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_a_base_url_without_v1(url: str) -> None:
    client = openai.OpenAI(base_url=url, api_key="none", timeout=120)
    assert client.chat.completions.create(model="any", messages=MESSAGES, max_tokens=4).choices


def test_content_parts_and_logprobs(client: Any) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "Two teas, please."}]}]
    answer = client.chat.completions.create(model="any", messages=parts, max_tokens=4, logprobs=True, top_logprobs=3)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 3 for entry in entries)


def test_parse_into_a_type(client: Any) -> None:
    pydantic = pytest.importorskip("pydantic")

    class Order(pydantic.BaseModel):
        drink: str
        count: int

    answer = client.chat.completions.parse(model="any", messages=MESSAGES, max_tokens=200, temperature=0,
                                           response_format=Order)
    assert isinstance(answer.choices[0].message.parsed, Order)


def test_json_schema(client: Any) -> None:
    answer = client.chat.completions.create(
        model="any", messages=MESSAGES, max_tokens=100, temperature=0,
        response_format={"type": "json_schema", "json_schema": {"name": "o", "schema": SCHEMA, "strict": True}})
    found = json.loads(answer.choices[0].message.content)
    assert found["drink"] in ("tea", "coffee") and isinstance(found["count"], int)


def test_errors_are_the_clients_own(client: Any, url: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="any", messages=MESSAGES, temperature=-3)
    assert refused.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.files.list()
    long = [{"role": "user", "content": "tea and cake " * 6000}]
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="any", messages=long)
    assert refused.value.code == "context_length_exceeded"


def test_async_in_a_batch(url: str) -> None:
    import asyncio

    async def ask() -> list[str]:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=120)
        answers = await asyncio.gather(*(
            client.chat.completions.create(model="any", messages=MESSAGES, temperature=0, max_tokens=16)
            for _ in range(12)))
        return [answer.choices[0].message.content for answer in answers]

    assert len(set(asyncio.run(ask()))) == 1


def test_langchain(url: str) -> None:
    langchain = pytest.importorskip("langchain_openai")
    chat = langchain.ChatOpenAI(base_url=f"{url}/v1", api_key="none", model="any", temperature=0, max_tokens=16,
                                stop=["\n\n"])
    whole = chat.invoke("Two teas and a scone, please.").content
    assert whole and "".join(chunk.content for chunk in chat.stream("Two teas and a scone, please.")) == whole
    roomy = langchain.ChatOpenAI(base_url=f"{url}/v1", api_key="none", model="any", temperature=0, max_tokens=200)
    found = roomy.with_structured_output({**SCHEMA, "title": "order"}, method="json_schema").invoke("Two teas.")
    assert found["drink"] in ("tea", "coffee")


def test_home_assistant(url: str) -> None:
    """The questions of its llama.cpp integration while it is set up: the models within ten seconds, then a completion
    with a tool and three tokens, both ways; then turns of a conversation, which it names in ``user``.
    """
    import urllib.request

    with urllib.request.urlopen(f"{url}/v1/models", timeout=10) as answer:
        assert json.load(answer)["data"][0]["id"]
    base = {"model": "any", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "tools": [TOOL],
            "user": "conversation-1"}
    for stream in (False, True):
        request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps({**base, "stream": stream}).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert answer.status == 200 and answer.read()
    client, messages = openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=120), list(MESSAGES)
    for question in ("And a coffee.", "Thank you."):
        answer = client.chat.completions.create(model="any", messages=messages, max_tokens=12, user="conversation-1")
        said = {"role": "assistant", "content": answer.choices[0].message.content}
        messages += [said, {"role": "user", "content": question}]
    assert answer.usage.prompt_tokens_details.cached_tokens > 8, "the conversation was read again"


# ---- responses: the default of the newer clients --------------------------------------------------------------------


def test_responses(client: Any) -> None:
    """Text, events, functions and a type, through the client's own checks of each object."""
    pydantic = pytest.importorskip("pydantic")
    base = {"model": "any", "temperature": 0, "max_output_tokens": 200}
    whole = client.responses.create(input=MESSAGES, instructions="Be brief.", **base)
    assert whole.output_text and whole.status == "completed" and whole.usage.output_tokens > 0
    assert type(whole).model_validate(whole.model_dump(), strict=True)
    with client.responses.stream(input=MESSAGES, instructions="Be brief.", **base) as stream:
        events = list(stream)
        assert stream.get_final_response().output_text == whole.output_text
    assert "".join(each.delta for each in events if each.type == "response.output_text.delta") == whole.output_text
    again = client.responses.create(input=[*MESSAGES, *whole.output, {"role": "user", "content": "Thanks."}], **base)
    assert again.output_text

    class Order(pydantic.BaseModel):
        drink: str
        count: int

    assert isinstance(client.responses.parse(input=MESSAGES, text_format=Order, **base).output_parsed, Order)
    tool = {"type": "function", **TOOL["function"], "strict": True}
    asked = {"input": MESSAGES, "tools": [tool], "tool_choice": "required", **base}
    (call,) = client.responses.create(**{**asked, "parallel_tool_calls": False}).output
    assert call.type == "function_call" and json.loads(call.arguments)["drink"] in ("tea", "coffee")
    with client.responses.stream(**asked) as stream:
        kinds = [each.type for each in stream]
        assert "response.function_call_arguments.done" in kinds and kinds[-1] == "response.completed"
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
    assert client.responses.create(input=[*MESSAGES, call, result], tools=[tool], **base).output
    with pytest.raises(openai.BadRequestError, match="nothing is stored"):
        client.responses.create(input="And now?", previous_response_id=whole.id, **base)


def test_scores_of_a_prompt(client: Any) -> None:
    """Evaluation programs ask for the log probabilities of given texts."""
    texts = ["Two teas, please.", "Teas two, please."]
    found = client.completions.create(model="any", prompt=texts, max_tokens=0, echo=True, logprobs=1)
    for choice, text in zip(found.choices, texts, strict=True):
        told = choice.logprobs
        assert choice.text == text and told.token_logprobs[0] is None
        assert len(told.tokens) == len(told.token_logprobs) == len(told.text_offset) == len(told.top_logprobs)
        assert all(each <= 0 for each in told.token_logprobs[1:])


def test_who_speaks_when(client: Any) -> None:
    messages = [*MESSAGES, {"role": "assistant", "content": "Yes?"}, {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": "Thanks."}, {"role": "assistant", "content": "You are"}]
    answer = client.chat.completions.create(model="any", messages=messages, temperature=0, max_tokens=8)
    assert answer.choices[0].message.content is not None
    with pytest.raises(openai.BadRequestError, match="does not think"):
        client.chat.completions.create(model="any", messages=MESSAGES, reasoning_effort="high")


# ---- Ollama's client, and those of npm -------------------------------------------------------------------------------


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


def test_npm_clients() -> None:
    if shutil.which("node") is None or not (HERE / "node_modules").is_dir():
        pytest.skip("needs Node.js and `npm ci` in tests/clients; make test-clients does both")
    with serve() as url:
        done = subprocess.run(["node", "--test", "clients.test.mjs"], cwd=HERE, env={**os.environ, "URL": url},
                              capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
