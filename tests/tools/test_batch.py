"""``bitnet-edge batch``: every request is answered once, whatever happens on the way.

BATCH_KILLS=50 kills it fifty times (the suite: four times).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import edge
from edge.errors import Busy, UsageError
from edge.session.session import Session
from edge.tools.batch import Batch
from tests.services import ROOT

pytestmark = pytest.mark.usefixtures("bundled_model")

KILLS = int(os.environ.get("BATCH_KILLS", "4"))


def line(name: str, content: str = "Hello", **body: Any) -> str:
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 12, "temperature": 0, **body}
    return json.dumps({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body})


def answers(path: Path) -> dict[str, dict[str, Any]]:
    """custom_id -> line; each is there once."""
    found = [json.loads(each) for each in path.read_text().splitlines()]
    assert len({each["id"] for each in found}) == len(found)
    return {each["custom_id"]: each for each in found}


@pytest.fixture(scope="module")
def engine():
    with edge.load(threads=1, ctx=256) as engine:
        yield engine


def run(engine: edge.Engine, folder: Path, lines: list[str], **options: Any) -> dict[str, dict[str, Any]]:
    (folder / "in.jsonl").write_text("".join(each + "\n" for each in lines))
    with Batch(engine, str(folder / "in.jsonl"), str(folder / "out.jsonl"), **options) as batch:
        batch.run()
    return answers(folder / "out.jsonl")


def test_answers_are_those_of_one_after_the_other(engine, tmp_path) -> None:
    questions = ["Hello", "What is there to eat?", "Where is the lift?", "Two teas, please."] * 3
    found = run(engine, tmp_path, [line(str(i), text) for i, text in enumerate(questions)])
    for i, text in enumerate(questions):
        answer = engine.session("").ask(text, max_tokens=12, sampling=edge.Sampling(temperature=0.0))
        body = found[str(i)]["response"]["body"]
        assert body["choices"][0]["message"] == {"role": "assistant", "content": answer.text}
        assert body["choices"][0]["finish_reason"] == answer.finish_reason
        assert body["usage"]["completion_tokens"] == answer.usage.completion
        assert found[str(i)]["error"] is None and body["object"] == "chat.completion"


def test_errors_stand_in_their_lines(engine, tmp_path) -> None:
    bad = {
        "messages": ({"messages": []}, "messages"), "role": ({"messages": [{"role": "king", "content": "x"}]}, "role"),
        "schema": ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}}, "not"),
        "format": ({"response_format": {"type": "xml"}}, "response_format"), "n": ({"n": 0}, "n is not"),
        "temp": ({"temperature": -1}, "temperature"), "tools": ({"tools": [{}]}, "tools[0]"),
        "most": ({"max_tokens": "x"}, "max"), "stop": ({"stop": [1]}, "stop"),
        "bias": ({"logit_bias": {"5": 1}}, "logit_bias"),
    }
    lines = [line(name, **body) for name, (body, _) in bad.items()]
    lines += ["rubbish", "[1]", "", json.dumps({"custom_id": 5}), json.dumps({"custom_id": "url", "url": "/x"}),
              json.dumps({"custom_id": "body"}), "[" * 100_000, "[" + "[]," * 99_999 + "[]]",
              line("nan", temperature=float("nan")), line("inner", metadata={"x": float("nan")}),
              line("digits").replace('"digits"', '"digits", "x": ' + "9" * 5000), line("good")]
    found = run(engine, tmp_path, lines)
    for name, (_, words) in bad.items():
        error = found[name]["response"]["body"]["error"]
        assert found[name]["response"]["status_code"] == 400 and words in error["message"], error
        assert found[name]["error"] == error
    assert found["url"]["response"]["status_code"] == 404 and found["body"]["response"]["status_code"] == 400
    assert found["good"]["response"]["status_code"] == 200
    written = (tmp_path / "out.jsonl").read_text()
    assert len(written.splitlines()) == len([each for each in lines if each])
    assert sum("NaN is not JSON" in each for each in written.splitlines()) == 2
    assert "a whole number has 5000 digits; the limit is 4000" in written and "set_int_max" not in written


def test_a_file_without_a_request_is_one_error(engine, tmp_path) -> None:
    """Nothing is written, whatever the lines are."""
    with pytest.raises(UsageError, match="has no valid request; request 1: the request cannot be read as JSON"):
        run(engine, tmp_path, ["# A heading", "", "text"])
    with pytest.raises(UsageError, match="has no valid request; request 1: body is not a JSON object"):
        run(engine, tmp_path, ["", json.dumps({"foo": 1})])
    assert not (tmp_path / "out.jsonl").exists()


def test_one_bad_line_ends_nothing(engine, tmp_path) -> None:
    """Whatever JSON can say: its line gets an error, all others get answers, and --resume finds them all done."""
    half = line("\ud83d", "Hello")  # json.dumps writes the escape
    odd = [json.dumps({"custom_id": name, "body": {}}) for name in (1, 1.5, True, [], {}, ["\udc00"], {"\ud800": 1})]
    bodies = [{"tools": [{"type": "function", "function": {"name": "f", "description": "\ud800"}}]},
              {"response_format": {"type": "\udfff"}}, {"choices": ["\ud800"]},
              {"response_format": {"type": "json_schema", "json_schema": {"schema": {"const": "\ud800"}}}},
              {"tools": [{"type": "function", "function": {"name": "\ud800"}}]}, {"stop": ["\ud800"]},
              {"tool_choice": {"type": "function", "function": {"name": "\ud800"}}, "tools": []}]
    lines = [half, *odd, *(line(f"body {i}", **body) for i, body in enumerate(bodies)), line("good")]
    found = run(engine, tmp_path, lines)
    written = [json.loads(each) for each in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(written) == len(lines) and found["good"]["error"] is None
    assert all(each["response"]["status_code"] == 400 for each in written if each["custom_id"] != "good"), written
    assert "half a surrogate pair" in found["\ud83d"]["error"]["message"]
    with Batch(engine, str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl"), resume=True) as batch:
        done = batch.run()
        assert (done.before, done.answered, done.failed) == (1, 0, len(lines) - 1)


def test_a_bug_costs_one_line(engine, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that nobody foresaw is an error of its request alone."""
    answer = Session.answer

    def broken(self: Session, call: Any) -> Any:
        if call.messages[-1]["content"] == "bug":
            raise ZeroDivisionError
        return answer(self, call)

    monkeypatch.setattr(Session, "answer", broken)
    found = run(engine, tmp_path, [line("a"), line("b", "bug"), line("c")])
    assert [found[name]["response"]["status_code"] for name in "abc"] == [200, 500, 200]


def test_two_requests_of_one_name_are_refused_before_anything_runs(engine, tmp_path) -> None:
    with pytest.raises(UsageError, match="requests 1 and 3 have the same custom_id, 'a'"):
        run(engine, tmp_path, [line("a"), line("b"), line("a", "Something else")])
    assert not (tmp_path / "out.jsonl").exists()
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"body": {"messages": [
        {"role": "user", "content": "Hi"}], "max_tokens": 1}}) + "\n" for _ in range(2)))  # no names: told by number
    with Batch(engine, str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl")) as batch:
        assert batch.run().answered == 2


def test_forms_and_raw_prompts(engine, tmp_path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
              "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    raw = {"custom_id": "raw", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 3}}
    parts = [{"role": "developer", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "Tea?"}]}]
    found = run(engine, tmp_path, [
        line("json", response_format=wanted, max_tokens=30), line("schema", schema=schema, max_tokens=30),
        line("two", schema=schema, regex="a"), line("choice", choices=["yes", "no"]), json.dumps(raw),
        line("parts", messages=parts),
    ], defaults={"regex": "[0-9]{2}"})
    assert "only one form" in found.pop("two")["error"]["message"]
    bodies = {name: each["response"]["body"]["choices"][0] for name, each in found.items()}
    assert set(json.loads(bodies["json"]["message"]["content"])) == {"n"}
    assert bodies["schema"] == bodies["json"]
    assert bodies["choice"]["message"]["content"] in ("yes", "no")
    assert bodies["raw"]["text"].isdigit() and bodies["parts"]["message"]["content"].isdigit()


def test_calls_of_functions(engine, tmp_path) -> None:
    switch = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]}
    tools = [{"type": "function", "function": {"name": "light", "parameters": switch}}]
    body = run(engine, tmp_path, [line("a", "Light!", tools=tools, tool_choice="required", max_tokens=60)])
    choice = body["a"]["response"]["body"]["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "light" and set(json.loads(call["function"]["arguments"])) == {"on"}


def test_resume(engine, tmp_path) -> None:
    """A request that is answered is not asked again; half a line is dropped; another input is refused."""
    lines = [line(str(i)) for i in range(6)]
    run(engine, tmp_path, lines)
    out = tmp_path / "out.jsonl"
    whole = out.read_bytes().splitlines(keepends=True)
    with pytest.raises(UsageError, match="use --resume to continue"):
        run(engine, tmp_path, lines)
    out.write_bytes(b"".join(whole[:3]) + whole[3][:40])
    found = run(engine, tmp_path, lines, resume=True)
    assert set(found) == set("012345") and out.read_bytes().startswith(b"".join(whole[:3]))
    with pytest.raises(UsageError, match="belongs to another input"):
        run(engine, tmp_path, [line(f"x{i}") for i in range(6)], resume=True)
    with pytest.raises(UsageError, match="is not an answer of this batch"):
        run(engine, tmp_path, lines[:2], resume=True)
    for foreign in (b"rubbish\n" + b"".join(whole), b"My notes", whole[0][:-1].replace(b" ", b"")):
        out.write_bytes(foreign)
        with pytest.raises(UsageError, match="at byte 0 is not an answer"):
            run(engine, tmp_path, lines, resume=True)
        assert out.read_bytes() == foreign


def test_one_writer_at_a_time(engine, tmp_path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(line("a") + "\n")
    with Batch(engine, str(source), str(target)), pytest.raises(Busy):
        Batch(engine, str(source), str(target), resume=True)
    with pytest.raises(UsageError, match="cannot read"):
        Batch(engine, str(tmp_path / "nowhere"), str(target))
    with pytest.raises(UsageError, match="cannot write"):
        Batch(engine, str(source), str(tmp_path))
    os.link(source, tmp_path / "linked")
    for resume in (False, True):
        source.write_text(line("a"))
        with pytest.raises(UsageError, match="linked is IN, too"):
            Batch(engine, str(source), str(tmp_path / "linked"), resume=resume)
        assert source.read_text() == line("a")


def test_stop_leaves_whole_lines(engine, tmp_path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [line(str(i), max_tokens=100, ignore_eos=True) for i in range(40)]
    source.write_text("".join(each + "\n" for each in lines))
    with Batch(engine, str(source), str(target)) as batch:
        done = batch.run(lambda done, total: batch.stop() if done >= 3 else None)
    assert 3 <= done.answered < 40
    before = answers(target)
    assert all(each["response"]["body"]["choices"][0]["finish_reason"] == "length" for each in before.values())
    assert len(before) == done.answered


def test_kill_at_any_moment(tmp_path) -> None:
    """kill -9, again and again: no request is lost or answered twice, and the answers are those of a quiet run."""
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    n = 40 * KILLS
    source.write_text("".join(line(str(i), f"Question {i}", max_tokens=8 + i % 17) + "\n" for i in range(n)))
    command = [sys.executable, "-m", "edge", "batch", str(source), "-q", "-t", "1", "-c", "128", "--temp", "0"]
    moments = random.Random(7)
    killed = 0
    while killed < KILLS:
        process = subprocess.Popen([*command, str(target), "--resume"], cwd=ROOT)
        deadline, size = time.monotonic() + 300, target.stat().st_size if target.exists() else 0
        while process.poll() is None and time.monotonic() < deadline:  # until it has begun to write
            if target.exists() and target.stat().st_size > size:
                break
            time.sleep(0.002)
        time.sleep(moments.random() * 0.05)
        process.kill()
        assert process.wait() in (0, -9)
        killed += 1
        done = target.read_bytes().count(b"\n")
        if done == n:
            break
    assert subprocess.run([*command, str(target), "--resume"], cwd=ROOT).returncode == 0
    found = answers(target)
    assert set(found) == {str(i) for i in range(n)}
    quiet = tmp_path / "quiet.jsonl"
    assert subprocess.run([*command, str(quiet)], cwd=ROOT).returncode == 0
    for name, each in answers(quiet).items():
        assert found[name]["response"]["body"]["choices"] == each["response"]["body"]["choices"]
