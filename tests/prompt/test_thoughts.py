"""Models that think before they answer: thoughts told apart, shown where they may be, never spoken; or forbidden."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edge.cli.answers import AnswerOutput as Printed
from edge.cli.group import cli
from edge.cli.output import Output
from edge.errors import UsageError
from edge.loading import load
from edge.prompt.template import Template, source
from edge.prompt.tokenizer.steps import ALPHABET
from edge.registry.families import FAMILIES
from edge.session.stream import Piece, Stream
from tests.formats.test_family_oracles import gguf_file
from tests.handmade import ARR, F32, I32, STR, U32, value
from tests.http_service import serving
from tests.prompt.test_template import model
from tests.services import FAKE

SAID = "<think>\nTwo and two.\nThat is four.\n</think>\n\nIt is four. Really."


class Characters:
    """A decoder of one character a token."""

    def push(self, id: int) -> str:
        return chr(id)


def pieces(text: str, by: str = "token", stop: tuple[str, ...] = ()) -> list[Piece]:
    stream = Stream(Characters(), stop, by, thinks=True)
    found: list[Piece] = []
    for c in text:
        found += stream.push(ord(c))
        if stream.stopped:
            break
    return found + list(stream.flush())


def parts(found: list[Piece]) -> tuple[str, str]:
    return "".join(p.text for p in found if p.thought), "".join(p.text for p in found if not p.thought)


@pytest.mark.parametrize("by", ["token", "word", "sentence", "all"])
@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        (SAID, "Two and two.\nThat is four.", "It is four. Really."),
        ("\n<think>\n\n</think>\n\nFour.", "", "Four."),
        ("<think></think>Four.", "", "Four."),
        ("Four <think>five</think>.", "", "Four <think>five</think>."),  # not at the beginning
        ("<thing> is a tag", "", "<thing> is a tag"),
        ("<think>cut in the middle", "cut in the middle", ""),
        ("<think>a < b </thin is no mark</think>yes", "a < b </thin is no mark", "yes"),
        ("<thi", "", "<thi"),
        ("", "", ""),
    ],
)
def test_thoughts_are_separated_from_the_answer(by: str, text: str, thought: str, answer: str) -> None:
    found = pieces(text, by)
    assert parts(found) == (thought, answer)
    assert [i for piece in found for i in piece.ids] == [ord(c) for c in text]


def test_nothing_in_a_thought_stops_the_answer() -> None:
    assert parts(pieces(SAID, stop=("four",))) == ("Two and two.\nThat is four.", "It is ")


@pytest.mark.parametrize(
    ("thoughts", "by", "shown"), [(None, "token", False), (True, "token", True), (True, "sentence", True),
                                  (None, "sentence", False), (False, "token", False)])
def test_what_a_pipe_gets(capsys: pytest.CaptureFixture[str], thoughts: bool | None, by: str, shown: bool) -> None:
    answer = Printed(Output(), thoughts, by)
    for piece in pieces(SAID, by):
        answer.feed(piece.text, piece.thought)
    answer.end()
    expected = "It is four. Really.\n"
    assert capsys.readouterr().out == ("Two and two.\nThat is four.\n\n" if shown else "") + expected


@pytest.mark.parametrize("think", [None, True, False])
def test_the_template_of_the_family(think: bool | None) -> None:
    """A file without a template, and one whose template is Qwen3's: both obey."""
    asked = [{"role": "user", "content": "Hello"}]
    checkpoint = model(arch="qwen3")
    family = Template.for_model(checkpoint, think=think)
    assert family.name == "qwen3" and family.think is think
    ending = "<|im_start|>assistant\n" + ("<think>\n\n</think>\n\n" if think is False else "")
    assert family.render(asked) == "<|im_start|>user\nHello<|im_end|>\n" + ending
    own = model(template=source("qwen3") + "{##}", arch="qwen3")
    rendered = Template.for_model(own, think=think)
    assert rendered.name == "model" and rendered.render(asked) == family.render(asked)


@pytest.mark.parametrize(
    ("name", "arch", "temperature", "top_p", "top_k"),
    [("hunyuan", "hunyuan-dense", 0.7, 0.6, 20), ("gemma3", "gemma3", 1.0, 0.95, 64)],
)
def test_the_advice_for_other_families(
    tmp_path: Path, name: str, arch: str, temperature: float, top_p: float, top_k: int
) -> None:
    row = FAMILIES[arch]
    assert row.sampling and row.thinking is None
    with load(gguf_file(tmp_path, name, "Q2_0 of 64"), ctx=64, threads=1) as engine:
        sampling = engine.model.sampling
        assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (temperature, top_p, top_k, 0)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny Qwen3 with a byte-level vocabulary."""
    tokens = [*ALPHABET, *(f"<|x{i}|>" for i in range(60)), "<think>", "</think>", "<|im_start|>", "<|im_end|>"]
    folder = tmp_path_factory.mktemp("qwen")
    keys = {
        "tokenizer.ggml.model": value(STR, "gpt2"), "tokenizer.ggml.pre": value(STR, "qwen2"),
        "tokenizer.ggml.tokens": value(ARR, (STR, tokens)),
        "tokenizer.ggml.token_type": value(ARR, (I32, [1] * 256 + [3] * 60 + [4, 4, 3, 3])),
        "tokenizer.ggml.eos_token_id": value(U32, 319),
    }
    return gguf_file(folder, "qwen3", "Q2_0 of 64", keys=keys)


@pytest.mark.parametrize("name", ["qwen3", "hunyuan", "llama3_rope"])
def test_what_the_file_recommends_comes_first(tmp_path: Path, name: str) -> None:
    """Before the advice for the family and our own default, value by value; behind what the caller says."""
    keys = {"general.sampling.temp": value(F32, 0.35), "general.sampling.top_k": value(I32, 7)}
    (tmp_path / "plain").mkdir()
    silent, path = gguf_file(tmp_path / "plain", name, "Q2_0 of 64"), gguf_file(tmp_path, name, "Q2_0 of 64", keys=keys)
    with load(silent, ctx=64, threads=1) as plain, load(path, ctx=64, threads=1) as engine:
        assert engine.model.sampling == replace(plain.model.sampling, temperature=0.35, top_k=7)
        request = engine.prepare(prompt=[1], top_k=9, max_tokens=1).options
        assert request.sampling == replace(engine.model.sampling, top_k=9)
    if name == "qwen3":  # what the file says is for answers with thoughts
        with load(path, ctx=64, threads=1, think=False) as engine:
            assert engine.model.sampling.temperature == 0.7


def test_http_shows_them_apart() -> None:
    """OpenAI's reasoning_content and Ollama's thinking, whole and streamed; log probabilities: of the answer."""
    asked = {"messages": [{"role": "user", "content": "please think"}], "temperature": 0}
    with serving(command=FAKE, FAKE_THINKS="1") as server:
        whole = server.chat("please think", logprobs=True, max_tokens=100)["choices"][0]
        assert whole["message"] == {"role": "assistant", "content": "Yes.", "reasoning_content": "hm, so"}
        assert [each["token"] for each in whole["logprobs"]["content"]][-4:] == list("Yes.")
        assert "hm" not in "".join(each["token"] for each in whole["logprobs"]["content"])
        events = server.events("/v1/chat/completions", {**asked, "logprobs": True})[:-1]
        deltas = [event["choices"][0]["delta"] for event in events]
        assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "hm, so"
        assert "".join(delta.get("content") or "" for delta in deltas) == "Yes."
        shown = [each["token"] for event in events if event["choices"][0]["logprobs"]
                 for each in event["choices"][0]["logprobs"]["content"]]
        assert shown == [each["token"] for each in whole["logprobs"]["content"]]
        bodies = {"chat": {"messages": asked["messages"]}, "generate": {"prompt": "please think"}}
        for path, body in ((path, {**body, "options": {"temperature": 0}}) for path, body in bodies.items()):
            for stream in (True, False):
                text = server.ask("POST", f"/api/{path}", {**body, "stream": stream})[2]
                lines = [json.loads(line) for line in text.splitlines()] if isinstance(text, str) else [text]
                parts = [line["message"] if path == "chat" else line for line in lines]
                key = "content" if path == "chat" else "response"
                assert "".join(part.get("thinking", "") for part in parts) == "hm, so"
                assert "".join(part[key] for part in parts) == "Yes."


def test_a_template_for_functions_is_switched_with_the_other() -> None:
    checkpoint = model(template=source("qwen3") + "{##}", arch="qwen3")
    text = "{{ 'tools' if tools else '' }}{% if enable_thinking is false %} at once{% endif %}{# tool_calls #}"
    checkpoint.templates = {"tool_use": text}
    template = Template.for_model(checkpoint)
    asked = [{"role": "user", "content": "Hello"}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    for think, said in ((False, "tools at once"), (True, "tools")):
        switched = template.thinking(think)
        assert switched.render(asked, tools=tools) == said
        assert switched.render(asked).endswith("<think>\n\n</think>\n\n") is (think is False)


# ---- asked for by a request -----------------------------------------------------------------------------------------

ASKED = [{"role": "user", "content": "Hello"}]
EVEN = {"temperature": 5.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_tokens": 24, "ignore_eos": True}


class Script:
    """In place of a sampler: says these tokens, whatever the logits are."""

    def __init__(self, tokens: list[int]) -> None:
        self.left = list(tokens)

    def sample(self, *_: Any) -> int:
        return self.left.pop(0)

    def reseed(self, seed: int) -> None:
        pass


def scripted(engine: Any, said: str, **options: Any) -> Any:
    """An answer of a model that says this text, in which marks are tokens, and then ends."""
    tokens = engine.tokenizer.encode(said, special=True)
    session = engine.session()
    session.chat(ASKED, max_tokens=0).text  # noqa: B018  reads the prompt, so that there is a state
    session.state.sampler = Script([*tokens, *engine.model.stop_ids])
    answer = session.chat(ASKED, **options)
    assert answer.text is not None
    return answer


def test_a_budget_ends_the_thoughts(qwen: str) -> None:
    """After so many tokens of thought comes the end that the model itself writes, and the answer goes on behind it."""
    said = "<think>\nabcdefghij\n</think>\n\nYes."
    with load(qwen, ctx=256, threads=1) as engine:
        marks = engine.tokenizer.markers
        ids = engine.tokenizer.encode("\n</think>\n\n", special=True)
        assert engine.model.end_of_thought == ids and marks["</think>"] in ids
        free = scripted(engine, said)
        assert (free.thoughts, free.text, free.finish_reason) == ("abcdefghij", "Yes.", "stop")
        for budget in (0, 1, 2, 5, 11, 12, 100):
            answer = scripted(engine, said, thinking_budget=budget)
            thought = "\nabcdefghij\n"[:budget]  # a letter is a token here
            assert answer.thoughts == thought.strip(), budget
            left = "\nabcdefghij\n"[budget:].lstrip()  # what it says behind the forced end
            assert answer.text == (f"{left}\n\nYes." if left else "Yes."), budget
            assert answer.usage.completion == len(said) - 13 + (0 if budget > 12 else len(ids)), budget  # marks: 1
        cut = scripted(engine, said, thinking_budget=3, max_tokens=6)
        assert cut.thoughts.strip() == "ab" and cut.text == "" and cut.finish_reason == "length"
        plain = scripted(engine, "No thoughts.", thinking_budget=0)
        assert (plain.thoughts, plain.text) == ("", "No thoughts.")
        told = scripted(engine, said, thinking_budget=2, logprobs=0, by="sentence")
        assert len(told.logprobs) == told.usage.completion


def test_a_session_thinks_as_it_is_asked(qwen: str, bundled_model: Path) -> None:
    for loaded in (None, True, False):
        with load(qwen, ctx=256, threads=1, think=loaded) as engine:
            with load(qwen, ctx=256, threads=1, think=False) as unthinking:
                silent = unthinking.model.encode(ASKED)
            session = engine.session()
            free = session.chat(ASKED, max_tokens=1, think=True)
            assert free.text is not None and free.usage.prompt < len(silent)
            assert session.chat(ASKED, max_tokens=1, think=False).text is not None
            assert session.state.tokens[: len(silent)] == silent
            assert engine.prepare(ASKED, think=False).options.sampling.temperature == 0.7
            assert engine.prepare(ASKED, think=True).options.sampling.temperature == 0.6
            begun = [*ASKED, {"role": "assistant", "content": "It is"}]  # thoughts would come too late
            assert session.chat(begun, max_tokens=1).usage.prompt == 0  # not read yet
            assert session.answer(engine.prepare(begun, max_tokens=0)).text == ""
            assert session.state.tokens == silent + engine.model.encode_raw("It is")
            for options in ({"think": True, "choices": ["a"]}, {"think": "yes"}, {"thinking_budget": -1},
                            {"thinking_budget": True}):
                with pytest.raises(UsageError, match="think"):
                    session.chat(ASKED, **options)
            with pytest.raises(UsageError, match="think"):
                session.chat(begun, think=True)
            with pytest.raises(UsageError, match="no template"):
                session.complete("Hi", think=False)
    with load(bundled_model, ctx=256, threads=1) as engine:  # a model that never thinks
        session = engine.session()
        assert session.chat(ASKED, think=False, max_tokens=4).text == session.chat(ASKED, max_tokens=4).text
        for options in ({"think": True}, {"thinking_budget": 5}):
            with pytest.raises(UsageError, match="does not think"):
                session.chat(ASKED, **options)


def test_http_thinks_as_it_is_asked(qwen: str) -> None:
    """All names of the wish, on all routes: honoured, or 400."""
    with load(qwen, ctx=256, threads=1, overflow="stop") as engine:
        counts = {think: len(engine.prepare(ASKED, think=think).ids) for think in (None, True, False)}
        seed = next(seed for seed in range(20_000) if len(engine.chat(ASKED, **EVEN, seed=seed).thoughts) > 12)
        wanted = engine.chat(ASKED, **EVEN, seed=seed, thinking_budget=4)
        thoughts, text = wanted.thoughts, wanted.text
        assert 0 < len(thoughts) <= 4
    assert counts[None] == counts[True] < counts[False]
    with serving("-m", qwen, "--ctx", "256", "--name", "guide") as server:
        assert "thinking" in server.ask("POST", "/api/show", {"model": "guide"})[2]["capabilities"]

        def n_tokens(path: str, **more: Any) -> int:
            key = "input" if path.endswith("responses") else "messages"
            status, _, found = server.ask("POST", path, {key: ASKED, "stream": False, **more})
            assert status == 200, found
            usage = found.get("usage", found)
            return next(usage[name] for name in ("prompt_tokens", "input_tokens", "prompt_eval_count") if name in usage)

        few = {"max_tokens": 1}
        for more, think in (
            ({}, None), ({"chat_template_kwargs": {"enable_thinking": False}}, False), ({"think": False}, False),
            ({"chat_template_kwargs": {"enable_thinking": True}}, True), ({"chat_template_kwargs": {}}, None),
            ({"reasoning_effort": "none"}, False), ({"reasoning_effort": "high"}, True),
            ({"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": False}}, False),
        ):
            assert n_tokens("/v1/chat/completions", **few, **more) == counts[think], more
        options = {"options": {"num_predict": 1}}
        for think in (True, False, None):
            assert n_tokens("/api/chat", **options, think=think) == counts[think]
            made = server.ask("POST", "/api/generate", {"prompt": "Hello", **options, "think": think, "stream": False})
            assert made[2]["prompt_eval_count"] == counts[think]
        assert n_tokens("/api/chat", **options, think="low") == counts[True]
        assert n_tokens("/v1/responses", max_output_tokens=1, reasoning={"effort": "none"}) == counts[False]
        for wrong in ({"chat_template_kwargs": {"enable_thinking": "no"}},
                      {"reasoning_effort": "huge"}, {"think": 5}, {"thinking_budget": -1}):
            status, _, found = server.ask("POST", "/v1/chat/completions", {"messages": ASKED, **wrong})
            assert status == 400 and found["error"]["param"].partition(".")[0] in wrong, found
        asked = {"messages": ASKED, **EVEN, "seed": seed, "thinking_budget": 4}
        message = server.chat(**asked)["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == (thoughts, text)
        deltas = [event["choices"][0]["delta"] for event in server.events("/v1/chat/completions", asked)[:-1]]
        assert "".join(each.get("reasoning_content", "") for each in deltas) == thoughts
    with serving("-m", "demo", "--ctx", "256", "--name", "guide") as server:
        assert server.ask("POST", "/api/show", {"model": "guide"})[2]["capabilities"] == ["completion", "tools"]
        for more, expected in (({"think": False}, 200), ({"think": True}, 400), ({"reasoning_effort": "high"}, 400),
                               ({"chat_template_kwargs": {"enable_thinking": True}}, 400),
                               ({"thinking_budget": 9}, 400), ({"reasoning_effort": "none"}, 200)):
            status, _, found = server.ask("POST", "/v1/chat/completions", {"messages": ASKED, **few, **more})
            assert status == expected, found
            assert status == 200 or "does not think" in found["error"]["message"]


def test_the_budget_of_the_command_line(qwen: str) -> None:
    run = CliRunner()
    done = run.invoke(cli, ["run", "-m", qwen, "Hi", "-n", "4", "-c", "128", "--set", "thinking_budget=2"])
    assert done.exit_code == 0, done.output
    done = run.invoke(cli, ["run", "-m", "demo", "Hi", "--set", "thinking_budget=2"])
    assert done.exit_code == 2 and "--set thinking_budget" in done.output and "does not think" in done.output
    done = run.invoke(cli, ["serve", "-m", "demo", "--port", "0", "--set", "thinking_budget=2"])
    assert done.exit_code == 2 and "--set thinking_budget cannot be used: this model does not think" in done.output
