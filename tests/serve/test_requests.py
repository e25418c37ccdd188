"""The keys of requests to `serve`, `batch`, the JSONL protocol and the library, and their effects."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edge
from edge.errors import UsageError
from edge.formats import open_checkpoint
from edge.prompt.messages import check_messages
from edge.prompt.template import FAMILIES
from edge.registry.library import demo
from edge.sampling import Sampling
from edge.tools.batch import Batch
from pyx.kv import KVCache
from pyx.step import Segment
from tests.http_service import GREEDY, Server, serving
from tests.oracles import forward
from tests.oracles.attention import log_softmax
from tests.services import ROOT, bitnet_edge

pytestmark = pytest.mark.usefixtures("bundled_model")

QUESTION = "Two teas and a scone, please."
WILD = {"temperature": 3.0, "top_k": 0, "top_p": 1, "min_p": 0, "max_tokens": 24, "ignore_eos": True}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One service for all tests that leave it as it was."""
    with serving("--parallel", "2", "--set", "queue=8", "--ctx", "512", "--name", "guide", "--seed", "3") as server:
        yield server


@pytest.fixture(scope="module")
def engine() -> Iterator[edge.Engine]:
    with edge.load(threads=1, ctx=512) as engine:
        yield engine


def user(text: str = QUESTION) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


# ---- seeds --------------------------------------------------------------------------------------------------------


def test_a_seed_of_minus_one_is_random(server: Server) -> None:
    """As in llama.cpp and Ollama, and with every other seed it is not; also on a server that was given one."""
    def openai(seed: Any) -> str:
        return server.chat(QUESTION, **WILD, seed=seed)["choices"][0]["message"]["content"]

    def ollama(seed: Any) -> str:
        options = {key: WILD[key] for key in ("temperature", "top_k", "top_p", "min_p")} | {"num_predict": 24}
        body = {"messages": user(), "stream": False, "options": {**options, "seed": seed}}
        return server.ask("POST", "/api/chat", body)[2]["message"]["content"]

    for ask in (openai, ollama):
        for same in (7, 0, -2, 7.0, 4294967295, 1 << 63, None):
            assert ask(same) == ask(same), same
        assert len({ask(-1) for _ in range(4)}) == 4
        assert len({ask(-1.0) for _ in range(4)}) == 4
    several = server.chat(QUESTION, **WILD, n=3, seed=-2)["choices"]  # none of them becomes -1
    assert several == server.chat(QUESTION, **WILD, n=3, seed=-2)["choices"]


def test_random_after_a_seed_is_random(engine: edge.Engine) -> None:
    session, found = engine.session(), set()
    for _ in range(4):
        session.complete("Hello", **WILD, seed=5).text  # noqa: B018  runs it
        found.add(session.complete("Hello", **WILD).text)
    assert len(found) == 4
    assert Sampling(seed=-1).seed is None and Sampling(top_k=-1).top_k == 0
    assert len({engine.session().complete("Hello", **WILD, seed=-1).text for _ in range(4)}) == 4


def lines(*requests: dict[str, Any], options: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """The events of `chat --jsonl` for these requests."""
    given = "".join(json.dumps(each) + "\n" for each in requests)
    done = bitnet_edge("chat", "--jsonl", "--ctx", "512", *options, given=given)
    assert done.returncode == 0, done.stderr
    return [json.loads(each) for each in done.stdout.splitlines()]


# ---- functions together with a form ---------------------------------------------------------------------------------

DRINK = {"type": "object", "properties": {"drink": {"enum": ["tea", "coffee"]}}, "required": ["drink"],
         "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": DRINK}} for name in ("order", "cancel")]
FORMS: list[tuple[dict[str, Any], Any]] = [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "d", "schema": DRINK}}},
     lambda text: json.loads(text)["drink"] in ("tea", "coffee")),
    ({"response_format": {"type": "json_object"}}, lambda text: isinstance(json.loads(text), dict)),
    ({"schema": {"type": "integer", "minimum": 5, "maximum": 9}}, lambda text: text.strip() in "56789"),
    ({"regex": "[0-9]{3}"}, lambda text: re.fullmatch("[0-9]{3}", text)),
    ({"choices": ["yes", "no"]}, lambda text: text in ("yes", "no")),
    ({"grammar": 'start: "a" | "b" start'}, lambda text: re.fullmatch("b*a", text)),
]
SCATTERED = {"temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0, "max_tokens": 60}


def is_call(message: dict[str, Any]) -> bool:
    """True if a message is one well-formed call and nothing else."""
    calls = message.get("tool_calls")
    if not calls:
        return False
    functions = [each["function"] for each in calls]
    assert not message["content"]
    assert all(each["name"] in ("order", "cancel") for each in functions)
    assert all(json.loads(each["arguments"])["drink"] in ("tea", "coffee") for each in functions)
    return True


def test_a_choice_has_its_share(server: Server) -> None:
    """The likeliest without a temperature, whatever the seed; the same in a stream."""
    body = {"messages": [{"role": "user", "content": "Is a whale a fish?"}], "choices": ["yes", "no", "perhaps"]}
    found = [server.ask("POST", "/v1/chat/completions", {**body, "seed": seed})[2]["choices"][0] for seed in range(3)]
    assert found[0] == found[1] == found[2]
    shares = found[0]["shares"]
    assert [each["text"] for each in shares][0] == found[0]["message"]["content"]
    assert sum(each["share"] for each in shares) == pytest.approx(1) and len(shares) == 3
    events = server.events("/v1/chat/completions", body)
    assert [each["choices"][0]["shares"] for each in events[:-1] if "shares" in each["choices"][0]] == [shares]
    drawn = {server.chat("Hi", choices=["yes", "no"], temperature=5, seed=seed)["choices"][0]["message"]["content"]
             for seed in range(12)}
    assert drawn == {"yes", "no"}


@pytest.mark.parametrize("number", range(len(FORMS)))
def test_a_form_holds_together_with_functions(server: Server, number: int) -> None:
    form, holds = FORMS[number]
    for seed in range(4):
        asked = {"tools": TOOLS, "seed": seed, **SCATTERED, **form}
        message = server.chat(QUESTION, **asked, tool_choice="none")["choices"][0]["message"]
        assert holds(message["content"]) and "tool_calls" not in message
        choice = server.chat(QUESTION, **asked)["choices"][0]
        assert is_call(choice["message"]) or holds(choice["message"]["content"]), choice
        events = server.events("/v1/chat/completions", {"messages": user(), **asked})[:-1]
        deltas = [event["choices"][0]["delta"] for event in events]
        called = [call for delta in deltas for call in delta.get("tool_calls", ())]
        told = "".join(delta.get("content") or "" for delta in deltas)
        assert told == (choice["message"]["content"] or "") and bool(called) == is_call(choice["message"])
        assert is_call(server.chat(QUESTION, **asked, tool_choice="required")["choices"][0]["message"])
        result = [*user(), {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "order", "arguments": '{"drink": "tea"}'}}]},
            {"role": "tool", "tool_call_id": "c", "content": "done"}]
        message = server.chat(result, **asked)["choices"][0]["message"]
        assert is_call(message) or holds(message["content"])


def test_all_ways_to_ask_agree_about_functions_and_forms(server: Server, engine: edge.Engine, tmp_path: Path) -> None:
    sampling = {key: value for key, value in SCATTERED.items() if key != "max_tokens"}
    for seed in range(3):
        format_ = {"type": "json_schema", "json_schema": {"schema": DRINK}}
        body = {"messages": user(), "tools": TOOLS, "response_format": format_, **SCATTERED, "seed": seed}
        wanted = server.chat(**body)["choices"][0]["message"]
        calls = [each["function"] for each in wanted.get("tool_calls", ())]
        options = {**sampling, "num_predict": 60, "seed": seed}
        told = server.ask("POST", "/api/chat", {"messages": user(), "tools": TOOLS, "format": DRINK, "stream": False,
                                                "options": options})[2]["message"]
        assert told["content"] == (wanted["content"] or "")
        assert [each["function"]["arguments"] for each in told.get("tool_calls", ())] == [
            json.loads(each["arguments"]) for each in calls]
        (tmp_path / "in.jsonl").write_text(json.dumps({"custom_id": "a", "body": body}) + "\n")
        (tmp_path / "out.jsonl").unlink(missing_ok=True)
        with Batch(engine, str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl")) as batch:
            batch.run()
        answered = json.loads((tmp_path / "out.jsonl").read_text())["response"]["body"]["choices"][0]["message"]
        assert answered["content"] == wanted["content"]
        assert [each["function"] for each in answered.get("tool_calls", ())] == calls
        events = lines({"op": "chat", "messages": user(), "tools": TOOLS, "schema": DRINK, **SCATTERED, "seed": seed})
        assert "".join(each["text"] for each in events if each["ev"] == "text") == (wanted["content"] or "")
        assert [each["function"] for each in events[-1].get("tool_calls", ())] == calls
        assert (events[-1]["finish_reason"] == "tool_calls") == bool(calls)


# ---- messages ------------------------------------------------------------------------------------------------------


def test_an_answer_that_has_begun_is_continued(server: Server, engine: edge.Engine) -> None:
    """The prompt is the same messages with the beginning written after it; OpenAI's and Ollama's routes."""
    begun = [*user(), {"role": "assistant", "content": "Certainly: two"}]
    ids = [*engine.model.encode(user()), *engine.tokenizer.encode(engine.model.answer_lead + "Certainly: two")]
    wanted = engine.session().complete(ids, max_tokens=12, temperature=0).text
    said = server.chat(begun, max_tokens=12)
    assert said["choices"][0]["message"]["content"] == wanted and said["usage"]["prompt_tokens"] == len(ids)
    body = {"messages": begun, "stream": False, "options": {"temperature": 0, "num_predict": 12}}
    assert server.ask("POST", "/api/chat", body)[2]["message"]["content"] == wanted
    session = engine.session()
    assert session.chat(begun, max_tokens=12, temperature=0).text == wanted
    assert session.messages == [*user(), {"role": "assistant", "content": "Certainly: two" + wanted}]
    empty = [*user(), {"role": "assistant", "content": ""}]
    assert server.chat(empty)["choices"] == server.chat(QUESTION)["choices"]
    for more in ({"choices": ["yes"]}, {"tools": TOOLS, "tool_choice": "required"}):
        status, _, found = server.ask("POST", "/v1/chat/completions", {"messages": begun, **more})
        assert status == 400 and "assistant" in found["error"]["message"]


def test_the_system_speaks_anywhere(server: Server, engine: edge.Engine) -> None:
    for role in ("system", "developer"):
        messages = [*user("Hello"), {"role": "assistant", "content": "Hi."}, {"role": role, "content": "Be brief."},
                    {"role": role, "content": "Be kind."}, *user()]
        plain = [*user("Hello"), {"role": "assistant", "content": "Hi."},
                 {"role": "system", "content": "Be brief.\n\nBe kind."}, *user()]
        text = engine.template.render(plain)
        assert text.index("Hi.") < text.index("Be brief.\n\nBe kind.") < text.index(QUESTION)
        said = server.chat(messages)
        assert said["usage"]["prompt_tokens"] == len(engine.model.encode(plain))
        assert server.chat([*user(), {"role": role, "content": "Now answer."}])["choices"]  # and last
    gemma = "".join(part.text for part in FAMILIES["gemma"].parts(plain, True))
    assert gemma.endswith("<start_of_turn>user\nBe brief.\n\nBe kind.\n\n" + QUESTION + "<end_of_turn>\n"
                          "<start_of_turn>model\n") and "system" not in gemma


# ---- keys ----------------------------------------------------------------------------------------------------------

PATHS = {"/v1/chat/completions": {"messages": user()}, "/v1/completions": {"prompt": "Hi"},
         "/v1/responses": {"input": QUESTION}, "/api/chat": {"messages": user()}, "/api/generate": {"prompt": "Hi"}}


def test_known_keys_that_cannot_be_honoured_are_refused_by_name(server: Server) -> None:
    asked = {"logit_bias": {"5": 1}, "audio": {"voice": "a"}, "functions": TOOLS, "best_of": 2, "suffix": "x", "n": 99,
             "repetition_penalty": 1.2, "min_tokens": 3, "mirostat": 2, "images": ["aGk="]}
    for path, body in PATHS.items():
        for key, value in asked.items():
            status, _, found = server.ask("POST", path, {**body, key: value})
            assert status == 400 and str(found["error"]).find(key) >= 0, (path, key, found)
    for key, value in (*asked.items(), ("choices", []), ("regex", "")):
        (_, event) = lines({"op": "chat", "messages": user(), key: value})
        assert event["code"] == "bad_request" and key in event["message"]
    for body, key in (({"messages": [{**user()[0], "images": ["aGk="]}]}, "messages[0].images"),
                      ({"messages": user(), "options": {"tfs_z": 0.5}}, "options.tfs_z"),
                      ({"response_format": {}}, "format")):
        status, _, found = server.ask("POST", "/api/chat", body)
        assert status == 400 and key in found["error"], found


def test_all_routes_have_the_options_of_an_answer(server: Server) -> None:
    """A raw prompt has no thoughts and no functions."""
    for path, body in PATHS.items():
        few = {"options": {"num_predict": 8}, "stream": False} if "api" in path else {"max_tokens": 8, "seed": 5}
        status, _, found = server.ask("POST", path, {**body, **few, "regex": "[0-9]{3}", "ignore_eos": False})
        assert status == 200 and re.search(r"\b[0-9]{3}\b", json.dumps(found)), (path, found)
    for path, key, value in (("/v1/completions", "think", True), ("/v1/completions", "tools", TOOLS),
                             ("/v1/completions", "reasoning_effort", "high"), ("/api/generate", "tools", TOOLS)):
        status, _, found = server.ask("POST", path, {**PATHS[path], key: value})
        assert status == 400 and key in str(found["error"]), (path, key, found)


def test_unknown_keys_and_values_that_ask_for_nothing_are_ignored(server: Server) -> None:
    more = {"x": {"y": [1]}, "n": 1, "best_of": 1, "logit_bias": {}, "suffix": None, "functions": [], "mirostat": 0}
    for path, body in PATHS.items():
        few = {"options": {"num_predict": 1, "x": 1}, "stream": False} if "api" in path else {}
        few = few or {"max_output_tokens" if "input" in body else "max_tokens": 1}
        status, _, found = server.ask("POST", path, {**body, **few, **more})
        assert status == 200, (path, found)
    inner = [{"role": "user", "name": "a", "x": 1, "content": [{"type": "text", "text": QUESTION, "x": 1}]}]
    tools = [{"type": "function", "x": 1, "function": {**TOOLS[0]["function"], "x": 1}}]
    said = server.chat(inner, tools=tools, tool_choice="none", stream_options={"x": 1},
                       response_format={"type": "text", "x": 1})
    assert said["choices"] == server.chat(QUESTION, tools=TOOLS, tool_choice="none")["choices"]


def test_results_have_the_order_of_their_calls() -> None:
    """Templates write no ids: the first result is read as that of the first call."""
    calls = [{"id": each, "function": {"name": "f"}} for each in "ab"]
    results = [{"role": "tool", "tool_call_id": each, "content": each} for each in "ba"]
    for given, wanted in ((results, "ab"), (results[:1], "b"), ([*results, {"role": "tool", "content": "x"}], "abx")):
        found = check_messages([{"role": "assistant", "tool_calls": calls}, *given])
        assert "".join(each["content"] for each in found) == wanted


# ---- prompts -------------------------------------------------------------------------------------------------------


def test_several_prompts(server: Server, engine: edge.Engine) -> None:
    prompts = ["Two teas", "A scone", "The lift"]
    alone = [server.ask("POST", "/v1/completions", {"prompt": each, **GREEDY})[2] for each in prompts]
    status, _, found = server.ask("POST", "/v1/completions", {"prompt": prompts, **GREEDY})
    assert status == 200
    assert [each["text"] for each in found["choices"]] == [each["choices"][0]["text"] for each in alone]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert found["usage"][name] == sum(each["usage"][name] for each in alone)
    ids = [list(engine.model.encode_raw(each)) for each in prompts]
    assert server.ask("POST", "/v1/completions", {"prompt": ids, **GREEDY})[2]["choices"] == found["choices"]
    assert server.ask("POST", "/v1/completions", {"prompt": ids[:1], **GREEDY})[2]["choices"] == found["choices"][:1]
    two = {"prompt": prompts, "n": 2, **WILD, "seed": 4}
    several = server.ask("POST", "/v1/completions", two)[2]["choices"]
    one = server.ask("POST", "/v1/completions", {**two, "prompt": prompts[1]})[2]["choices"]
    assert [each["index"] for each in several] == list(range(6))
    assert [each["text"] for each in several[2:4]] == [each["text"] for each in one]
    events = server.events("/v1/completions", {"prompt": prompts, **GREEDY, "echo": True})[:-1]
    for i, each in enumerate(prompts):
        told = "".join(event["choices"][0]["text"] for event in events if event["choices"][0]["index"] == i)
        assert told == each + found["choices"][i]["text"]
    for wrong in ([], [""], [[]], ["a", 5], [[1], "\ud800"], [[-1]], ["a"] * 65, [None], [True], "tea " * 9000, 5):
        status, _, body = server.ask("POST", "/v1/completions", {"prompt": wrong})
        assert status == 400 and body["error"]["param"] == "prompt", wrong
    status, _, body = server.ask("POST", "/v1/completions", {"prompt": ["a"] * 50})  # the queue never holds so many
    assert status == 400 and "several requests" in body["error"]["message"]


def following(engine: edge.Engine, ids: array[int]) -> np.ndarray:
    """The log probabilities of what follows each token of a text: log-softmax in float64 of the logits of one pass."""
    n, n_vocab, c = len(ids), engine.config.n_vocab, engine.config
    rows = array("f", bytes(4 * n * n_vocab))
    with engine.model.alone() as transformer:
        cache = KVCache(*c.kv_shape, n, "int8", windows=c.windows)
        for at in range(0, n, transformer.chunk):
            part = rows[at * n_vocab : (at + transformer.chunk) * n_vocab]
            transformer.step((Segment(cache, ids[at : at + transformer.chunk], part, True),))
            rows[at * n_vocab : (at + transformer.chunk) * n_vocab] = part
    return log_softmax(np.frombuffer(rows, np.float32).reshape(n, n_vocab))


def test_the_prompt_is_scored(server: Server, engine: edge.Engine) -> None:
    """As NumPy does, and as the slow forward pass in NumPy."""
    prompt = "Two teas, please – and “çay”. 😀 " * 3  # several bytes a character, more than one step
    ids = engine.model.encode_raw(prompt)
    n = len(ids)
    assert n > 32
    expected = following(engine, ids)
    body = {"prompt": prompt, "echo": True, "logprobs": 3, "max_tokens": 0}
    choice = server.ask("POST", "/v1/completions", body)[2]["choices"][0]
    told = choice["logprobs"]
    assert choice["text"] == prompt and choice["finish_reason"] == "length"
    assert [len(told[name]) for name in told] == [n] * 4
    assert told["token_logprobs"][0] is None and told["top_logprobs"][0] is None
    for i in range(1, n):
        assert told["token_logprobs"][i] == pytest.approx(expected[i - 1, ids[i]], abs=2e-5)
        likeliest = [*np.sort(expected[i - 1])[-3:]]
        top, name = dict(told["top_logprobs"][i]), told["tokens"][i]
        assert top[name] == told["token_logprobs"][i]  # as OpenAI's: the token itself, too, up to four in all
        if len(top) == 4:
            assert top[name] == min(top.values())
            del top[name]
        assert sorted(top.values()) == pytest.approx(likeliest, abs=2e-5)
    slow = log_softmax(forward.Model(open_checkpoint(demo())).logits(list(ids)))
    apart = np.abs(slow[: n - 1, ids[1:]].diagonal() - told["token_logprobs"][1:])
    assert apart.mean() < 0.3  # the engine rounds keys and values to int8, the slow pass does not
    # offsets: where the text of each token begins
    assert told["text_offset"][0] == 0 and told["text_offset"] == sorted(told["text_offset"])
    for i, at in enumerate(told["text_offset"]):
        if not told["tokens"][i].startswith("bytes:"):
            assert prompt[at:].startswith(told["tokens"][i])
    # the same for ids, in a stream, in a batch, and with an answer after it
    assert server.ask("POST", "/v1/completions", {**body, "prompt": list(ids)})[2]["choices"][0] == choice
    events = server.events("/v1/completions", {**body, "max_tokens": 4, "temperature": 0})[:-1]
    whole = server.ask("POST", "/v1/completions", {**body, "max_tokens": 4, "temperature": 0})[2]["choices"][0]
    streamed = [event["choices"][0] for event in events]
    assert "".join(each["text"] for each in streamed) == whole["text"] and whole["text"].startswith(prompt)
    for name in told:
        joined = [value for each in streamed if each["logprobs"] for value in each["logprobs"][name]]
        assert joined == whole["logprobs"][name] and joined[:n] == told[name] and len(joined) == n + 4
    several = server.ask("POST", "/v1/completions", {**body, "prompt": ["Hi", prompt]})[2]["choices"]
    assert several[1] == {**choice, "index": 1}
    few = server.ask("POST", "/v1/completions", {**body, "logprobs": 0})[2]["choices"][0]["logprobs"]
    assert few["top_logprobs"][1:] == [{token: score} for token, score in zip(
        few["tokens"][1:], few["token_logprobs"][1:])]
    short = engine.session().complete(prompt, max_tokens=0, logprobs=0, echo=True)
    assert short.text == "" and [each.id for each in short.prompt_logprobs] == list(ids)
    with pytest.raises(UsageError, match="echo"):
        engine.session().ask("Hi", logprobs=0, echo=True)


def test_lm_evaluation_harness_gets_the_scores_of_numpy(server: Server, engine: edge.Engine) -> None:
    """The requests of lm-eval 0.4.13 (local-completions) for the task in examples/lm_eval, and what it reads of the
    responses: it drops the last entry, that of the answer, which may be the token that ends it.
    """
    encode, right, ended = engine.tokenizer.encode, [], 0
    for line in (ROOT / "examples/lm_eval/counter.jsonl").read_text().splitlines():
        row = json.loads(line)
        context = f"User: {row['question']}\nAssistant:"
        n, told, wanted = len(encode(context)), [], []
        for choice in row["choices"]:
            ids = array("i", encode(f"{context} {choice}"))
            body = {"model": "any", "prompt": [list(ids)], "temperature": 0, "max_tokens": 1, "logprobs": 1,
                    "seed": 1234, "echo": True}
            choice = server.ask("POST", "/v1/completions", body)[2]["choices"][0]
            found = choice["logprobs"]
            logprobs, tops = found["token_logprobs"][n:-1], found["top_logprobs"][n:-1]
            told.append((sum(logprobs), all(each == max(top.values()) for each, top in zip(logprobs, tops))))
            rows = following(engine, ids)[n - 1 : -1]
            wanted.append((rows[range(len(rows)), ids[n:]].sum(), (rows.argmax(-1) == ids[n:]).all()))
            ended += choice["finish_reason"] == "stop"
            events = [each["choices"][0]["logprobs"] for each in server.events("/v1/completions", body)[:-1]]
            assert found["tokens"] == [token for each in events if each for token in each["tokens"]]
        assert [each for each, _ in told] == pytest.approx([each for each, _ in wanted], abs=1e-4)
        assert [greedy for _, greedy in told] == [greedy for _, greedy in wanted]
        right.append(told.index(max(told)) == row["answer"])
    assert sum(right) / len(right) == 0.85 and ended > 9  # as lm-eval says


# ---- OpenAI's responses ----------------------------------------------------------------------------------------------


def events_of(server: Server, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a streamed response; the name of each is its type, and they are numbered."""
    status, headers, text = server.ask("POST", "/v1/responses", {**body, "stream": True})
    assert status == 200 and headers["content-type"].startswith("text/event-stream"), text
    found = []
    for i, block in enumerate(text.removesuffix("\n\n").split("\n\n")):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}" and event["sequence_number"] == i
        found.append(event)
    return found


def respond(server: Server, **body: Any) -> Any:
    status, _, found = server.ask("POST", "/v1/responses", body)
    assert status == 200, found
    return found


def stable(response: dict[str, Any]) -> Any:
    """A response without what is new each time."""
    def without(value: Any) -> Any:
        if isinstance(value, list):
            return [without(each) for each in value]
        if isinstance(value, dict):
            return {key: without(each) for key, each in value.items()
                    if key not in ("id", "call_id", "created_at", "usage", "timings")}
        return value

    return without(response)


def test_a_response_is_the_answer_of_a_chat(server: Server) -> None:
    said = server.chat([{"role": "system", "content": "Be brief."}, *user()])
    text = said["choices"][0]["message"]["content"]
    base = {"temperature": 0, "max_output_tokens": 16}
    whole = respond(server, input=QUESTION, instructions="Be brief.", **base)
    assert whole["object"] == "response" and whole["error"] is None and whole["store"] is False
    (item,) = whole["output"]
    assert item["type"] == "message" and item["content"] == [
        {"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    assert whole["usage"]["input_tokens"] == said["usage"]["prompt_tokens"]
    assert whole["usage"]["output_tokens"] == said["usage"]["completion_tokens"]
    cut = said["choices"][0]["finish_reason"] == "length"
    assert whole["status"] == ("incomplete" if cut else "completed")
    parts = [{"role": "developer", "content": "Be brief."},
             {"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTION}]}]
    assert stable(respond(server, input=parts, **base)) == {**stable(whole), "instructions": None}
    short = respond(server, input=QUESTION, temperature=0, max_output_tokens=1)
    assert (short["status"], short["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert short["output"][0]["status"] == "incomplete"
    again = [*parts, item, {"role": "user", "content": "And now?"}]
    told = [{"role": "system", "content": "Be brief."}, *user(), {"role": "assistant", "content": text},
            *user("And now?")]
    wanted = server.chat(told)["choices"][0]["message"]["content"]
    assert respond(server, input=again, **base)["output"][0]["content"][0]["text"] == wanted
    assert server.ask("POST", "/responses", {"input": QUESTION, **base})[2]["output"][0]["content"] == (
        respond(server, input=QUESTION, **base)["output"][0]["content"])


def test_a_response_in_events(server: Server) -> None:
    for body in ({"input": QUESTION, "temperature": 0, "max_output_tokens": 16},
                 {"input": QUESTION, "temperature": 0, "max_output_tokens": 16, "top_logprobs": 2},
                 {"input": QUESTION, "temperature": 0, "max_output_tokens": 60, "tools": FLAT,
                  "tool_choice": "required"}):
        whole, events = respond(server, **body), events_of(server, body)
        assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
        last = events[-1]
        assert last["type"] == f"response.{whole['status']}" and stable(last["response"]) == stable(whole)
        for i, item in enumerate(last["response"]["output"]):
            own = [event for event in events if event.get("output_index") == i]
            assert own[0]["type"] == "response.output_item.added" and own[0]["item"]["id"] == item["id"]
            assert own[-1]["type"] == "response.output_item.done" and own[-1]["item"] == item
            ids = {event["item_id"] for event in own[1:-1]}
            assert ids == {item["id"]}
            if item["type"] == "message":
                text = item["content"][0]["text"]
                deltas = [event for event in own if event["type"] == "response.output_text.delta"]
                assert "".join(event["delta"] for event in deltas) == text and len(deltas) > 1
                assert [each for event in deltas for each in event["logprobs"]] == item["content"][0]["logprobs"]
                kinds = [event["type"] for event in own if not event["type"].endswith("delta")]
                assert kinds[1:-1] == ["response.content_part.added", "response.output_text.done",
                                       "response.content_part.done"]
            else:
                assert own[-2]["arguments"] == item["arguments"] == "".join(
                    event["delta"] for event in own if event["type"].endswith("arguments.delta"))


FLAT = [{"type": "function", **tool["function"]} for tool in TOOLS]


def test_a_response_calls_functions_and_has_a_form(server: Server) -> None:
    called = respond(server, input=QUESTION, tools=FLAT, tool_choice={"type": "function", "name": "cancel"},
                     temperature=0, max_output_tokens=60)
    (call,) = called["output"]
    assert (call["type"], call["name"]) == ("function_call", "cancel")
    assert json.loads(call["arguments"])["drink"] in ("tea", "coffee")
    some = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "order"}]}
    assert respond(server, input=QUESTION, tools=FLAT, tool_choice=some)["output"][0]["name"] == "order"
    result = [{"role": "user", "content": QUESTION}, {"type": "reasoning", "id": "r", "summary": []}, call,
              {"type": "function_call_output", "call_id": call["call_id"], "output": "done"}]
    messages = [*user(), {"role": "assistant", "content": "", "tool_calls": [
        {"id": call["call_id"], "type": "function",
         "function": {"name": "cancel", "arguments": call["arguments"]}}]},
        {"role": "tool", "tool_call_id": call["call_id"], "content": "done"}]
    wanted = server.chat(messages, tools=TOOLS)["choices"][0]["message"]["content"]
    found = respond(server, input=result, tools=FLAT, temperature=0, max_output_tokens=16)
    assert found["output"][0]["content"][0]["text"] == wanted
    form = {"format": {"type": "json_schema", "name": "drink", "schema": DRINK, "strict": True}}
    made = respond(server, input=QUESTION, text=form, temperature=1.5, max_output_tokens=40)
    assert json.loads(made["output"][0]["content"][0]["text"])["drink"] in ("tea", "coffee")
    either = respond(server, input=QUESTION, text=form, tools=FLAT, temperature=1.5, max_output_tokens=60)["output"][0]
    assert either["type"] == "function_call" or json.loads(either["content"][0]["text"])["drink"]


def test_what_a_response_refuses(server: Server) -> None:
    for more, param in (
        ({"previous_response_id": "resp_1"}, "previous_response_id"), ({"input": []}, "input"), ({"input": 5}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"), ({"input": [7]}, "input[0]"),
        ({"input": [{"role": "king", "content": "x"}]}, "input[0].role"), ({"background": True}, "background"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
         "input[0].content[0].type"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].arguments"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "web_search"}, "tools": FLAT}, "tool_choice.type"),
        ({"tool_choice": {"type": "function", "name": "x"}, "tools": FLAT}, "tool_choice.name"),
        ({"tools": [{**FLAT[0], "name": "a b"}]}, "tools[0].name"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"), ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"text": {"format": {}}}, "text.format.type"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"), ({"truncation": "auto"}, "truncation"),
        ({"metadata": {"a": "\ud800"}}, "metadata"), ({"reasoning": {"a": "\ud800"}}, "reasoning"),
        ({"max_output_tokens": 0}, "max_output_tokens"), ({"instructions": "\ud800"}, "instructions"),
        ({"input": [{"role": "system", "content": "only"}]}, "input"),
        ({"reasoning": {"effort": "low"}}, "reasoning"), ({"input": [{"type": "reasoning"}]}, "input"),
        ({"input": "tea " * 4000}, "input"), ({"instructions": "a", "input": [{"role": "king"}]}, "input[0].role"),
        ({"text": {"format": {"type": "json_schema", "schema": {"type": "x"}}}}, "text"),
        ({"conversation": "c"}, "conversation"),
    ):
        status, _, found = server.ask("POST", "/v1/responses", {"input": QUESTION, **more})
        assert status == 400 and found["error"]["param"] == param, found


def test_halves_of_surrogates_never_fail_the_server(server: Server) -> None:
    half = "\ud83d"
    bodies: list[dict[str, Any]] = [
        {"tools": [{"type": "function", "function": {"name": "f", "description": half}}]}, {"choices": [half]},
        {"response_format": {"type": half}}, {"chat_template_kwargs": {half: 1}}, {"reasoning_effort": half},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {half: half}}}}, {"tool_choice": half},
        {"tools": TOOLS, "tool_choice": {"type": half}}, {"think": half}, {half: half}, {"grammar": half},
    ]
    for body in bodies:
        status, _, found = server.ask("POST", "/v1/chat/completions", {"messages": user(), **GREEDY, **body})
        assert status == (200 if half in body else 400), (body, found)
