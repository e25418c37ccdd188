"""Drafting (--draft): how many tokens may be evaluated before they are chosen, see pyx/tokens/draft.pyx."""

from __future__ import annotations

from typing import Any, NamedTuple

from edge.errors import UsageError

#: most tokens drafted at a time
MOST = 7


class Drafting(NamedTuple):
    """``most``: tokens drafted at a time, 0 for none.  ``always``: draft wherever there is a match, not only where it
    is faster.
    """

    most: int = 0
    always: bool = False

    @classmethod
    def parse(cls, value: str | int) -> Drafting:
        """``"auto"``, ``"off"`` or a number of tokens.  Raises UsageError."""
        text = str(value)
        if text == "auto":
            return cls(MOST)
        if text == "off":
            return OFF
        if isinstance(value, bool) or not text.isdecimal() or not text.isascii() or not int(text) <= MOST:
            hint = f"it must be auto, off or a whole number up to {MOST}"
            raise UsageError(f"is {value!r}", argument="draft", hint=hint)
        return cls(int(text), int(text) > 0)

    def new(self) -> Any:
        """The drafts of one session; None if drafting is off."""
        from pyx.tokens.draft import Draft

        return Draft(self.most, self.always) if self.most else None


OFF = Drafting()
