"""The page as people use it: by the names of what they see, not by how it is made."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import expect


class Chat:
    def __init__(self, page: Any, url: str, box: str = "Message") -> None:
        self.page = page
        self.box = page.get_by_role("textbox", name=box, exact=True)
        self.alert = page.get_by_role("alert")
        page.goto(url)
        self.begun()

    def begun(self) -> None:
        """The page's script has come."""
        expect(self.page.get_by_role("main")).to_have_text(re.compile(r"\S"))

    def reload(self) -> None:
        self.page.reload()
        self.begun()

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name, exact=True)

    @property
    def questions(self) -> Any:
        return self.page.get_by_role("article").filter(has_text=re.compile(r"^\s*You:"))

    @property
    def answers(self) -> Any:
        return self.page.get_by_role("article").filter(has_text=re.compile(r"^\s*Answer:"))

    @property
    def answer(self) -> Any:
        return self.answers.last

    def ask(self, text: str) -> None:
        """Type and send."""
        self.box.fill(text)
        if self.page.evaluate("matchMedia('(pointer: coarse)').matches"):
            self.switch("Send")
        else:
            self.box.press("Enter")

    def switch(self, name: str) -> None:
        """Press Send or Stop, which stand at one place: the second press of a double click does nothing."""
        self.page.wait_for_timeout(500)
        self.button(name).click()

    def say(self, text: str) -> Any:
        """Type, send, and wait for the whole answer."""
        before = self.answers.count()
        self.ask(text)
        expect(self.answers).to_have_count(before + 1)
        self.ended()
        return self.answer

    def ended(self) -> None:
        expect(self.button("Send")).to_be_visible()

    def press(self, name: str) -> None:
        """A button of the last answer; what it begins ends."""
        self.answer.get_by_role("button", name=name, exact=True).click()
        self.ended()

    def actions(self) -> list[str]:
        """The buttons of the last answer, without those of its code."""
        return [each.inner_text() for each in self.answer.get_by_role("button").all()
                if each.get_attribute("aria-label") != "Copy code"]

    def says(self, words: str) -> None:
        """The page says this about the last answer, in words for those who have no command line."""
        expect(self.answer).to_contain_text(words)
        assert "--" not in self.answer.inner_text()

    # ---- the page of a person at home ----

    @property
    def list(self) -> Any:
        """The conversations, unfolded."""
        unfold = self.button("Conversations")
        if unfold.get_attribute("aria-expanded") == "false":
            unfold.click()
        return self.page.get_by_role("navigation", name="Conversations")

    def settings(self, **values: str) -> None:
        self.button("Settings").click()
        dialog = self.page.get_by_role("dialog", name="Settings")
        for name, value in values.items():
            dialog.get_by_label(name.replace("_", " ")).fill(value)
        dialog.get_by_role("button", name="Done").click()
        expect(dialog).to_be_hidden()


class Visit(Chat):
    """The page of a kiosk."""

    def __init__(self, page: Any, url: str, box: str = "Your question") -> None:
        super().__init__(page, url, box)
        self.dialog = page.get_by_role("dialog")
        self.over = page.get_by_role("banner").get_by_role("button")
        expect(page.get_by_text(re.compile(r"\(demo\)"))).to_be_visible()

    def ask(self, text: str) -> None:
        self.box.fill(text)
        self.box.press("Enter")

    def passes(self, seconds: float) -> None:
        """Time does, and the page has looked at its clock."""
        self.page.clock.fast_forward(round(seconds * 1000))
        self.page.wait_for_timeout(1200)

    def gone(self, *words: str) -> None:
        """The conversation is, and nothing in it or its browser has these words."""
        expect(self.page.get_by_role("article")).to_have_count(0, timeout=15_000)
        expect(self.dialog).to_be_hidden()
        for keys in ((), ("Control+z",) * 3, ("Control+Shift+Z", "Control+y")):
            for each in keys:
                self.box.press(each)
            expect(self.box).to_have_value("")
        found = self.page.evaluate("""async () => JSON.stringify([document.documentElement.outerHTML, location.href,
            history.state, document.cookie, { ...localStorage }, { ...sessionStorage }, await indexedDB.databases(),
            await caches.keys()])""")
        assert [each for each in words if each in found] == []
