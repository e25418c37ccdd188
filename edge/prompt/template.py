"""Chat templates: from messages to the text of a prompt, and to token ids.

Control tokens are those that the template writes: "<|eot_id|>" typed by a user is encoded as its characters.  All text
between two control tokens is tokenised as one string, because a blank joins the word after it: "User: " + "Hello" is
"User", ":", " Hello".

The families below are written in Python, so that the usual models start without Jinja.  ``templates/NAME.jinja`` has
the same for other programs, for ``convert``, and to recognise it in a file (tests compare the two).  Any other template
of a model file is rendered by :mod:`edge.prompt.sandbox`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from edge.errors import InvalidFile, UsageError

if TYPE_CHECKING:
    from edge.formats.checkpoint import Checkpoint, TokenizerSpec
    from edge.prompt.sandbox import JinjaTemplate
    from edge.prompt.tokenizer import Tokenizer

Messages = Sequence[Mapping[str, Any]]
Definitions = Sequence[Mapping[str, Any]] | None  # of tools, in OpenAI's form

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")
_THOUGHT = re.compile("(</?think>)")
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


def thoughts_apart(answer: str) -> Iterator[TextPart]:
    """An earlier answer, in which the marks of thoughts are tokens, as the model wrote them."""
    for i, text in enumerate(_THOUGHT.split(answer)):
        yield TextPart(text, i % 2 == 1)


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
    answerer: str = "assistant"  # name of the role of the assistant
    system_end: str = ""  # ends a system message at the beginning, which then becomes the start of the next turn
    unasked: str = ""  # stands before a conversation that begins without a system message

    def text(self, *asked: Any) -> str:
        """The text of the prompt, see :meth:`Template.render`."""
        return "".join(part.text for part in self.parts(*asked))

    def encode(self, tokenizer: Tokenizer, begun: TextPart, *asked: Any) -> list[int]:
        """The token ids of the prompt and of the text after it, see :meth:`Template.encode`."""
        return tokenizer.encode_parts([*self.parts(*asked), begun])

    @property
    def switches(self) -> bool:
        """True if it can ask a model to think before its answer, or not to."""
        return bool(self.unthought)

    def parts(
        self, messages: Messages, add_generation_prompt: bool, tools: Definitions = None, think: bool | None = None
    ) -> Iterator[TextPart]:
        """The parts of the prompt; ``tools`` is not used."""
        before: list[str] = []  # words of the system that stand at the head of the next turn
        if self.unasked and messages and messages[0]["role"] != "system":
            yield TextPart(self.unasked, True)
        for i, message in enumerate(messages):
            role, content = message["role"], message["content"]
            if self.system_end and role == "system" and (not i or i + 1 < len(messages)):
                before.append(content)
                continue
            yield TextPart((self.between if i else "") + self._header_of(role), True)
            for text in before:
                yield TextPart(text, False)
                yield TextPart(self.system_end, True)
            before.clear()
            content = content.strip() if self.strip else content
            yield from thoughts_apart(content) if role == "assistant" else [TextPart(content, False)]
            answered = role == "assistant" and self.answer_footer is not None
            yield TextPart((self.answer_footer or "") if answered else self.footer, True)
        if add_generation_prompt:
            yield TextPart(self.prompt + (self.unthought if think is False else ""), True)

    def _header_of(self, role: str) -> str:
        name = self.answerer if role == "assistant" else "user" if self.system_end and role == "system" else role
        return self.header.replace("{role}", name).replace("{Role}", name.capitalize())


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

    def __init__(self, name: str, writer: ChatFormat | JinjaTemplate, tools: str = "", think: bool | None = None):
        self.writer = self.writer_with_tools = writer
        self.name = name
        self.think = think  # the model is asked to think before it answers, or not to; None: as it does by itself
        self.tools = tools  # how it writes calls: "marked" (<tool_call>), "whole" (Llama 3), "": it does not know tools

    @property
    def switches(self) -> bool:
        """True if it can ask a model to think before its answer, or not to."""
        return self.writer.switches

    def thinking(self, think: bool) -> Template:
        """This template, asking the model to think or not.  Raises UsageError if it cannot."""
        if think is not self.think and not self.switches:
            raise UsageError("cannot be set: this model's chat template always does the same", argument="think")
        other = copy(self)
        other.think = think
        return other

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
            template.writer_with_tools, template.tools = other.writer, other.tools
        return template

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
            return cls("bitnet", FAMILIES["bitnet"])
        if embedded is not None and embedded.strip():
            known = next((key for key in FAMILIES if embedded.strip() == source(key).strip()), None)
            if known:
                return cls(known, FAMILIES[known], think=think)
            return cls._jinja("model", embedded, "the model's chat template", spec, think)
        if name == "model":
            raise UsageError("the model file has no chat template; choose another with template=NAME")
        known = {"qwen3": "qwen3", "gemma3": "gemma"}.get(checkpoint.config.arch, "plain")
        return cls(known, FAMILIES[known], think=think)

    @classmethod
    def _by_name(cls, name: str, spec: TokenizerSpec, think: bool | None) -> Template:
        if name in FAMILIES:
            return cls(name, FAMILIES[name], think=think)
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
    def _jinja(cls, name: str, text: str, where: str, spec: TokenizerSpec, think: bool | None = None) -> Template:
        from edge.prompt.sandbox import JinjaTemplate  # imported by models that need it

        knows = re.search(r"\btools\b", text) and re.search(r"\btool_calls\b", text)
        style = "marked" if "<tool_call>" in text else "whole" if re.search(r"\bparameters\b", text) else ""
        return cls(name, JinjaTemplate(text, where, spec), tools=style if knows else "", think=think)

    @cached_property
    def writes_system(self) -> bool:
        """True if it writes system messages; some templates refuse them or leave them out."""
        said = "Be brief"
        try:
            return said in self.render([{"role": "system", "content": said}, {"role": "user", "content": "Hi"}])
        except (UsageError, InvalidFile):
            return False

    def render(self, messages: Messages, add_generation_prompt: bool = True, tools: Definitions = None) -> str:
        """The text of the prompt, without BOS unless the template writes it.

        ``messages``: checked (:func:`edge.prompt.messages.check_messages`).  ``tools``: functions in OpenAI's form, for
        a template that supports them (:attr:`tools`); messages may then have ``tool_calls``, see
        edge.constrain.functions.  Raises UsageError for messages that the template refuses, InvalidFile if a template
        from a file does not work.
        """
        return self._writer(tools).text(messages, add_generation_prompt, tools, self.think)

    def _writer(self, tools: Definitions) -> ChatFormat | JinjaTemplate:
        return self.writer if tools is None else self.writer_with_tools

    def encode(
        self, tokenizer: Tokenizer, messages: Messages, add_generation_prompt: bool = True, tools: Definitions = None,
        begun: str = "",
    ) -> list[int]:
        """The token ids of the prompt, with exactly one BOS if the model has one.  ``begun``: the text with which the
        answer has begun already.

        Raises as :meth:`render`, and UsageError if control tokens in texts cannot be told from those of the template.
        """
        asked = messages, add_generation_prompt, tools, self.think
        ids = self._writer(tools).encode(tokenizer, TextPart(begun, False), *asked)
        bos = tokenizer.bos_id
        if bos is None:
            return ids
        first = next((i for i, number in enumerate(ids) if number != bos), len(ids))
        if first > 0 or self.writer.bos or (self.writer.bos is None and tokenizer.add_bos):
            ids[:first] = [bos]
        return ids

    def stop_ids(self, tokenizer: Tokenizer) -> set[int]:
        """The token ids that end an answer."""
        named = (tokenizer.markers.get(text) for text in self.writer.stops)
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
        """The text that the model writes between the prompt and the answer itself: " " after "Assistant:", else "".

        It belongs to the format: callers that show the answer remove it once at the beginning.
        """
        asked = [{"role": "user", "content": "a"}]
        try:
            prompt = self.render(asked)
            turn = self.render([*asked, {"role": "assistant", "content": "b"}], False)
        except (UsageError, InvalidFile):
            return ""
        between = turn[len(prompt) :].partition("b")[0] if turn.startswith(prompt) else ""
        return between if between.isspace() else ""


def _is_llama3(spec: TokenizerSpec) -> bool:
    """Tell if the vocabulary is Llama 3's; decodes only two of its elements."""
    return (spec.kind == "bpe" and len(spec.tokens) >= 128256 and spec.tokens[128006] == "<|start_header_id|>"
            and spec.tokens[128009] == "<|eot_id|>")
