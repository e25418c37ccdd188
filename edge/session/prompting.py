"""PromptEncoder: the messages of a conversation -> the tokens of its prompt, within the context."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from edge.cache.state import common
from edge.errors import ContextFull
from edge.prompt.messages import has_calls

if TYPE_CHECKING:
    from edge.cache.plan import Plan
    from edge.constrain.functions import Form
    from edge.model.model import Model


#: what helps against a prompt that is too long for a context that does not slide
LARGER = "a larger ctx helps"
TOO_LONG = 'a larger ctx or overflow="slide" helps'


@dataclass(frozen=True)
class PromptEncoder:
    """How the messages of one call become a prompt.

    ``form``: how functions are described to the model, None: there are none.  ``think``: the model was asked to
    think before it answers.
    """

    model: Model
    plan: Plan
    form: Form | None = None
    think: bool | None = None

    def encode(self, messages: Sequence[dict[str, Any]]) -> array[int]:
        """The tokens of the prompt for messages."""
        form, messages = self.form, list(messages)
        if form is None and has_calls(messages):
            from edge.constrain.functions import Functions

            form = Functions([], "none", False).form(self.model.template, self.model.tokenizer)
        if form is None:
            return self.model.encode(messages, None, self.think)
        return self.model.encode(form.messages(messages), form.definitions, self.think)

    def fitted(self, messages: Sequence[dict[str, Any]]) -> array[int]:
        """The prompt for messages, without the oldest turns if all are too long for a context that slides."""
        ids = self.encode(messages)
        recent = list(messages) if len(ids) <= self.plan.n_ctx * 7 // 8 else self.recent(messages)
        return ids if len(recent) == len(messages) else self.encode(recent)

    def recent(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages that are read if all are too long for a context that slides: the system prompt, and not the
        oldest turns.

        The turns are counted one after the other: when only an eighth of the context is left for the answer, the oldest
        turns are left out until at most half of it is used.  So this depends on the messages alone, and stays the same
        for most next turns: their prompts begin as this one, which is not read again.
        """
        n_ctx, encode, first = self.plan.n_ctx, self.model.tokenizer.encode, int(messages[0]["role"] == "system")
        if self.plan.overflow == "stop":
            return list(messages)
        empty = [{"role": role, "content": ""} for role in ("user", "assistant", "user")]
        around = len(self.encode(empty[:1]))
        each = (len(self.encode(empty)) - around) // 2  # tokens that the template writes around a message
        used, begin, turns, sizes = around - each, first, deque[int](), []
        for i, message in enumerate(messages):
            sizes.append(len(encode(message_text(message))) + each)
            used += sizes[-1]
            if message["role"] == "user" and i > begin:
                turns.append(i)
            if used > n_ctx * 7 // 8:
                while turns and used > n_ctx // 2:
                    used -= sum(sizes[begin : turns[0]])
                    begin = turns.popleft()
        return [*messages[:first], *messages[begin:]]

    def beginning(
        self, messages: Sequence[dict[str, Any]], text: str = "", gap: str = "", whole: bool = True
    ) -> array[int]:
        """The known tokens of a prompt for ``messages`` and a question that begins with ``text``: those that the
        prompts for two such questions have in common.  ``gap``: the blank, if any, before the next word.  ``whole``
        False: of the prompt without the oldest turns, if it is too long.
        """
        encode = self.encode if whole else self.fitted
        a, b = (encode([*messages, {"role": "user", "content": text + gap + end}]) for end in ("a", "1"))
        return a[: common(a, b)]

    def fitting(
        self, messages: Sequence[dict[str, Any]], system: Sequence[dict[str, Any]]
    ) -> tuple[list[dict[str, Any]], int]:
        """(messages as they will be read, characters left out of them); see :meth:`shortened`.

        ``system``: the system message of the conversation, or nothing.  Calls too long to be read whole are read as
        text.
        """
        n_ctx, found, left_out = self.plan.n_ctx, list(messages), 0
        around = [*system, {"role": "user", "content": ""}]

        @cache
        def n_around() -> int:
            return len(self.encode(around))

        for i, message in enumerate(messages):
            text = message_text(message)
            if message["role"] == "system" or self.plan.overflow == "stop" or n_bytes(text) <= n_ctx // 2:
                continue
            # Calls are counted as the template writes them: their JSON may be written in another way than it was given.
            calls = message.get("tool_calls")
            if calls and n_bytes(text) <= 64 * n_ctx and len(self.encode([*around, message])) <= n_ctx:
                continue
            short, n = self.shortened(text, n_around())
            left_out += n
            if short != text:
                found[i] = {"role": message["role"], "content": short}
        return found, left_out

    def shortened(self, text: str, around: int) -> tuple[str, int]:
        """(the text, or only its beginning and its end if it alone is longer than a context that slides; characters
        left out).

        ``around``: tokens of the prompt besides the text.  A quarter of the context is left for the answer.
        """
        n_ctx, tokenizer = self.plan.n_ctx, self.model.tokenizer
        if self.plan.overflow == "stop":
            return text, 0
        most = 16 * n_ctx  # characters: what lies between them is not even encoded
        cut = len(text) > 2 * most
        begin, end = (tokenizer.encode(text[:most]), tokenizer.encode(text[-most:])) if cut else ([], [])
        ids = begin + end if cut else tokenizer.encode(text)
        if not cut and len(ids) <= n_ctx - around:
            return text, 0
        room = max(n_ctx * 3 // 4 - around, n_ctx // 4)
        first, last = tokenizer.decode(ids[: room // 8]).rstrip(), tokenizer.decode(ids[room // 8 - room :], False)
        last = last.lstrip("\ufffd").lstrip()
        return f"{first} … {last}", len(text) - len(first) - len(last)

    def end_of(self, text: str) -> str:
        """The part of an endless answer that the conversation keeps: its end, as much as a quarter of the context."""
        most, tokenizer = self.plan.n_ctx // 4, self.model.tokenizer
        return "… " + tokenizer.decode(tokenizer.encode(text[-16 * most :])[-most:]).lstrip()


def refuse_long(
    model: Model, plan: Plan, messages: Sequence[Mapping[str, Any]], form: Form | None = None, whole: bool = False
) -> None:
    """Raise ContextFull for messages that no answer can follow, before anything is read.

    That is a system prompt longer than the context, alone or with the functions of ``form``: a context that slides
    would not even hold its beginning.  And, if the context does not slide or the ``whole`` counts, messages that are
    together far longer than it, of which not all are encoded: tokens take many times the memory of their letters.
    """
    n_ctx, far, help = plan.n_ctx, 64 * plan.n_ctx, "a shorter one or a larger ctx helps"
    texts = [message_text(each) for each in messages]
    for message, text in zip(messages, texts, strict=True):
        if message["role"] == "system" and n_bytes(text) > n_ctx:
            _refuse_more(model, [text], n_ctx, "the system prompt", help)
    if form is not None and form.tools.tools and form.tools.choice != "none":
        what = "the system prompt with the functions"
        system = [each for each in messages[:1] if each["role"] == "system"]
        definitions = _json([tool.given for tool in form.tools.tools])
        first = texts[: len(system)] + [definitions]
        if sum(map(n_bytes, first)) > far:
            _refuse_more(model, first, n_ctx, what, help)
        elif sum(map(n_bytes, first)) > n_ctx:  # as the template writes them, which may be shorter
            prompt = form.messages([*system, {"role": "user", "content": ""}])
            if (n := len(model.encode(prompt, form.definitions))) > n_ctx:
                raise ContextFull(f"{what} has {n} tokens, the context {n_ctx}; {help}")
    if (whole or plan.overflow == "stop") and sum(map(n_bytes, texts)) > far:
        _refuse_more(model, texts, n_ctx, "the prompt", LARGER if whole else TOO_LONG)


def refuse_full(plan: Plan, ids: Sequence[int], whole: bool = False) -> None:
    """Raise ContextFull for a prompt longer than a context that does not slide, or where the ``whole`` counts."""
    if (whole or plan.overflow == "stop") and len(ids) > plan.n_ctx:
        helps = LARGER if whole else TOO_LONG
        raise ContextFull(f"the prompt has {len(ids)} tokens, the context {plan.n_ctx}; {helps}")


def message_text(message: Mapping[str, Any]) -> str:
    """All text of a message that a template may write: its content, and its calls, of which arguments may be JSON."""
    content, calls = message.get("content"), message.get("tool_calls")
    text = content if isinstance(content, str) else ""
    if not calls:
        return text
    parts: list[Any] = []
    for call in calls if isinstance(calls, (list, tuple)) else [calls]:
        function = call.get("function") if isinstance(call, Mapping) else call
        parts += [function.get("name"), function.get("arguments")] if isinstance(function, Mapping) else [function]
    written = (part if isinstance(part, str) else _json(part) for part in parts)
    return "\n".join([text, *written] if text else written)


def _json(value: Any) -> str:
    import json  # most answers do not need it

    return json.dumps(value, ensure_ascii=False, default=str)


def _refuse_more(model: Model, texts: Sequence[str], most: int, what: str, help: str) -> None:
    """Raise ContextFull if texts have more than ``most`` tokens.

    They are encoded in parts, up to where that is certain: a cut through a token may make two of it.
    """
    n = cuts = 0
    for i, text in enumerate(texts):
        for at in range(0, len(text), 8 * most):
            n += len(model.tokenizer.encode(text[at : at + 8 * most]))
            if n > most + cuts:
                more = "more than " if i + 1 < len(texts) or at + 8 * most < len(text) else ""
                raise ContextFull(f"{what} has {more}{n - cuts} tokens, the context {most}; {help}")
            cuts += 1


def n_bytes(text: str) -> int:
    """The length of a text in UTF-8; a token has at least one byte of it."""
    return len(text if text.isascii() else text.encode())
