"""Vocabulary: a model's tokens for llguidance, built when the first answer needs them and counted in the memory
plan.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from edge.constrain.bounds import MOST_TEXT, limits
from edge.constrain.spec import Spec, why
from edge.errors import UsageError

if TYPE_CHECKING:
    from edge.prompt.tokenizer import Tokenizer

#: bytes of llguidance's trees and tables, by number of tokens; measured, see docs/constrain.md
BASE_BYTES, TOKEN_BYTES = 2 << 20, 480
FORM_BYTES = 24 << 20  # of the largest form that edge/constrain/bounds.py accepts, while an answer follows it
CODE_BYTES = 7 << 20  # of llguidance itself and what this folder imports, measured; then the program has them
KEPT, KEPT_TEXT = 24, MOST_TEXT  # grammars that are not compiled again: their number, their characters


def bytes_for(n_vocab: int, parallel: int = 1) -> int:
    """Bytes of the vocabulary of ``n_vocab`` tokens and of the grammars of ``parallel`` answers."""
    return BASE_BYTES + n_vocab * TOKEN_BYTES + parallel * FORM_BYTES


class Vocabulary:
    """The tokens of ``tokenizer``.  Rows of logits beyond the tokenizer's tokens, up to ``n_vocab``, are never allowed.

    ``stop_ids`` end an answer: they are allowed where the grammar is satisfied.  May be shared by threads.
    """

    def __init__(self, tokenizer: Tokenizer, n_vocab: int, stop_ids: Iterable[int]) -> None:
        from llguidance import LLTokenizer

        texts = [tokenizer.token_bytes(i) for i in range(n_vocab)]  # control tokens and unused rows have none
        for i in tokenizer.unused if len(tokenizer.unused) < tokenizer.n_vocab else ():
            texts[i] = b""
        for i in tokenizer.markers.values():  # a grammar asks for them by name, or not at all
            texts[i] = b""
        self.n_vocab = n_vocab
        self.token_bytes = tokenizer.token_bytes
        self.silent = frozenset(i for i, text in enumerate(texts) if not text)
        self.stop_ids = frozenset(stop_ids)
        self.stops, self._speaking = _bits(self.stop_ids), ~_bits(self.silent)  # sets of tokens, one bit each
        #: byte -> the token of it alone
        self.single = {text[0]: i for i, text in reversed(list(enumerate(texts))) if len(text) == 1}
        self.newline = self.single.get(10, -1)
        names = _Tokens(tokenizer, texts, self.single)
        self.encode = names.__call__  #: the tokens of a text in the middle of another
        self.tokens = LLTokenizer(names)  # type: ignore[arg-type]
        self.compiled: OrderedDict[str, Any] = OrderedDict()
        self._lock = Lock()

    def bytewise(self, text: bytes) -> list[int]:
        """A token for each byte; [] if there is none for one of them."""
        return [self.single[byte] for byte in text] if self.single.keys() >= set(text) else []

    def matcher(self, rules: str) -> Any:
        """A matcher at the beginning of a grammar, see :meth:`edge.constrain.spec.Spec.rules`.  Raises UsageError if
        the grammar is too large.
        """
        with self._lock:
            made = self.compiled.pop(rules, None)
            if made is None:
                from llguidance import LLMatcher

                made = LLMatcher(self.tokens, rules, log_level=0, limits=limits())
                if made.is_error():
                    raise UsageError(f"the form of the answer cannot be used: {why(made)}")
            self.compiled[rules] = made
            n_kept = len(self.compiled)
            while len(self.compiled) > KEPT or len(self.compiled) > 1 and self._text > KEPT_TEXT:
                self.compiled.popitem(last=False)
            if len(self.compiled) < n_kept:
                from pyx.machine import trim

                trim()
            return made.deep_copy()

    @property
    def _text(self) -> int:
        return sum(map(len, self.compiled))

    def forget(self, rules: str) -> None:
        """Compile a grammar again when it is needed next: a matcher of it has come to the limit."""
        with self._lock:
            self.compiled.pop(rules, None)

    def allowed(self, matcher: Any, spec: Spec) -> int:
        """The tokens that may come next, one bit each, without those that end the answer."""
        bits = int.from_bytes(matcher.compute_bitmask(), "little")
        return bits & self._speaking | sum(1 << i for i in spec.allowed if bits >> i & 1)


class _Tokens:
    """The interface of a tokenizer that llguidance needs.  Its end of text is an additional token after all others."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, texts: list[bytes], single: Mapping[int, int]) -> None:
        # Tokens without text get a name that no grammar can ask for.
        self.tokens = [text or b"[%d]" % i for i, text in enumerate(texts)] + [b"[end]"]
        self.special_token_ids = [*(i for i, text in enumerate(texts) if not text), len(texts)]
        self.eos_token_id = len(texts)
        self._tokenizer, self._single = tokenizer, single

    def __call__(self, text: str | bytes) -> list[int]:
        """The tokens of a text in the middle of another."""
        data = text.encode() if isinstance(text, str) else text
        encode = self._tokenizer.encode
        ids = encode(data.decode())
        if self._tokenizer.opens_with_blank:
            # A blank is put before a text: let a line end stand between, and take both off again.
            ids, spelled = encode("\n" + data.decode()), 0
            while ids and spelled < 2:
                spelled += len(self._tokenizer.token_bytes(ids.pop(0)))
        if b"".join(map(self._tokenizer.token_bytes, ids)) == data or not self._single.keys() >= set(data):
            return ids
        return [self._single[byte] for byte in data]  # the tokenizer changes text, and a form must have it as it is


def _bits(ids: Iterable[int]) -> int:
    bits = bytearray()
    for i in ids:
        bits.extend(bytes(max(0, i // 8 + 1 - len(bits))))
        bits[i // 8] |= 1 << i % 8
    return int.from_bytes(bits, "little")
