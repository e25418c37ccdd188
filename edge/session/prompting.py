"""PromptEncoder: the messages of a conversation -> the tokens of its prompt, within the context."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge.cache.state import common
from edge.errors import ContextFull
from edge.prompt.interrupt import check_interrupted
from edge.prompt.messages import has_calls

if TYPE_CHECKING:
    from edge.cache.plan import Plan
    from edge.constrain.functions import Form
    from edge.model.model import Model



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
        """The prompt for messages, without the oldest turns if all are too long for a context that slides.  Raises
        ContextFull.
        """
        plan, slides = self.plan, self.plan.overflow != "stop"
        refuse_long(self.model, plan, messages, self.form)
        far = slides and _is_far(plan, map(message_text, messages))
        ids = array("i") if far else self.encode(messages)
        if far or slides and len(ids) > plan.n_ctx * 7 // 8:
            recent = self.recent(messages)
            refuse_long(self.model, plan, recent, None, True)
            if far or len(recent) < len(messages):
                ids = self.encode(recent)
        refuse_full(plan, ids)
        return ids

    def recent(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages that are read if all are too long for a context that slides: the system prompt, and not the
        oldest turns.

        The turns are counted one after the other: when only an eighth of the context is left for the answer, the oldest
        turns are left out until at most half of it is used.  So this depends on the messages alone, and stays the same
        for most next turns: their prompts begin as this one, which is not read again.
        """
        n_ctx, first = self.plan.n_ctx, int(messages[0]["role"] == "system")
        empty = [{"role": role, "content": ""} for role in ("user", "assistant", "user")]
        around = len(self.encode(empty[:1]))
        each = (len(self.encode(empty)) - around) // 2  # tokens that the template writes around a message
        used, begin, turns, sizes = around - each, first, deque[int](), []
        for i, message in enumerate(messages):
            sizes.append(_n_tokens(self.model, [message_text(message)], n_ctx) + each)
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


def refuse_long(
    model: Model, plan: Plan, messages: Sequence[Mapping[str, Any]], form: Form | None = None, whole: bool = False
) -> None:
    """Raise ContextFull for messages that no answer can follow, before anything is read.

    That is a system prompt longer than the context: one that slides would not even hold its beginning.  And what is,
    with the functions of ``form``, far longer than it: all messages if none can be left out (``whole``, or the context
    does not slide), else the system prompt.  Not all of that is encoded: tokens take many times the memory of letters.
    """
    whole = whole or plan.overflow == "stop"
    texts = []
    for message in messages:
        text = message_text(message)
        if message["role"] == "system" and len(text) > plan.n_ctx:
            _refuse_more(model, plan, [text], "the system prompt", "a shorter one or a larger ctx")
        if whole or message["role"] == "system":
            texts.append(text)
    if form is not None and form.tools.tools and form.tools.choice != "none":
        texts.append(_json([tool.given for tool in form.tools.tools]))
    if _is_far(plan, texts):
        _refuse_more(model, plan, texts)


def refuse_full(plan: Plan, ids: Sequence[int], held: int = 0) -> None:
    """Raise ContextFull for a prompt longer than the context, besides the ``held`` tokens of it that a context which
    slides need not hold at the same time.
    """
    if (n := len(ids) - held) > plan.n_ctx:
        raise ContextFull(f"the prompt has {n} tokens, the context {plan.n_ctx}; a larger ctx helps")


def message_text(message: Mapping[str, Any]) -> str:
    """All text of a message that a template may write: its content, and its calls, as JSON."""
    content, calls = message.get("content"), message.get("tool_calls")
    text = content if isinstance(content, str) else ""
    return f"{text}\n{_json(calls)}" if calls else text


def _json(value: Any) -> str:
    import json  # most answers do not need it

    return json.dumps(value, ensure_ascii=False, default=str)


def _is_far(plan: Plan, texts: Iterable[str]) -> bool:
    """True if texts are so much longer than the context that not all of them should be encoded."""
    return sum(map(len, texts)) > 64 * plan.n_ctx


def _n_tokens(model: Model, texts: Iterable[str], most: int) -> int:
    """The number of tokens of texts.  They are encoded in parts, up to where it is certainly more than ``most``: a cut
    through a token may make two of it.
    """
    n = 0
    for text in texts:
        for at in range(0, len(text), 8 * most):
            check_interrupted()
            n += len(model.tokenizer.encode(text[at : at + 8 * most])) - (n > 0)
            if n > most:
                return n
    return n


def _refuse_more(
    model: Model, plan: Plan, texts: Iterable[str], what: str = "the prompt", help: str = "a larger ctx"
) -> None:
    """Raise ContextFull if texts are longer than the context."""
    if (n := _n_tokens(model, texts, plan.n_ctx)) > plan.n_ctx:
        raise ContextFull(f"{what} has {n} tokens or more, the context {plan.n_ctx}; {help} helps")
