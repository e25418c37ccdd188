"""Chat templates: from messages to the parts of a prompt, and to token ids.

A prompt is a list of parts: text of the template, in which control tokens are recognised, and text of people or of the
model, in which they are not ("<|eot_id|>" typed by a user is encoded as its characters).  All text between two control
tokens is tokenised as one string, because a blank joins the word after it: "User: " + "Hello" is "User", ":", " Hello".

The families below are written in Python, so that the usual models start without Jinja.  ``templates/NAME.jinja`` has
the same for other programs, for ``convert``, and to recognise it in a file (tests compare the two).  Any other template
of a model file is rendered by :mod:`edge.prompt.sandbox`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from edge.errors import InvalidFile, UsageError
from edge.prompt.interrupt import check_interrupted

if TYPE_CHECKING:
    from edge.formats.checkpoint import Checkpoint, TokenizerSpec
    from edge.prompt.sandbox import Renderer
    from edge.prompt.tokenizer import Tokenizer

Messages = Sequence[Mapping[str, Any]]
Definitions = Sequence[Mapping[str, Any]] | None  # of tools, in OpenAI's form

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
MAX_FILE = 1 << 20
#: part of the template in the official 2B-4T files, which is not the one the model was trained with; fine-tuned models
#: have their own templates
OUTDATED = "BITNETAssistant"


#: name of the template for prompts with functions, in files with several
WITH_TOOLS = "tool_use"


class TextPart(NamedTuple):
    """A part of a prompt; control tokens are read only where ``special`` is true."""

    text: str
    special: bool


class ChatFormat(NamedTuple):
    """A known chat format: each message is header, content, footer; ``{role}`` and ``{Role}`` stand for its role."""

    header: str
    footer: str
    prompt: str  # begins the answer
    bos: bool | None = None  # begins with BOS: always, or None = as in the tokenizer
    strip: bool = True
    answer_footer: str | None = None  # footer of the assistant's messages, where it differs
    between: str = ""  # between two messages
    stops: tuple[str, ...] = ()  # control tokens that end an answer besides the tokenizer's own
    unthought: str = ""  # begins an answer that is to come without thoughts
    answerer: str = "assistant"  # what the role of the assistant is called
    system_end: str = ""  # ends a system message at the beginning, which then becomes the start of the next turn
    unasked: str = ""  # stands before a conversation that begins without a system message

    def parts(self, messages: Messages, add_generation_prompt: bool, tools: Definitions = None) -> Iterator[TextPart]:
        """The parts of the prompt, see :meth:`Template.render`; ``tools`` is not used."""
        before: list[str] = []  # words of the system that stand at the head of the next turn
        if self.unasked and messages and messages[0]["role"] != "system":
            yield TextPart(self.unasked, True)
        for i, message in enumerate(messages):
            role, content = message["role"], message["content"]
            if self.system_end and role == "system" and (not i or i + 1 < len(messages)):
                before.append(content)
                continue
            name = self.answerer if role == "assistant" else "user" if self.system_end and role == "system" else role
            yield TextPart((self.between if i else "") + self._named(self.header, name), True)
            for text in before:
                yield TextPart(text, False)
                yield TextPart(self.system_end, True)
            before.clear()
            yield TextPart(content.strip() if self.strip else content, False)
            answered = role == "assistant" and self.answer_footer is not None
            yield TextPart((self.answer_footer or "") if answered else self.footer, True)
        if add_generation_prompt:
            yield TextPart(self.prompt, True)

    @staticmethod
    def _named(text: str, role: str) -> str:
        return text.replace("{role}", role).replace("{Role}", role.capitalize())


_HEADER = "<|start_header_id|>{role}<|end_header_id|>\n\n"

FAMILIES: dict[str, ChatFormat] = {
    # microsoft/BitNet, gpu/tokenizer.py: every message, the system's too, ends in <|eot_id|>.
    "bitnet": ChatFormat("{Role}: ", "<|eot_id|>", "Assistant: ", bos=True, stops=("<|eot_id|>", "<|end_of_text|>")),
    # The same with the blank left to the answer: "Assistant:" + " Hello" is how training cut it.
    "bitnet-edge": ChatFormat("{Role}: ", "<|eot_id|>", "Assistant:", bos=True,
                              stops=("<|eot_id|>", "<|end_of_text|>")),
    "llama3": ChatFormat(_HEADER, "<|eot_id|>", _HEADER.replace("{role}", "assistant"), bos=True,
                     stops=("<|eot_id|>", "<|end_of_text|>")),
    "chatml": ChatFormat("<|im_start|>{role}\n", "<|im_end|>\n", "<|im_start|>assistant\n", strip=False,
                     stops=("<|im_end|>",)),
    # ChatML with a system message of its own.
    "smollm2": ChatFormat("<|im_start|>{role}\n", "<|im_end|>\n", "<|im_start|>assistant\n", strip=False,
                      stops=("<|im_end|>",), unasked="<|im_start|>system\nYou are a helpful AI assistant named SmolLM, "
                      "trained by Hugging Face<|im_end|>\n"),
    # ChatML whose answers may begin with thoughts; an empty pair of marks forbids them.
    "qwen3": ChatFormat("<|im_start|>{role}\n", "<|im_end|>\n", "<|im_start|>assistant\n", strip=False,
                    stops=("<|im_end|>",), unthought="<think>\n\n</think>\n\n"),
    "falcon3": ChatFormat("<|{role}|>\n", "\n", "<|assistant|>\n", strip=False, answer_footer="<|endoftext|>\n",
                      stops=("<|endoftext|>", "<|user|>", "<|system|>")),
    # Knows no system: its words stand at the head of the first turn.  The model's own template refuses a system that
    # speaks again; here its words stand at the head of the next turn.
    "gemma": ChatFormat("<start_of_turn>{role}\n", "<end_of_turn>\n", "<start_of_turn>model\n", bos=True,
                    stops=("<end_of_turn>",), answerer="model", system_end="\n\n"),
    # Base models know no turns: the texts as they are.
    "plain": ChatFormat("", "", "", strip=False, between="\n"),
}


def source(name: str) -> str:
    """A family as a Jinja template, for the metadata of a model file.  Raises UsageError for an unknown name."""
    if name not in FAMILIES:
        raise UsageError(f"chat template {name!r} is not known; use one of {', '.join(FAMILIES)}")
    with open(os.path.join(_FOLDER, f"{name}.jinja"), encoding="utf-8") as file:
        return file.read().rstrip("\n")


class Template:
    """The format of conversations for one model.  ``name``: a family, "model" (from the file), or a file's name."""

    def __init__(self, name: str, parts: Callable[[Messages, bool, Definitions], Iterator[TextPart]],
                 bos: bool | None = None, stops: Sequence[str] = (), tools: str = "", think: bool | None = None,
                 switched: Callable[[bool], Template] | None = None) -> None:
        self._parts_with_tools = parts
        self.name = name
        self.think = think  # whether the model is asked to think before it answers; None: as it does by itself
        self.tools = tools  # how it writes calls: "marked" (<tool_call>), "whole" (Llama 3), "": it does not know tools
        self._parts = parts
        self._bos = bos
        self._stops = tuple(stops)
        self._switched = switched
        self._variants: dict[bool, Template] = {}

    @property
    def switches(self) -> bool:
        """Whether it can ask a model to think before its answer, or not to."""
        return self._switched is not None

    def thinking(self, think: bool) -> Template:
        """This template, asking the model to think or not.  Raises UsageError if it cannot."""
        if think is self.think:
            return self
        if self._switched is None:
            raise UsageError("cannot be set: this model's chat template always does the same", argument="think")
        if think not in self._variants:
            self._variants[think] = self._switched(think)
        return self._variants[think]

    @classmethod
    def for_model(cls, checkpoint: Checkpoint, name: str | None = None, think: bool | None = None) -> Template:
        """The template for a model: ``name`` if given (a family, "model", or a file with a Jinja template).

        Otherwise the family that the model was trained with, if we know it better than the file does; then the file's
        own template; then none ("plain").  ``think``: whether models that can think before they answer do so; None: the
        model's default.  Raises UsageError for an unknown name.

        A model may have several templates.  ``name`` may be that of one of them; if it is not given, the one called
        "tool_use" writes the prompts with functions, as in transformers and llama.cpp.
        """
        spec = checkpoint.tokenizer
        if name is not None and name not in FAMILIES and name in checkpoint.templates:
            return cls._jinja(name, checkpoint.templates[name], f"the model's chat template {name}", spec, think)
        template = cls._usual(checkpoint, name, think)
        for_tools = checkpoint.templates.get(WITH_TOOLS, "")
        if name in (None, "model") and for_tools.strip():
            other = cls._jinja(WITH_TOOLS, for_tools, f"the model's chat template {WITH_TOOLS}", spec, think)
            return template._with(other)
        return template

    def _with(self, other: Template) -> Template:
        """This template, with another for the prompts with functions."""
        self._parts_with_tools, self.tools = other._parts, other.tools
        plain = self._switched
        if plain is not None:
            self._switched = lambda think: plain(think)._with(other.thinking(think) if other.switches else other)
        return self

    @classmethod
    def _usual(cls, checkpoint: Checkpoint, name: str | None, think: bool | None) -> Template:
        """The template for prompts without functions."""
        spec = checkpoint.tokenizer
        embedded = checkpoint.chat_template
        if name is not None and name != "model":
            return cls._by_name(name, spec, think)
        if name is None and checkpoint.config.arch in ("bitnet-b1.58", "bitnet-25") and _is_llama3(spec) and (
            not embedded or OUTDATED in embedded
        ):
            return cls._family("bitnet")
        if embedded is not None and embedded.strip():
            known = next((key for key in FAMILIES if embedded.strip() == source(key).strip()), None)
            if known:
                return cls._family(known, think)
            return cls._jinja("model", embedded, "the model's chat template", spec, think)
        if name == "model":
            raise UsageError("the model file has no chat template; choose another with --set template=NAME")
        return cls._family({"qwen3": "qwen3", "gemma3": "gemma"}.get(checkpoint.config.arch, "plain"), think)

    @classmethod
    def _by_name(cls, name: str, spec: TokenizerSpec, think: bool | None) -> Template:
        if name in FAMILIES:
            return cls._family(name, think)
        name = os.path.expanduser(name)
        try:
            if not os.path.isfile(name):
                raise UsageError(f"chat template {name!r} is neither a file nor one of {', '.join(FAMILIES)}, model")
            with open(name, encoding="utf-8-sig") as file:
                text = file.read(MAX_FILE)
        except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a name no file can have
            raise UsageError(f"chat template {name!r} cannot be read ({error})") from None
        return cls._jinja(os.path.basename(name), text.removesuffix("\n"), f"chat template {name}", spec, think)

    @classmethod
    def _family(cls, name: str, think: bool | None = None) -> Template:
        family = FAMILIES[name]
        if think is False:
            family = family._replace(prompt=family.prompt + family.unthought)
        switched = (lambda think: cls._family(name, think)) if family.unthought else None
        return cls(name, family.parts, family.bos, family.stops, think=think, switched=switched)

    @classmethod
    def _jinja(cls, name: str, text: str, where: str, spec: TokenizerSpec, think: bool | None = None) -> Template:
        knows = re.search(r"\btools\b", text) and re.search(r"\btool_calls\b", text)
        style = "marked" if "<tool_call>" in text else "whole" if re.search(r"\bparameters\b", text) else ""
        switched = (lambda think: cls._jinja(name, text, where, spec, think)) if "enable_thinking" in text else None
        return cls(name, _Jinja(text, where, spec, think).parts, tools=style if knows else "", think=think,
                   switched=switched)

    @cached_property
    def writes_system(self) -> bool:
        """Whether it writes system messages; some templates refuse them or leave them out."""
        said = "Be brief"
        try:
            parts = self.render([{"role": "system", "content": said}, {"role": "user", "content": "Hi"}])
        except (UsageError, InvalidFile):
            return False
        return any(said in part.text for part in parts)

    def render(
        self, messages: Messages, add_generation_prompt: bool = True, tools: Definitions = None
    ) -> list[TextPart]:
        """The parts of the prompt, without BOS unless the template writes it.

        ``messages``: mappings with ``role`` and ``content``.  ``tools``: functions in OpenAI's form, for a template
        that supports them (:attr:`tools`); messages may then have ``tool_calls``, see edge.constrain.functions.  Raises
        UsageError for other messages and for those that the template refuses, InvalidFile if a template from a file
        does not work.
        """
        for message in messages:
            _check(message)
        parts = self._parts if tools is None else self._parts_with_tools
        return [part for part in parts(messages, add_generation_prompt, tools) if part.text]

    def encode(
        self, tokenizer: Tokenizer, messages: Messages, add_generation_prompt: bool = True, tools: Definitions = None,
        begun: str = "",
    ) -> list[int]:
        """The token ids of the prompt, with exactly one BOS if the model has one.  ``begun``: the text with which the
        answer has begun already.
        """
        ids = tokenizer.encode_parts([*self.render(messages, add_generation_prompt, tools), TextPart(begun, False)])
        bos = tokenizer.bos_id
        if bos is None:
            return ids
        first = next((i for i, number in enumerate(ids) if number != bos), len(ids))
        wanted = first > 0 or self._bos or (self._bos is None and tokenizer.add_bos)
        if wanted:
            ids[:first] = [bos]
        return ids

    def stop_ids(self, tokenizer: Tokenizer) -> set[int]:
        """The token ids that end an answer."""
        named = (tokenizer.markers.get(text) for text in self._stops)
        return {*tokenizer.eos_ids, *(number for number in named if number is not None)}

    def beginning(self, tokenizer: Tokenizer, system: str) -> int:
        """The number of tokens with which every conversation with this system prompt begins.  Raises as
        :meth:`encode`.
        """
        first, second = (
            self.encode(tokenizer, [{"role": "system", "content": system}, {"role": "user", "content": question}])
            for question in ("a", "1")
        )
        return next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(first))

    def answer_lead(self) -> str:
        """What the model writes between the prompt and the answer itself: " " after "Assistant:", else "".

        It belongs to the format: callers that show the answer remove it once at the beginning.
        """
        asked = [{"role": "user", "content": "a"}]
        try:
            prompt = "".join(part.text for part in self.render(asked))
            turn = "".join(part.text for part in self.render([*asked, {"role": "assistant", "content": "b"}], False))
        except (UsageError, InvalidFile):
            return ""
        between = turn[len(prompt) :].partition("b")[0] if turn.startswith(prompt) else ""
        return between if between.isspace() else ""


def _check(message: Any) -> None:
    role, content = (message.get(key) for key in ("role", "content")) if isinstance(message, Mapping) else (None, None)
    if not isinstance(role, str) or not isinstance(content, str):
        raise UsageError("a message is a dictionary with role and content, both text")
    if not _ROLE.fullmatch(role):  # it becomes part of what the template writes
        raise UsageError(f"role {role[:40]!r} is not known; use system, user or assistant")


def _is_llama3(spec: TokenizerSpec) -> bool:
    """Whether the vocabulary is Llama 3's; decodes only two of its elements."""
    return (spec.kind == "bpe" and len(spec.tokens) >= 128256 and spec.tokens[128006] == "<|start_header_id|>"
            and spec.tokens[128009] == "<|eot_id|>")


# ---- Jinja -----------------------------------------------------------------------------------------------------------

#: (characters replaced by twins, whether the model's own thinking marks stay), tried in this order: all, all but
#: letters and digits, only those that frame control tokens
_OPAQUE: tuple[tuple[Callable[[str], bool], bool], ...] = (
    (lambda c: True, False),
    (lambda c: True, True),
    (lambda c: not c.isalnum(), False),
    (lambda c: c in "<>[]{}|", False),
    (lambda c: c in "<>[]{}|", True),
)
_LAST_RESORT = 2
_THINKING = re.compile("(</?think>)")


class _Jinja:
    """A Jinja template whose output is split into text of the template and text of the messages.

    Each character of the messages, except white space, is replaced by a twin in a private-use plane of Unicode, so that
    the template may still strip, split, join and measure them.  Twins in the output came from a message.  Rendering the
    original messages must give the same text.  If it does not (the template tests letters or changes them), fewer
    characters are replaced, and in the end the template gets the messages without punctuation: control tokens never
    come from messages.
    """

    def __init__(self, text: str, where: str, spec: TokenizerSpec, think: bool | None = None) -> None:
        self._more: dict[str, Any] = {} if think is None else {"enable_thinking": think}
        self._text = text
        self._where = where
        self._spec = spec
        self._renderer: Renderer | None = None

    def _compiled(self) -> Renderer:
        """The template, compiled on first use: a model with a broken template can still complete raw prompts."""
        if self._renderer is None:
            from edge.prompt.sandbox import Renderer

            self._renderer = Renderer(self._text, self._where)
            eos = self._spec.eos_ids[0] if self._spec.eos_ids else None
            self._more |= {"bos_token": _stored_text(self._spec, self._spec.bos_id),
                           "eos_token": _stored_text(self._spec, eos)}
        return self._renderer

    def parts(self, messages: Messages, add_generation_prompt: bool, tools: Definitions = None) -> Iterator[TextPart]:
        renderer = self._compiled()
        dated = renderer.dated()  # once: both texts that are compared below have the same date

        def render(messages: Messages, tools: Definitions) -> str:
            return renderer.render(messages=[{**message} for message in messages], tools=tools, documents=None,
                                   add_generation_prompt=add_generation_prompt, strftime_now=dated, **self._more)

        contents = "".join(message["content"] for message in messages)
        base = 0x100000 if any(0xF0000 <= ord(c) < 0x100000 for c in contents) else 0xF0000
        plain = render(messages, tools)
        definitions = _unframed(tools, base)
        found = {}
        for level, (opaque, thinking) in enumerate(_OPAQUE):
            twins = [{**_unframed({**message}, base), "content": _twins(message, base, opaque, thinking)}
                     for message in messages]
            try:
                found[level] = render(twins, definitions)
            except (InvalidFile, UsageError):
                continue
            if _untwin(found[level], base) == plain:
                break
        else:
            level = _LAST_RESORT if _LAST_RESORT in found else 0
            if level not in found:
                raise InvalidFile(f"{self._where} reads the text of messages, which would let them write "
                                  "control tokens; choose another with --set template=NAME")
        return _separated(found[level], base)


def _unframed(value: Any, base: int) -> Any:
    """Definitions of tools and calls, in which only the characters that frame control tokens are replaced by twins.

    Templates inspect these values and print them as JSON; neither changes such characters.
    """
    if isinstance(value, str):
        return "".join(chr(base + ord(c)) if c in "<>[]{}|" else c for c in value)
    if isinstance(value, Mapping):
        return {_unframed(key, base): _unframed(each, base) for key, each in value.items()}
    return [_unframed(each, base) for each in value] if isinstance(value, (list, tuple)) else value


def _twins(message: Mapping[str, str], base: int, opaque: Callable[[str], bool], thinking: bool) -> str:
    """The content of a message with its characters moved to the plane at ``base``; white space and characters beyond
    the BMP stay.

    ``thinking``: "<think>" and "</think>" in an answer stay, too, as templates remove them from older answers.
    """
    out = []
    visible = thinking and message["role"] == "assistant"
    for i, text in enumerate(_THINKING.split(message["content"]) if visible else [message["content"]]):
        if i % 2:
            out.append(text)
            continue
        for n, c in enumerate(text):
            if not n & 0xFFFF:
                check_interrupted()
            number = ord(c)
            if number >= base:
                out.append("\ufffd" if number < base + 0x10000 else c)  # a private character where our twins are
            elif number > 0xFFFF or 0xD800 <= number < 0xE000 or c.isspace() or not opaque(c):
                out.append(c)
            else:
                out.append(chr(base + number))
    return "".join(out)


def _untwin(text: str, base: int) -> str:
    return "".join(chr(ord(c) - base) if base <= ord(c) < base + 0x10000 else c for c in text)


def _separated(text: str, base: int) -> Iterator[TextPart]:
    """The output as parts.  White space and characters beyond the BMP next to twins belong to the message."""
    twin = f"[{chr(base)}-{chr(base + 0xFFFF)}]"
    other = 0xF0000 + 0x100000 - base
    wide = f"[\U00010000-\U000effff{chr(other)}-{chr(other + 0xFFFF)}]"
    start = 0
    for match in re.finditer(rf"{wide}*{twin}(?:(?:{twin}|{wide}|\s)*(?:{twin}|{wide}))?", text):
        yield TextPart(text[start : match.start()], True)
        yield TextPart(_untwin(match[0], base), False)
        start = match.end()
    yield TextPart(text[start:], True)


def _stored_text(spec: TokenizerSpec, number: int | None) -> str:
    """The text of a token as stored in the file, such as "<s>"; "" if there is none."""
    if number is None:
        return ""
    for text, added in spec.added.items():
        if added.id == number:
            return text
    tokens = spec.tokens
    if spec.model is not None:
        from edge.formats import sentencepiece_model

        tokens = sentencepiece_model.parse(spec.model, "tokenizer.model").pieces
    return tokens[number] if 0 <= number < len(tokens) else ""
