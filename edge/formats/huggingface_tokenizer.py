"""Tokenizer files of a Hugging Face directory: tokenizer.json, tokenizer.model, their settings, the chat template."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Mapping
from typing import Any

from edge.formats import sentencepiece_model, text_steps
from edge.formats.checkpoint import MOST_TEMPLATES, TEMPLATE_NAME, Added, TokenizerSpec
from edge.formats.mapped import MAX_CONFIG, MAX_TOKENIZER, fail, located, read_json, read_small, shown

#: split patterns of well-known tokenizers -> the name GGUF has for them
_LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                   r"|\s*[\r\n]+|\s+(?!\S)|\s+")
_PATTERNS = {_LLAMA3_PATTERN: "llama-bpe", _LLAMA3_PATTERN.replace("{1,3}", ""): "qwen2"}

#: options of a BPE model that change ids, besides those that are read
_MODEL_OPTIONS = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
#: folder of the chat templates that are not the usual one
_MORE_TEMPLATES = "additional_chat_templates"


def chat_templates(folder: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """The chat templates by name; the usual one is "default".

    Those in files of their own take precedence over all of tokenizer_config.json, as in transformers.
    """
    found: dict[str, str] = {}
    usual, more = os.path.join(folder, "chat_template.jinja"), os.path.join(folder, _MORE_TEMPLATES)
    if os.path.isfile(usual):
        found["default"] = _read_template(usual)
    for file in sorted(os.listdir(more))[:MOST_TEMPLATES] if os.path.isdir(more) else ():
        stem, end = os.path.splitext(file)
        if end == ".jinja" and TEMPLATE_NAME.fullmatch(stem):
            found[stem] = _read_template(os.path.join(more, file))
    value = settings.get("chat_template")
    if found or value is None:
        return found
    where = os.path.join(folder, "tokenizer_config.json")
    if isinstance(value, str):
        return {"default": _clean(value, where)}
    for entry in value[:MOST_TEMPLATES] if isinstance(value, list) else ():
        name, text = (entry.get("name"), entry.get("template")) if isinstance(entry, dict) else (None, None)
        if isinstance(text, str) and isinstance(name, str) and TEMPLATE_NAME.fullmatch(name):
            found[name] = _clean(text, where)
    if found and "default" not in found:  # transformers then wants a name with every call
        found["default"] = next(iter(found.values()))
    return found


def _read_template(path: str) -> str:
    try:
        return read_small(path, MAX_CONFIG).decode("utf-8-sig")
    except UnicodeDecodeError:
        fail(path, "not UTF-8; get the file again")


def _clean(text: str, where: str) -> str:
    """Return ``text``.  Raises InvalidFile for half a surrogate pair (possible in JSON), which is not a character and
    cannot be encoded.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        fail(where, "holds text that is not Unicode; the file is damaged")
    return text


def read(folder: str, raw: Mapping[str, Any], generation: Mapping[str, Any], settings: Mapping[str, Any],
         template: str | None, n_vocab: int, notes: list[str]) -> TokenizerSpec:
    """TokenizerSpec from tokenizer.json (byte-level BPE) or tokenizer.model (SentencePiece).

    ``raw``, ``generation``, ``settings``: config.json, generation_config.json and tokenizer_config.json; ``template``:
    the chat template.  Remarks for the user are added to ``notes``.  Raises InvalidFile.
    """
    fast = read_json(folder, "tokenizer.json", MAX_TOKENIZER)
    model_path = os.path.join(folder, "tokenizer.model")
    model = fast.get("model") if fast else None
    byte_level = isinstance(model, dict) and model.get("type") == "BPE" and not model.get("byte_fallback")

    named_too = read_json(folder, "special_tokens_map.json", MAX_TOKENIZER)
    added = _added(fast, read_json(folder, "added_tokens.json", MAX_TOKENIZER), settings, named_too)

    def ids(role: str) -> list[int]:
        """The tokens of a role, each once: stated as numbers, then by a text of tokenizer_config.json."""
        value = settings.get(f"{role}_token")
        text = value.get("content") if isinstance(value, dict) else value
        found: list[Any] = [added[text].id] if isinstance(text, str) and text in added else []
        for stated in (raw.get(f"{role}_token_id"), generation.get(f"{role}_token_id")):
            found = (stated[:64] if isinstance(stated, list) else [stated]) + found
        return list(dict.fromkeys(i for i in found if type(i) is int and 0 <= i < n_vocab))

    common: dict[str, Any] = {f"{role}_id": next(iter(ids(role)), None) for role in ("bos", "pad", "unk")}
    common["eos_ids"] = tuple(ids("eos"))
    add_bos = settings.get("add_bos_token")
    if fast is not None and byte_level:
        if not isinstance(add_bos, bool):
            add_bos = _starts_with_bos(fast, common["bos_id"], template)
        spec = _byte_level(folder, fast, added, settings, n_vocab)
        return TokenizerSpec(kind="bpe", **spec, **common, added=added, add_space_prefix=False,
                             add_bos=add_bos and common["bos_id"] is not None)
    if os.path.isfile(model_path):
        data = read_small(model_path, MAX_TOKENIZER)
        parsed = sentencepiece_model.parse(data, model_path)
        n = len(parsed.pieces)
        if n > n_vocab:
            fail(model_path, f"{n} pieces for {n_vocab} embedding rows; it belongs to another model")
        for key in ("bos_id", "unk_id"):
            if common[key] is None:
                common[key] = getattr(parsed, key)
        if not common["eos_ids"] and parsed.eos_id is not None:
            common["eos_ids"] = (parsed.eos_id,)
        stated = {**raw, **settings}
        if fast is None and _is_llama(stated):  # these are added tokens to it
            added = {**{text: Added(i, False) for i, text in enumerate(parsed.pieces) if parsed.types[i] == 4}, **added}
        return TokenizerSpec(
            kind="sentencepiece",
            model=data,
            **_before_pieces(folder, fast, stated, parsed.add_dummy_prefix),
            added={text: each for text, each in added.items()
                   if (each.id < n_vocab if each.id >= n else parsed.pieces[each.id] == text)},
            **common,
            add_bos=(add_bos if isinstance(add_bos, bool) else True) and common["bos_id"] is not None,
        )
    if fast is not None:
        fail(os.path.join(folder, "tokenizer.json"), "not a byte-level BPE vocabulary; put the model's "
                                                      "tokenizer.model (SentencePiece) next to it")
    notes.append("the directory has no tokenizer (tokenizer.json or tokenizer.model): "
                 "it can be run on token ids only")
    return TokenizerSpec(kind="none", **common, add_bos=False)


def _added(fast: Mapping[str, Any] | None, extra: Mapping[str, Any] | None,
           settings: Mapping[str, Any], named: Mapping[str, Any] | None) -> dict[str, Added]:
    """Added tokens by their text, from the three places that may list them.  added_tokens.json has only ids: those are
    special that tokenizer_config.json or ``named``, special_tokens_map.json, give a role, or all if there are no roles.
    """
    texts = _texts_with_roles({**settings, **(named or {})}) if extra else set()
    decoder, listed = settings.get("added_tokens_decoder"), (fast or {}).get("added_tokens")
    entries: list[tuple[Any, Any, Mapping[str, Any]]] = [
        *((text, number, {"special": not texts or text in texts}) for text, number in (extra or {}).items()),
        *((entry.get("content"), int(number), entry)
          for number, entry in (decoder if isinstance(decoder, dict) else {}).items()
          if isinstance(entry, dict) and number.isascii() and number.isdigit() and len(number) < 10),
        *((entry.get("content"), entry.get("id"), entry)
          for entry in (listed if isinstance(listed, list) else ()) if isinstance(entry, dict)),
    ]
    return {_clean(text, "added tokens"): Added(number, *(entry.get(key) is True for key in Added._fields[1:]))
            for text, number, entry in entries
            if isinstance(text, str) and text and type(number) is int and number >= 0}


def _texts_with_roles(settings: Mapping[str, Any]) -> set[str]:
    """The texts of the tokens to which settings give a role, such as ``eos_token``."""
    roles: list[Any] = []
    for key, value in settings.items():
        if key.endswith(("_token", "special_tokens")) and not key.startswith("add_"):
            roles += value if isinstance(value, list) else [value]
    found = (each.get("content") if isinstance(each, dict) else each for each in roles)
    return {text for text in found if isinstance(text, str)}


def _byte_level(folder: str, fast: Mapping[str, Any], added: Mapping[str, Added], settings: Mapping[str, Any],
                n_vocab: int) -> dict[str, Any]:
    """The fields of a TokenizerSpec that a byte-level BPE tokenizer.json states.

    The token list is complete, as in GGUF: added tokens are at their ids (type 3 special, 4 otherwise).
    """
    where = os.path.join(folder, "tokenizer.json")
    vocab, merges = fast["model"].get("vocab"), fast["model"].get("merges")
    if not isinstance(vocab, dict) or not isinstance(merges, list):
        fail(where, "vocab or merges are missing; get the file again")
    tokens: list[str | None] = [None] * n_vocab
    types = array("i", [1]) * n_vocab
    top = 0
    for text, number, kind in [(text, number, 1) for text, number in vocab.items()] + [
        (text, each.id, 3 if each.special else 4) for text, each in added.items()
    ]:
        if type(number) is not int or not 0 <= number < n_vocab:
            fail(where, f"token {shown(text)} has id {shown(number)}, the embedding has {n_vocab} rows")
        if tokens[number] not in (None, text):
            fail(where, f"id {number} stands for both {shown(tokens[number])} and {shown(text)}")
        tokens[number] = text
        types[number] = kind
        top = max(top, number + 1)
    for number in range(top):
        if tokens[number] is None:
            tokens[number] = f"[PAD{number}]"
            types[number] = 5
    joined = []
    for pair in merges:  # "left right", or [left, right] in newer files
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair):
            pair = " ".join(pair)
        if not isinstance(pair, str):
            fail(where, f"merge {shown(pair)} is not a pair; get the file again")
        joined.append(pair)
    _clean("".join(text or "" for text in tokens), where)
    _clean("".join(joined), where)
    for key in _MODEL_OPTIONS:
        if fast["model"].get(key):
            fail(where, f"model.{key} is {shown(fast['model'][key])}, which is not supported")
    stated = fast.get("pre_tokenizer")
    if isinstance(stated, dict) and stated.get("type") == "ByteLevel" and "add_prefix_space" in settings:
        stated = {**stated, "add_prefix_space": settings["add_prefix_space"]}  # as in transformers
    with located(where):
        normalizer = text_steps.normalizer(fast.get("normalizer"))
        pre, pattern, steps = _pre_tokenizer(text_steps.pre_tokenizer(stated))
    return {
        "normalizer": normalizer,
        "pre_tokenizer": steps,
        "tokens": tokens[:top],
        "types": types[:top],
        "merges": joined,
        "pre": pre,
        "pattern": pattern,
        "ignore_merges": bool(fast["model"].get("ignore_merges", False)),
    }


def _pre_tokenizer(steps: tuple[text_steps.Step, ...]) -> tuple[str, str | None, tuple[text_steps.Step, ...]]:
    """(GGUF's name or "", split pattern or None, steps or ()) of a pre-tokenizer: steps, where it takes more than a
    name or a pattern that leaves nothing out.
    """
    kinds = [step["type"] for step in steps]
    last = {key: value for key, value in steps[-1].items() if key != "type"}
    if last == {"add_prefix_space": False, "use_regex": True}:
        if kinds == ["ByteLevel"]:
            return "gpt-2", None, ()
        if kinds == ["Digits", "ByteLevel"] and steps[0]["individual_digits"]:
            return "smollm", None, ()
    if last == {"add_prefix_space": False, "use_regex": False} and kinds == ["Split", "ByteLevel"]:
        regex = steps[0]["pattern"].get("Regex")
        if regex is not None and steps[0] == text_steps.split(regex):
            return _PATTERNS.get(regex, ""), regex, ()
    return "falcon" if kinds[:3] == ["Punctuation", "ByteLevel", "Digits"] else "", None, steps


def _is_llama(settings: Mapping[str, Any]) -> bool:
    return settings.get("tokenizer_class") in ("LlamaTokenizer", "LlamaTokenizerFast")


def _before_pieces(
    folder: str, fast: Mapping[str, Any] | None, settings: Mapping[str, Any], dummy: bool
) -> dict[str, Any]:
    """The fields of a TokenizerSpec for what happens to text before a tokenizer.model, as in transformers 5: its class
    for Llama writes blanks by two settings and reads no steps; others take those of tokenizer.json, or the model's own.

    ``dummy``: whether the model puts a blank in front of a text.  Its tables of characters (Precompiled) it has itself.
    """
    begins = settings.get("add_prefix_space")
    if _is_llama(settings):
        begins = begins is None or bool(begins)
        scheme = ("always" if settings.get("legacy") else "first") if begins else "never"
        return {"pre_tokenizer": (text_steps.metaspace(scheme),), "add_space_prefix": begins}
    if fast is None:
        first = dummy and not settings.get("legacy", True)
        return {"pre_tokenizer": (text_steps.metaspace("first"),) if first else (), "add_space_prefix": dummy}
    stated = fast.get("normalizer")
    steps = stated.get("normalizers") if isinstance(stated, dict) and stated.get("type") == "Sequence" else [stated]
    if isinstance(steps, list):
        stated = [step for step in steps if not (isinstance(step, dict) and step.get("type") == "Precompiled")]
    with located(os.path.join(folder, "tokenizer.json")):
        changes = text_steps.normalizer(stated)
        cuts = text_steps.pre_tokenizer(fast.get("pre_tokenizer"), pieces=True)
    if text_steps.writes_blanks(*changes, *cuts):
        dummy = any(step.get("prepend") or step.get("prepend_scheme", "never") != "never" for step in (*changes, *cuts))
    return {"normalizer": changes, "pre_tokenizer": cuts, "add_space_prefix": dummy}


def _starts_with_bos(fast: Mapping[str, Any], bos_id: int | None, template: str | None) -> bool:
    """True if texts begin with BOS, as the post-processor states, or else the chat template."""
    post = fast.get("post_processor")
    steps = post.get("processors") if isinstance(post, dict) and post.get("type") == "Sequence" else [post]
    for step in steps if isinstance(steps, list) else []:
        if not isinstance(step, dict) or step.get("type") != "TemplateProcessing":
            continue
        single, special = step.get("single"), step.get("special_tokens")
        if isinstance(single, list) and single and isinstance(single[0], dict) and isinstance(special, dict):
            token = single[0].get("SpecialToken")
            entry = special.get(str(token.get("id"))) if isinstance(token, dict) else None
            return isinstance(entry, dict) and entry.get("ids") == [bos_id]
        return False
    return template is not None and re.match(r"\s*\{\{-?\s*bos_token\b", template) is not None
