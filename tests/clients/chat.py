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

    def hands(self) -> list[str]:
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
