"""Mutated files of every format against their readers: an answer, or an EdgeError of one line.

Mutation number n is the same bytes on every machine.  After a crash or a hang, build/fuzz-files has its number.
"""

from __future__ import annotations

import copy
import json
import math
import random
import re
import shutil
import struct
import tempfile
import time
import zlib
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]

import edge  # noqa: E402
from edge.cache.policy import VERSION, read_budget  # noqa: E402
from edge.errors import EdgeError  # noqa: E402
from edge.formats import open_checkpoint, safetensors  # noqa: E402
from edge.prompt.template import Template  # noqa: E402
from edge.prompt.tokenizer import Tokenizer  # noqa: E402
from edge.prompt.tokenizer.byte_level import PATTERNS  # noqa: E402
from edge.sampling import Sampling  # noqa: E402
from edge.tools.convert import convert  # noqa: E402
from tests.vectors.stored import VECTORS, oracle  # noqa: E402

#: what readers treat in a special way: limits of their integers, NaN, infinity
WORDS = [b"\0" * 8, b"\xff" * 8, b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\0\0\xc0\x7f", b"\0\0\x80\x7f",
         b"\xff" * 7 + b"\x7f", b"\x01" + b"\0" * 7, b'"', b"{", b"[" * 64, b"\\u0000", b"1e999", b"-1",
         b"\xed\xa0\x80"]

#: a chat template of the kind that models have: loops, macros, tools, a refusal
CHAT = """{%- macro head(role) -%}<|{{ role | upper }}|>{%- endmacro -%}
{{- bos_token }}{%- set found = namespace(turns=0) -%}
{%- if tools %}{{ head("tools") }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif -%}
{%- for message in messages -%}
{%- if message.role == "user" %}{% set found.turns = found.turns + 1 %}{% endif -%}
{%- if message.role not in ["system", "user", "assistant"] %}{{ raise_exception("unknown role") }}{% endif -%}
{%- if message.tool_calls %}{{ message.tool_calls[0].function.parameters | tojson }}{% endif -%}
{{ head(message["role"]) }}{{ message["content"].strip()[:200] ~ "\\n" * 2 }}
{%- endfor -%}
{%- if add_generation_prompt and found.turns > 0 %}{{ head("assistant") }}{% endif -%}{{- eos_token -}}"""
TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 caf\u00e9, 20  \u4e2d {}\n?"}]
#: values that do not belong where they are put, in JSON
STRANGERS: tuple[Any, ...] = (
    None, True, 0, -1, 1 << 31, 1 << 63, 10**400, 0.5, math.nan, math.inf, "", "\0", "\ud800", "x" * 5000, [], {}, [[]],
    [None], {"": {}}, "<|end_of_text|>")
TOOLS = [{"type": "function", "function": {"name": "price", "parameters": {"type": "object", "properties": {}}}}]


def mutate(rng: random.Random, data: bytes) -> bytes:
    """One to eight changes; most of them in the first 4 KiB, where headers are."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        if not changed:
            break
        near = min(len(changed), 4096) if rng.random() < 0.8 else len(changed)
        at = rng.randrange(near)
        kind = rng.randrange(7)
        if kind == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[at] = rng.randrange(256)
        elif kind == 2:
            word = rng.choice(WORDS)
            changed[at : at + len(word)] = word
        elif kind == 3:
            del changed[at : at + rng.choice((1, 4, 8, 64, 4096))]
        elif kind == 4:
            changed[at:at] = changed[at : at + rng.choice((1, 8, 64, 512))]
        elif kind == 5:
            del changed[at:]
        else:  # a part of the file in another place: doubled keys, tensors that overlap
            other, n = rng.randrange(len(changed)), rng.choice((8, 32, 128))
            changed[at : at + n] = changed[other : other + n]
    return bytes(changed)


def with_checksums(data: bytes) -> bytes:
    """A session file whose checksums are right, so that what follows them is tried."""
    if len(data) < 24:
        return data
    length = min(struct.unpack_from("<I", data, 12)[0], len(data) - 24)
    header, rest = data[20 : 20 + length], data[20 + length : -4]
    whole = data[:16] + struct.pack("<I", zlib.crc32(data[:16] + header)) + header + rest
    return whole + struct.pack("<I", zlib.crc32(whole))


def mutate_session(rng: random.Random, data: bytes) -> bytes:
    """Mostly with checksums that are right."""
    changed = mutate(rng, data)
    return with_checksums(changed) if rng.random() < 0.9 else changed


def mutate_json(rng: random.Random, data: bytes) -> bytes:
    """In half of the files the JSON stays valid, and one to four of its values change."""
    if rng.random() < 0.5:
        return mutate(rng, data)
    whole = json.loads(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = whole
        while place:
            key: Any = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
            value = place[key]
            if isinstance(value, (dict, list)) and value and rng.random() < 0.9:
                place = value
                continue
            kind = rng.randrange(4)
            if kind == 0:
                del place[key]
            elif kind == 1 and isinstance(value, str):
                place[key] = mutate(rng, value.encode("utf-8", "replace")).decode("utf-8", "replace")
            elif kind == 2:
                place[key] = copy.deepcopy(rng.choice(list(whole.values())))
            else:
                place[key] = copy.deepcopy(rng.choice(STRANGERS))
            break
    return json.dumps(whole).encode()


def mutate_in_place(rng: random.Random, data: bytes) -> bytes:
    """In half of the files every length stays right: only bytes change."""
    if rng.random() < 0.5:
        return mutate(rng, data)
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 4))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def mutate_words(rng: random.Random, data: bytes) -> bytes:
    """In half of the files it stays text: words and signs change places, or are there twice or not at all."""
    if rng.random() < 0.5:
        return mutate(rng, data)
    words = re.findall(r"\w+|\s+|[{}][{%}-]*|-?[%}]}|.", data.decode())
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, other = rng.randrange(len(words)), rng.choice(words)
        words[at : at + rng.randrange(3)] = [other] * rng.randrange(3)
    return "".join(words).encode()


class Format(NamedTuple):
    """A kind of file."""

    data: bytes  # good ones
    path: Path  # where they are read
    read: Callable[[], object]
    mutate: Callable[[random.Random, bytes], bytes] = mutate


def checkpoint(path: Path) -> None:
    """All that can be read of a model: tensors, vocabulary, template; then the model itself where it is legal."""
    found = open_checkpoint(str(path))
    for tensor in found.tensors.values():
        len(bytes(tensor.data[:64]))
    with edge.load(str(path), ctx=32, threads=1) as engine:
        list(engine.session().complete(array("i", [1, 2, 3]), max_tokens=2))


def texts(folder: Path) -> None:
    """The text of a model in a Hugging Face directory: its tokenizer, and a conversation in its chat template."""
    found = open_checkpoint(str(folder))
    tokenizer = Tokenizer.of(found)
    for message in TALK:
        tokenizer.encode(message["content"])
    template = Template.for_model(found)
    for tools in (None, TOOLS) if template.tools else (None,):
        tokenizer.decode(template.encode(tokenizer, TALK, tools=tools))
    template.answer_lead()
    template.stop_ids(tokenizer)


def tokenizer_json() -> dict[str, Any]:
    """A byte-level vocabulary of 512 tokens as the ``tokenizers`` library writes it."""
    known = json.loads((VECTORS / "tokenizer" / "bpe512.json").read_text())
    vocabulary, bos = known["tokens"], known["bos_id"]
    begin = vocabulary[bos]
    split = {"type": "Split", "pattern": {"Regex": PATTERNS[known["pre"]]}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": text, "special": True} for i, text in enumerate(vocabulary[:3])],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, {"type": "ByteLevel", "use_regex": False}]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": begin, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {begin: {"id": begin, "ids": [bos], "tokens": [begin]}}},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "byte_fallback": False, "ignore_merges": True, "merges": known["merges"],
                  "vocab": {text: i for i, text in enumerate(vocabulary)}},
    }


def text_formats(folder: Path, weights: Path) -> dict[str, Format]:
    """The formats of the files next to the weights of a Hugging Face directory, each in a directory of its own."""
    settings = {
        "add_bos_token": True, "bos_token": {"content": "<|begin_of_text|>"}, "eos_token": "<|end_of_text|>",
        "added_tokens_decoder": {"2": {"content": "<|end_of_text|>", "special": True}},
        "chat_template": [{"name": "tool_use", "template": CHAT}, {"name": "default", "template": CHAT}],
    }
    byte_level = json.dumps(tokenizer_json()).encode()
    pieces = (VECTORS / "tokenizer" / "spm512.model").read_bytes()
    described = json.dumps(settings).encode()

    def next_to(kind: str, change: Any, name: str, data: bytes, **others: bytes) -> dict[str, Format]:
        model = folder / kind
        shutil.copytree(weights, model)
        for other, content in others.items():
            (model / other.replace("__", ".")).write_bytes(content)
        return {kind: Format(data, model / name, lambda: texts(model), change)}

    return {
        **next_to("tokenizer", mutate_json, "tokenizer.json", byte_level, tokenizer_config__json=described),
        **next_to("pieces", mutate_in_place, "tokenizer.model", pieces, chat_template__jinja=CHAT.encode()),
        **next_to("settings", mutate_json, "tokenizer_config.json", described, tokenizer__json=byte_level),
        **next_to("template", mutate_words, "chat_template.jinja", CHAT.encode(), tokenizer__model=pieces),
    }


def formats(folder: Path) -> dict[str, Format]:
    """Every format by its name in docs/architecture.md; ``folder`` is an empty one for the files."""
    from benchmarks import make_model

    make_model.make(folder / "gguf", "tiny")
    make_model.make(folder / "groups", "tiny-qwen3", "PQ2_0", "PQ2_0")
    convert(folder / "groups", folder / "panels")
    make_model.make(folder / "planes", "tiny-planes", "TP32_R64", "Q8_0", planes=3)
    make_model.make(folder / "experts", "tiny-qwen3moe", "PQ2_0", "Q8_0")
    make_model.make(folder / "hybrid", "tiny-bonsai2", "PQ2_0", "PQ2_0")
    good = oracle() / "relu2_gqa_tied" / "packed_auto_f32"
    model = folder / "hf"
    shutil.copytree(good, model)
    engine, hybrid = (edge.load(folder / name, ctx=128, threads=1) for name in ("gguf", "hybrid"))
    config = engine.config
    keep = [[40] * config.n_kv_head] * config.n_layer
    facts = {"version": VERSION, "n_layer": config.n_layer, "n_kv_head": config.n_kv_head, "keep": keep, "sinks": 4}

    def model_file(name: str) -> Format:
        tried = folder / f"{name}.gguf"
        return Format((folder / name).read_bytes(), tried, lambda: checkpoint(tried))

    def session_file(name: str, by: edge.Engine) -> Format:
        good, tried = folder / name, folder / f"{name}.bes"
        session = by.session()
        list(session.complete(array("i", range(1, 70)), max_tokens=4, sampling=Sampling(temperature=0.0)))
        session.save(good)
        return Format(good.read_bytes(), tried, lambda: by.load_session(tried), mutate_session)

    return {
        **{name: model_file(name) for name in ("gguf", "panels", "planes", "experts", "hybrid")},
        "session": session_file("session", engine),
        "states": session_file("states", hybrid),
        "safetensors": Format((good / "model.safetensors").read_bytes(), folder / "m.safetensors",
                              lambda: safetensors.read(str(folder / "m.safetensors"))),
        "directory": Format((good / "config.json").read_bytes(), model / "config.json",
                            lambda: open_checkpoint(str(model)), mutate_json),
        "budget": Format(json.dumps(facts).encode(), folder / "b.json",
                         lambda: read_budget(str(folder / "b.json"), config), mutate_json),
        **text_formats(folder, good),
    }


def campaign(
    seconds: float, seed: int, only: int | None = None, most: int = 1 << 40
) -> tuple[Counter[str], list[str]]:
    """(counts, what was wrong)."""
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    record = ROOT / "build" / "fuzz-files"
    record.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        known = formats(Path(name))
        for good in known.values():  # what is mutated must be good
            good.path.write_bytes(good.data)
            good.read()
        names = sorted(known)
        until, first = time.monotonic() + seconds, seed * 1_000_000 if only is None else only
        for number in range(first, first + (most if only is None else 1)):
            if time.monotonic() > until and only is None:
                break
            kind = names[number % len(names)]
            tried = known[kind]
            record.write_text(str(number))
            tried.path.unlink(missing_ok=True)  # what is still mapped keeps its bytes
            tried.path.write_bytes(tried.mutate(random.Random(number), tried.data))
            try:
                tried.read()
                outcome = "accepted"
            except Exception as error:
                outcome = "refused"
                if not isinstance(error, EdgeError) or "\n" in str(error) or not str(error):
                    wrong.append(f"number {number} ({kind}): {type(error).__name__}: {error}")
            seen[f"{kind} {outcome}"] += 1
    return seen, wrong
