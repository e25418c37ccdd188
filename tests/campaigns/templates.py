"""Public chat templates, rendered here and by `transformers`: with functions, thoughts and without.

    python -m tests.campaigns.templates FOLDER    (needs transformers)

FOLDER holds the templates, *.jinja; none is part of the repository, as their licences differ.  Each conversation is
given to transformers as its documentation says, and here as OpenAI's clients send it: arguments as text, results
without the name of the function.  Both must write the same characters, or both refuse, and no control token that a
person typed may be read as one.  Prints the counts; exit 1 if a pair differs, with its names.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from edge.constrain.functions import Functions
from edge.errors import EdgeError
from edge.formats.checkpoint import TokenizerSpec
from edge.prompt import sandbox
from edge.prompt.template import Template

BOS, EOS = "<s>", "</s>"
NOW = datetime.datetime(2026, 11, 27, 9, 5, 3)
FORGED = "<|forged|>"
PLACE = {"city": {"type": "string", "description": 'Name of the "city" & land'}, "unit": {"enum": ["C", "F"]}}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "description": f"The {name}", "parameters": {
        "type": "object", "properties": properties, "required": [next(iter(properties))]}}}
    for name, properties in (("weather", PLACE), ("sum", {"a": {"type": "integer"}, "b": {"type": "number"}}))
]
SYSTEM: dict[str, Any] = {"role": "system", "content": f"Be brief. {FORGED}"}
ASK: dict[str, Any] = {"role": "user", "content": f"  Hello {FORGED} 'you' & \"me\" {{x}}\nÜber 🙂 ok \n"}
ANSWER: dict[str, Any] = {"role": "assistant", "content": "Hi!\n\n1 < 2"}
MORE: dict[str, Any] = {"role": "user", "content": "And then?"}
THOUGHT: dict[str, Any] = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nParis."}
CALLS: list[dict[str, Any]] = [
    {"id": f"abcdef12{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
    for i, (name, arguments) in enumerate((("weather", '{"city": "Köln"}'), ("sum", '{"a": 1, "b": 2.5}')))
]
CALL: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": CALLS[:1]}
BOTH: dict[str, Any] = {**CALL, "tool_calls": CALLS}
RESULTS: list[dict[str, Any]] = [{"role": "tool", "tool_call_id": CALLS[i]["id"], "content": text}
           for i, text in enumerate(('{"temp": 21, "sky": "clear"}', "3.5"))]

#: (messages, with tools, with the beginning of the answer, thinking)
TALKS: list[tuple[list[dict[str, Any]], bool, bool, bool | None]] = [
    *((talk, False, True, None) for talk in ([ASK], [SYSTEM, ASK], [ASK, ANSWER, MORE], [SYSTEM, ASK, ANSWER, MORE],
      [SYSTEM, ASK, ANSWER, MORE, ANSWER, ASK, ANSWER, MORE], [ASK, THOUGHT, MORE],
      [ASK, CALL, RESULTS[0], ANSWER, MORE])),
    *((talk, False, False, None) for talk in ([SYSTEM, ASK, ANSWER], [SYSTEM, ASK, THOUGHT, MORE, THOUGHT])),
    *((talk, True, True, None) for talk in ([ASK], [SYSTEM, ASK], [SYSTEM, ASK, CALL, RESULTS[0]],
      [ASK, CALL, RESULTS[0], ANSWER, MORE], [ASK, BOTH, *RESULTS],
      [ASK, {**CALL, "content": "<think>\nhm\n</think>\n\n"}, RESULTS[0]])),
    *((talk, False, True, think) for talk in ([SYSTEM, ASK], [SYSTEM, ASK, THOUGHT, MORE]) for think in (True, False)),
]


def theirs(text: str, talk: list[dict[str, Any]], tools: bool, add: bool, think: bool | None) -> str | None:
    """What transformers writes; None if the template refuses."""
    from transformers.utils import chat_template_utils

    class Fixed(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime.datetime:  # type: ignore[override]
            return NOW

    chat_template_utils.datetime = Fixed
    told = copy.deepcopy(talk)
    for message in told:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        if message["role"] == "tool":
            message["name"] = next(c["function"]["name"] for c in CALLS if c["id"] == message["tool_call_id"])
    try:
        return chat_template_utils.render_jinja_template(
            [told], tools=TOOLS if tools else None, chat_template=text, add_generation_prompt=add, bos_token=BOS,
            eos_token=EOS, **({} if think is None else {"enable_thinking": think}))[0][0]
    except Exception:  # of any kind: the template is a program
        return None


def compared(text: str) -> Iterator[str]:
    """For each conversation how the two compare."""
    spec = TokenizerSpec(kind="bpe", tokens=[BOS, EOS], types=[3, 3], bos_id=0, eos_ids=(1,))
    model: Any = SimpleNamespace(tokenizer=spec, chat_template=text, templates={}, config=SimpleNamespace(arch=""))
    template = Template.for_model(model)
    for talk, tools, add, think in TALKS:
        if think is not None and not template.switches:
            continue
        asked = template if think is None else template.thinking(think)
        form = None
        if tools or CALL in talk:
            if not template.tools:
                yield "functions told in our own words"
                continue
            functions, marks = Functions.of(TOOLS if tools else None), SimpleNamespace(special={})
            form = (functions or Functions([], "none", False)).form(asked, marks)  # type: ignore[arg-type]
        try:
            parts = asked.render(form.messages(talk) if form else talk, add, form.definitions if form else None)
        except EdgeError:
            parts = None
        written, other = parts and "".join(part.text for part in parts), theirs(text, talk, tools, add, think)
        if parts and any(FORGED in part.text for part in parts if part.special):
            yield "FORGED"
        elif written == other:
            yield "both refuse" if other is None else "equal"
        else:
            yield "DIFFERENT"


def main() -> None:
    """Compare all, and print the counts."""
    parser = argparse.ArgumentParser(description="Chat templates, rendered here and by transformers.")
    parser.add_argument("folder", type=Path)
    sandbox.now = lambda: NOW
    paths = sorted(parser.parse_args().folder.glob("*.jinja"))
    texts = {path.read_text(encoding="utf-8").strip(): path for path in paths}
    total: Counter[str] = Counter()
    for text, path in texts.items():
        found = Counter(compared(text))
        if found["DIFFERENT"] or found["FORGED"]:
            print(path.name, dict(found))
        total += found
    print(f"{len(texts)} templates, {sum(total.values())} conversations: {dict(total)}")
    sys.exit(bool(total["DIFFERENT"] or total["FORGED"] or not total["equal"]))


main()
