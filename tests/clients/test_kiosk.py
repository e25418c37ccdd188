"""The page in front of visitors (serve --kiosk), by the names of what is seen; pictures go to $SCREENSHOTS."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from answers import ANSWER
from clients import serve, started
from model import Model

pytest.importorskip("playwright")

from chat import Visit  # noqa: E402
from playwright.sync_api import expect  # noqa: E402

CAFE: dict[str, Any] = {
    "title": "Corner Café", "greeting": "Ask me when we are open.",
    "instructions": "You answer guests of a café.", "suggestions": ["When do you open?", "Is there oat milk?"],
    "longest_question": 80, "longest_answer": 8}
MANY = ["Donaudampfschifffahrtsgesellschaftskapitänsmützenverkauf?", *(f"Where is shop number {n}?" for n in range(7))]
IDLE = 60  # seconds, unless a kiosk says otherwise
SCREENS: dict[str, dict[str, Any]] = {
    "kiosk": {"viewport": {"width": 1024, "height": 600}, "has_touch": True},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
    "small": {"viewport": {"width": 800, "height": 480}, "has_touch": True}}
PICTURES = Path(os.environ.get("SCREENSHOTS", tempfile.gettempdir())) / "kiosk"


@pytest.fixture(scope="module")
def cafe() -> Iterator[str]:
    with serve(kiosk=CAFE) as url:
        yield url


@pytest.fixture
def kiosk() -> Iterator[Callable[..., str]]:
    """Starts a kiosk that differs from the café."""
    with contextlib.ExitStack() as stack:
        yield lambda **keys: stack.enter_context(serve(kiosk={**CAFE, **keys}))


@pytest.fixture
def visits(visitor: Callable[..., Any], model: Model) -> Callable[..., Visit]:
    """Begins a visit: the model says what the test wants, and the test can change the time."""
    def visit(url: str, box: str = "Your question", **options: Any) -> Visit:
        context = visitor(**options)
        model.serve(context)
        page = context.new_page()
        page.clock.install()
        return Visit(page, url, box)

    return visit


@pytest.fixture
def visit(visits: Callable[..., Visit], cafe: str) -> Visit:
    return visits(cafe)


# ---- a visit --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("browser", ["chromium", "firefox"], indirect=True)
def test_the_main_path(page: Any, cafe: str) -> None:
    """With the demo model: a suggestion, a question, start over, the next visitor."""
    visit = Visit(page, cafe)
    expect(page.get_by_role("heading", level=1)).to_have_text("Corner Café")
    visit.button("Is there oat milk?").click()
    expect(visit.questions).to_contain_text("Is there oat milk?")
    visit.ended()
    visit.say("And two scones?")
    visit.box.press_sequentially("My name is")
    visit.over.click()
    visit.gone("scones", "My name")
    visit.say("Two teas.")
    visit.reload()
    visit.gone("teas")


def test_visitors_can_only_ask(visit: Visit, model: Model) -> None:
    """No settings, list, files, links, tools or menu, whatever the model writes."""
    page = visit.page
    model.says(ANSWER + "\n[a](https://a.example) <https://a.example> https://a.example ![b](https://a.example/b)")
    visit.say("How?")
    seen = {each.get_attribute("aria-label") or each.inner_text() for each in page.get_by_role("button").all()}
    assert seen == {"Start over", "Send"}
    for role in ("link", "navigation", "combobox", "spinbutton", "checkbox"):
        expect(page.get_by_role(role)).to_have_count(0)
    for kind in ("contextmenu", "dragstart", "dragover", "drop"):
        for box in (visit.answer, visit.box):
            assert not box.evaluate("(box, kind) => box.dispatchEvent(new Event(kind, "
                                    "{ bubbles: true, cancelable: true }))", kind)
    assert model.asked[-1]["messages"] == [{"role": "user", "content": "How?"}]  # the server adds the instructions


def test_limits(page: Any, cafe: str) -> None:
    visit = Visit(page, cafe)
    visit.box.click()
    page.keyboard.insert_text("tea " * 50)
    expect(visit.box).to_have_value("tea " * 20)
    asked = {"messages": [{"role": "user", "content": "Tea?"}], "max_tokens": 500}
    usage = page.request.post(f"{cafe.rstrip('/')}/v1/chat/completions", data=asked).json()["usage"]
    assert usage["completion_tokens"] <= 8


def test_the_keyboard_alone(visit: Visit, model: Model) -> None:
    page = visit.page

    def tab_to(each: Any) -> None:
        for _ in range(12):
            if each.evaluate("each => each === document.activeElement"):
                return
            page.keyboard.press("Tab")
        raise AssertionError(f"{each} is not reached")

    tab_to(visit.button("When do you open?"))
    page.keyboard.press("Enter")
    visit.says("Yes.")
    visit.ended()
    tab_to(visit.box)
    page.keyboard.type("And when do you close?")
    page.keyboard.press("Enter")
    expect(visit.answers).to_have_count(2)
    visit.ended()
    assert model.words()[-1] == "And when do you close?"
    tab_to(visit.over)
    visit.passes(IDLE - 14)
    expect(visit.dialog).to_be_visible()
    page.keyboard.press("Enter")  # of "Yes", and of nothing else
    expect(visit.dialog).to_be_hidden()
    expect(visit.answers).to_have_count(2)
    tab_to(visit.over)
    page.keyboard.press("Enter")
    visit.gone("close")


# ---- forgetting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["warned", "slept", "clock set back"])
def test_an_idle_page_forgets(visit: Visit, how: str) -> None:
    visit.say("Two secret teas.")
    visit.box.press_sequentially("A secret draft")
    visit.passes(IDLE - 20)
    expect(visit.dialog).to_be_hidden()
    if how != "warned":  # the clock changed, and no timer came
        by = {"slept": 3600, "clock set back": -3600}[how]
        visit.page.clock.set_system_time(visit.page.evaluate("Date.now() / 1000") + by)
    if how == "clock set back":
        visit.page.wait_for_timeout(1200)
        visit.passes(IDLE + 1)
    if how == "warned":
        visit.passes(6)
        expect(visit.dialog).to_be_visible()
        visit.passes(15)
    visit.gone("secret", "Yes.")


@pytest.mark.parametrize("kept", ["Yes", "key", "mouse", "wheel"])
def test_whoever_is_there_keeps_it(visit: Visit, kept: str) -> None:
    page, dialog = visit.page, visit.dialog
    visit.say("Two teas.")
    visit.box.press_sequentially("A draft")
    visit.passes(IDLE - 14)
    expect(dialog).to_contain_text("Are you still there?")
    left = dialog.get_by_text(re.compile(r"in \d+ s\."))
    first = int(re.findall(r"\d+", left.inner_text())[0])
    visit.passes(3)
    assert first <= 15 and int(re.findall(r"\d+", left.inner_text())[0]) in range(first - 6, first - 2)
    {"Yes": dialog.get_by_role("button", name="Yes").click, "key": lambda: page.keyboard.press("Shift"),
     "mouse": lambda: page.mouse.click(5, 300), "wheel": lambda: page.mouse.wheel(0, 10)}[kept]()
    expect(dialog).to_be_hidden()
    visit.passes(IDLE - 20)
    expect(dialog).to_be_hidden()
    expect(visit.questions).to_have_count(1)
    expect(visit.box).to_have_value("A draft")
    visit.passes(21)
    visit.gone("teas", "draft")


@pytest.mark.parametrize("place", ["Yes", "Is there oat milk?", "Start over"])
def test_a_touch_keeps_it_and_does_nothing_else(visits: Callable[..., Visit], cafe: str, model: Model,
                                                    place: str) -> None:
    """Also where a button lies under the dialog."""
    visit = visits(cafe, **SCREENS["kiosk"])
    visit.box.fill("A draft")
    beneath = place != "Yes" and visit.button(place).bounding_box()
    visit.passes(IDLE - 14)
    at = beneath or visit.button(place).bounding_box()
    visit.page.touchscreen.tap(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2)
    expect(visit.dialog).to_be_hidden()
    visit.page.wait_for_timeout(500)
    expect(visit.box).to_have_value("A draft")
    assert not model.asked


def test_an_answer_that_is_written(visit: Visit, model: Model) -> None:
    """It is use; it can be stopped; and nothing of it comes after Start over."""
    for n in (1, 2):
        model.says("Half an", then=" answer")
        visit.ask("How?")
        visit.says("Half an")
        if n == 1:
            visit.switch("Stop")
            visit.says("You stopped this answer.")
    visit.passes(IDLE - 8)
    expect(visit.dialog).to_be_hidden()
    expect(visit.answers).to_have_count(2)
    visit.over.click()
    visit.gone("Half an", "How?")
    model.go()
    visit.say("Tea?")
    assert model.words() == ["Tea?"]
    expect(visit.answers).to_have_count(1)
    model.says("Half an", then=" answer")
    visit.ask("How?")
    visit.says("Half an")
    visit.passes(IDLE - 8)
    model.go()
    visit.ended()
    visit.passes(IDLE / 2)
    visit.says("Half an answer")
    visit.passes(IDLE / 2)
    visit.gone("Half an")


def test_history_shows_nothing(visit: Visit) -> None:
    page = visit.page
    address = page.url
    for where in ("about:blank", address + "?again"):
        visit.say("Two secret teas.")
        visit.box.press_sequentially("A secret draft")
        page.goto(where)
        for go in (page.go_back, page.go_forward, page.go_back):
            go()
            if page.url.startswith(address):
                visit.begun()
                visit.gone("secret")


def test_the_server_forgets(page: Any, kiosk: Callable[..., str]) -> None:
    """Of what a visitor wrote, it has to read all again."""
    url = kiosk(idle_seconds=10, longest_question=300)

    def held(question: str) -> int:
        """How many tokens of this question it knows."""
        body = {"messages": [{"role": "user", "content": question}], "max_tokens": 1}
        asked = urllib.request.Request(f"{url.rstrip('/')}/v1/chat/completions", json.dumps(body).encode(),
                                       {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return int(json.load(answer)["usage"]["prompt_tokens_details"]["cached_tokens"])

    nothing, visit = held("Xylophones!") + 1, Visit(page, url)
    words = "Ada is my name, and I would like two teas and a scone. " * 3
    visit.say(words)
    assert held(words) > nothing + 20
    visit.gone("Ada")
    time.sleep(3)
    assert held(words) <= nothing


# ---- what goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.complains("net::", "status of 503")  # while the model loads again
def test_a_server_that_is_killed_comes_back(page: Any) -> None:
    """The page says so, forgets all the same, and answers the next visitor without a reload."""
    page.clock.install()
    with started(kiosk=CAFE) as (url, process):
        visit = Visit(page, url)
        visit.say("Two secret teas.")
        process.kill()
        process.wait()
        visit.say("And a scone.")
        visit.says("not reachable")
        visit.passes(IDLE)
        visit.gone("secret", "scone")
    with serve("--port", url.rpartition(":")[2], kiosk=CAFE):
        visit.say("Two teas.")
        expect(visit.answer.get_by_role("button", name="Try again")).to_have_count(0)


@pytest.mark.complains("status of 503")
def test_a_model_that_is_not_there_yet(page: Any, context: Any, cafe: str, model: Model) -> None:
    """A question waits; and that a machine answers is said before."""
    model.serve(context)
    loads = {"status": 503, "json": {"error": {"code": "loading", "message": ""}}}
    context.route("**/v1/models", lambda route: route.fulfill(**loads))
    page.goto(cafe)
    expect(page.get_by_role("textbox", name="Your question")).to_be_visible()
    expect(page.get_by_text(re.compile("machine answers.*may be wrong"))).to_be_visible()
    context.unroute("**/v1/models")
    visit = Visit(page, cafe)
    for code, words in (("busy", "busy; your question waits"), ("loading", "getting ready")):
        model.refuses(503, code)
        visit.ask("Two teas.")
        visit.says(words)
        visit.says("Yes.")
        visit.ended()


# ---- screens, screen readers, languages -----------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "ar"])
@pytest.mark.parametrize("name", SCREENS)
def test_on_every_screen(visits: Callable[..., Visit], kiosk: Callable[..., str], model: Model, name: str,
                         language: str, npm: Callable[[str], Path]) -> None:
    """Nothing is wider than the screen, buttons are large enough for a finger, what is needed is in sight; and to axe,
    nothing is wrong that is serious.
    """
    visit = visits(kiosk(language=language, suggestions=MANY), "سؤالك" if language == "ar" else "Your question",
                   **SCREENS[name])
    page, greeting = visit.page, visit.page.get_by_text(CAFE["greeting"])
    page.evaluate("() => {" + (npm("axe-core") / "axe.min.js").read_text() + "}")
    PICTURES.mkdir(parents=True, exist_ok=True)

    def look(at: str) -> None:
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=PICTURES / f"{name}-{language}-{at}-{scheme}.png")
            found = page.evaluate("axe.run().then(found => found.violations)")
            assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []
        assert page.evaluate("""() => [...document.querySelectorAll("html, body, main, header, footer, dialog[open]")]
            .filter(each => each.scrollWidth > each.clientWidth).map(each => each.localName)""") == []
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight"), "the page itself scrolls"
        for each in page.get_by_role("button").all():
            assert each.bounding_box()["height"] >= 43.5, each.inner_text()
        if at != "dialog":
            for each in (visit.box, visit.over, page.get_by_text("(demo)")):
                expect(each).to_be_in_viewport(ratio=1)

    expect(greeting).to_be_in_viewport(ratio=1)
    look("beginning")
    model.says(ANSWER, ended="length")
    visit.box.tap()
    page.keyboard.type("How?")
    page.keyboard.press("Enter")  # sends, also where there is no other keyboard
    expect(page.get_by_role("article").last).to_contain_text("Done: 2 * 3")
    page.wait_for_timeout(500)
    look("answer")
    if language == "ar":
        assert page.evaluate("document.documentElement.dir") == "rtl"
        send, question, answer = page.locator("form button:visible"), *page.get_by_role("article").all()
        x = [each.bounding_box()["x"] for each in (send, visit.box, question, answer)]
        assert x[0] < x[1] and x[2] <= x[3] and visit.over.bounding_box()["x"] < 200
    visit.passes(IDLE - 14)
    expect(visit.dialog).to_be_visible()
    look("dialog")
    visit.passes(20)
    expect(greeting).to_be_in_viewport(ratio=1)


def told(visit: Visit, model: Model) -> set[str]:
    """All that is seen and told in a visit in which all goes wrong; what is not the page's own has no letters."""
    page, found = visit.page, set()

    def look() -> None:
        page.wait_for_timeout(700)
        for line in page.locator("body").aria_snapshot().splitlines():
            match = re.fullmatch(r'[ -]*(?:/?\w+)?(?: "(.*?)")?(?: \[.*\])?:? ?(.*)', line)
            assert match, line
            found.update(each for each in match.groups() if each and re.search(r"[^\W\d_]", each))

    look()
    model.says(then="2")
    visit.ask("1 + 1")
    look()
    visit.box.press("Escape")
    look()
    for ended in ("length", "timeout", "context_full", "loop", "cancelled", None):
        model.says("```\n1\n```\n\n|1|2|\n|-|-|\n|3|4|\n", "\n1" * 500, ended=ended)
        visit.ask("1 + 1")
        look()
    page.get_by_role("main").evaluate("box => { box.scrollTop = 0; }")  # there is a button for the end
    look()
    for status, code in ((503, "busy"), (503, "loading"), (503, "load_failed"), (500, ""), (403, ""),
                         (400, "context_length_exceeded"), (400, "question_too_long")):
        visit.over.click()
        model.refuses(status, code, "1")
        visit.ask("1 + 1")
        look()
    page.context.route("**/v1/**", lambda route: route.abort())
    visit.over.click()
    visit.ask("1 + 1")
    look()
    visit.passes(IDLE - 14)
    expect(visit.dialog).to_be_visible()
    look()
    return found


@pytest.mark.complains("net::", "status of")
def test_every_language_has_every_word(visits: Callable[..., Visit], kiosk: Callable[..., str], model: Model) -> None:
    """Nothing that the English page says is on the German one, and the other languages have the same words."""
    said = {}
    for language, box in {"en": "Your question", "de": "Ihre Frage"}.items():
        visit = visits(kiosk(language=language, title="1", greeting="1", suggestions=["2 + 2"]), box)
        said[language] = told(visit, model)
        assert len(said[language]) > 20
    assert said["en"] & said["de"] <= {"Code"}
    words = visit.page.evaluate("import('/page/words.js').then(({ LANGUAGES }) => LANGUAGES)")
    assert len(words) > 4
    for language in set(words) - {"en"}:
        assert set(words[language]) == set(words["de"]) <= set(words["en"])
        assert {each for each in words["de"] if words[language][each] == words["en"][each]} <= {"code"}
