"""The page of a person at home, by the names of what is seen; pictures go to $SCREENSHOTS."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from answers import ANSWER, HOSTILE
from clients import serve, started
from model import Model

pytest.importorskip("playwright")

from chat import Chat  # noqa: E402
from playwright.sync_api import expect  # noqa: E402

SCREENS = {"small": (320, 640), "phone": (390, 844), "kiosk": (1024, 600), "desktop": (1440, 900)}
PICTURES = Path(os.environ.get("SCREENSHOTS", tempfile.gettempdir())) / "page"
TOUCHED = {"has_touch": True, "is_mobile": True}


@pytest.fixture
def chat(page: Any, context: Any, model: Model, url: str) -> Chat:
    """The page, whose model says what the test wants."""
    model.serve(context)
    return Chat(page, url)


def screen(name: str) -> dict[str, Any]:
    """What a browser of that size is made with."""
    width, height = SCREENS[name]
    return {"viewport": {"width": width, "height": height}, **(TOUCHED if width < 1000 else {})}


def in_sight(box: Any) -> None:
    """The end of BOX is, or comes to be, on the screen."""
    box.page.wait_for_function("""box => { const { bottom } = box.getBoundingClientRect();
        return bottom > 0 && bottom <= innerHeight; }""", arg=box.element_handle())


# ---- a conversation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("browser", ["chromium", "firefox"], indirect=True)
def test_the_main_paths(page: Any, url: str) -> None:
    """With the demo model: ask, settings, another answer, reload, a second conversation, delete and undo."""
    chat = Chat(page, url)
    expect(page.get_by_role("heading", level=1)).to_have_text("demo")
    chat.settings(Instructions="You are terse.", Temperature="0", Longest_answer="5")
    chat.say("Two teas and a scone, please.")
    chat.says("longest length")
    before = chat.answer.inner_text()
    chat.press("Continue")
    expect(chat.answer).not_to_have_text(before)
    chat.press("Another answer")
    expect(chat.answer).to_contain_text("2/2")
    chat.press("Previous")
    expect(chat.answer).to_contain_text("1/2")
    chat.reload()
    expect(chat.answers).to_have_count(1)
    chat.button("New conversation").click()
    expect(chat.answers).to_have_count(0)
    chat.say("A coffee.")
    titles = chat.list.get_by_role("button", name=re.compile("teas|coffee"))
    expect(titles).to_have_count(2)
    chat.list.get_by_role("button", name="Two teas").click()
    expect(chat.questions).to_contain_text("Two teas")
    chat.list.get_by_role("button", name="Delete").click()
    expect(titles).to_have_count(1)
    expect(page.get_by_role("status").filter(has_text="was deleted")).to_be_visible()
    chat.button("Undo").click()
    expect(titles).to_have_count(2)
    expect(chat.answer).to_contain_text("1/2")


@pytest.mark.parametrize("name", SCREENS)
def test_on_every_screen(visitor: Callable[..., Any], url: str, model: Model, name: str) -> None:
    """Nothing is wider than the screen, every button is large enough for a finger."""
    context = visitor(**screen(name))
    model.serve(context)
    page = context.new_page()
    chat = Chat(page, url)
    model.says(ANSWER, ended="length")
    chat.say("How?")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=PICTURES / f"{name}-{scheme}.png")
    width, height = page.evaluate("""() => [Math.max(...[...document.querySelectorAll("html, body, main")]
        .map(each => each.scrollWidth - each.clientWidth)), document.documentElement.scrollHeight - innerHeight]""")
    assert width <= 0 and height <= 0, "the page itself scrolls"
    for each in page.get_by_role("button").all():
        assert each.bounding_box()["height"] >= 43.5, each.inner_text()


@pytest.mark.parametrize("name", SCREENS)
def test_the_end_stays_in_sight_until_somebody_scrolls_up(visitor: Callable[..., Any], url: str, model: Model,
                                                          name: str) -> None:
    context = visitor(**screen(name))
    model.serve(context)
    page = context.new_page()
    chat = Chat(page, url)
    for n in (200, 2000):  # more at once than the screen is high
        model.says("tea and cake " * n)
        in_sight(chat.say("And?"))
    expect(chat.button("To the end")).to_be_hidden()
    model.says("tea " * 1000, then="and cake " * 1000)
    chat.ask("And?")
    expect(chat.answer).to_contain_text("tea tea")
    talk = page.get_by_role("main")
    talk.evaluate("box => { box.scrollTop = 100; }")
    expect(chat.button("To the end")).to_be_visible()
    model.go()
    chat.ended()
    assert talk.evaluate("box => box.scrollTop") == 100
    chat.button("To the end").click()
    in_sight(chat.answer)
    talk.evaluate("box => { box.scrollTop = 100; }")
    in_sight(chat.say("And a scone."))  # whoever asks sees the answer


def test_nodes_stay_while_an_answer_grows(chat: Chat, model: Model) -> None:
    """So that what is marked, or scrolled, stays."""
    chat.page.evaluate("""() => { window.made = 0;
        new MutationObserver(all => { for (const each of all) for (const node of each.addedNodes)
            if (node.nodeType === 1) made += 1 + node.querySelectorAll("*").length;
        }).observe(document.querySelector("main"), { childList: true, subtree: true }); }""")
    model.says(*ANSWER)
    answer = chat.say("How?")
    there = answer.evaluate("box => box.querySelectorAll('*').length")
    assert chat.page.evaluate("made") < there * 1.5


def test_stop(chat: Chat, model: Model) -> None:
    """By button and by Escape, before and in the middle; nothing that was written is lost."""
    model.says("Half an", then="")
    chat.ask("Tell me a long story.")
    chat.says("Half an")
    chat.box.fill("And then?")
    chat.box.press("Enter")  # too early: it stays
    chat.switch("Stop")
    chat.says("You stopped this answer.")
    assert chat.actions() == ["Copy", "Continue", "Another answer"]
    expect(chat.box).to_have_value("And then?")
    model.says(then="")
    chat.box.press("Enter")
    chat.says("The model is thinking")
    chat.box.press("Escape")
    chat.says("You stopped this answer.")
    assert chat.actions() == ["Try again"]
    chat.press("Try again")
    chat.says("Yes.")
    assert model.words()[-1] == "And then?"


def test_settings(chat: Chat, model: Model) -> None:
    """Done keeps them, Cancel and Escape change nothing, and what cannot be is refused."""
    page, dialog = chat.page, chat.page.get_by_role("dialog", name="Settings")
    chat.settings(Instructions="You are terse.", Temperature="0", Longest_answer="5")
    chat.button("Settings").click()
    dialog.get_by_label("Temperature").fill("9")
    dialog.get_by_role("button", name="Done").click()
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    chat.button("Settings").click()
    dialog.get_by_label("Temperature").fill("9")
    dialog.get_by_role("button", name="Cancel").click()
    chat.say("x")
    asked = model.asked[-1]
    assert (asked["temperature"], asked["max_tokens"]) == (0, 5)
    assert asked["messages"] == [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "x"}]
    expect(page.get_by_role("main")).to_contain_text("Instructions: You are terse.")


def test_edit_another_and_continue(chat: Chat, model: Model) -> None:
    model.says("Half an", ended="length")
    chat.say("How?")
    model.says(" answer.")
    chat.press("Continue")
    expect(chat.answer).to_contain_text("Half an answer.")
    assert model.words() == ["How?", "Half an"]
    model.says("Otherwise.")
    chat.press("Another answer")
    assert model.words() == ["How?"]
    chat.questions.last.get_by_role("button", name="Edit").click()
    expect(chat.box).to_have_value("How?")
    model.says("Because.")
    chat.box.fill("Why?")
    chat.box.press("Enter")
    chat.says("Because.")
    chat.ended()
    assert model.words() == ["Why?"]
    expect(chat.answer).to_contain_text("3/3")
    chat.press("Previous")
    expect(chat.answer).to_contain_text("Otherwise.")
    expect(chat.questions.last).to_contain_text("How?")
    model.says("Thanks.")
    chat.say("Then?")  # goes on from what is shown
    assert model.words() == ["How?", "Otherwise.", "Then?"]


def test_copy(visitor: Callable[..., Any], url: str, model: Model) -> None:
    context = visitor(permissions=["clipboard-read", "clipboard-write"])
    model.serve(context)
    chat = Chat(context.new_page(), url)
    model.says(ANSWER)
    chat.say("How?")
    code = 'def hello(name):\n\tprint(f"Hello **{name}**")  # <b>a comment</b>'
    for cannot in (False, True):  # a page that comes over the network without encryption has no clipboard of its own
        if cannot:
            chat.page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(Error('not here')); }")
        for button, copied in ((chat.answer.get_by_role("button", name="Copy", exact=True), ANSWER),
                               (chat.answer.get_by_role("button", name="Copy code").last, code)):
            button.click()
            expect(chat.page.get_by_text("Copied").first).to_be_attached()
            chat.page.wait_for_function("text => navigator.clipboard.readText().then("
                                        "found => found.replaceAll('\\r', '') === text)", arg=copied)
        expect(chat.answer.get_by_text("Copied")).to_have_count(0)


# ---- what is kept ---------------------------------------------------------------------------------------------------


def test_reload_in_the_middle_of_an_answer(chat: Chat, model: Model) -> None:
    chat.say("Two teas and a scone, please.")
    model.says("Half an", then=" answer")
    chat.ask("And a coffee.")
    chat.says("Half an")
    chat.box.fill("A draft")
    chat.reload()
    expect(chat.answers).to_have_count(2)
    chat.says("Half an")
    chat.says("This answer was not completed.")
    expect(chat.box).to_have_value("A draft")
    assert chat.actions() == ["Copy", "Continue", "Another answer"]
    chat.press("Continue")
    assert model.words()[-2:] == ["And a coffee.", "Half an"]


def test_hostile_answers_are_kept_and_do_nothing(chat: Chat, model: Model) -> None:
    page = chat.page
    for text in HOSTILE:
        model.says(text[:len(text) // 2], text[len(text) // 2:])
        chat.button("New conversation").click()
        chat.say("x")
    chat.reload()
    expect(chat.answers).to_have_count(1)
    assert page.evaluate("window.hit ?? null") is None
    chat.button("New conversation").click()
    expect(chat.say("Two teas.")).to_contain_text("Yes.")


def test_two_tabs(chat: Chat, context: Any, url: str, model: Model) -> None:
    """Another tab begins another conversation; what both have of one is lost in neither."""
    chat.say("Two teas.")
    other = Chat(context.new_page(), url)
    expect(other.answers).to_have_count(0)
    other.list.get_by_role("button", name="Two teas.").click()
    model.says("From one tab.", then="")
    chat.ask("And a scone.")
    chat.says("From one tab.")
    model.says("From the other tab.")
    other.say("And a coffee.")
    model.go()
    chat.ended()
    seen = ""
    for tab in (chat, other):
        tab.reload()
        seen += tab.page.get_by_role("main").inner_text()
    assert "From one tab." in seen and "From the other tab." in seen


def test_an_answer_goes_on_while_another_conversation_is_shown(chat: Chat, model: Model) -> None:
    model.says("From", then=" here.")
    chat.ask("Two teas.")
    chat.says("From")
    chat.button("New conversation").click()
    expect(chat.button("Send")).to_be_visible()
    chat.list.get_by_role("button", name="Two teas.").click()
    chat.says("From")
    expect(chat.button("Stop")).to_be_visible()
    chat.button("New conversation").click()
    model.go()
    model.says("Elsewhere.")
    chat.say("A coffee.")
    chat.list.get_by_role("button", name="Two teas.").click()
    chat.says("From here.")
    assert chat.actions() == ["Copy", "Another answer"]
    model.says("Half", then="")
    chat.ask("And a scone.")
    chat.says("Half")
    chat.list.get_by_role("button", name="Delete").click()
    chat.button("Undo").click()
    chat.says("Half")
    chat.says("This answer was not completed.")


def test_what_was_typed_and_not_sent_stays(chat: Chat, model: Model) -> None:
    def go(title: str) -> None:
        chat.list.get_by_role("button", name=title).click()

    new = chat.button("New conversation")
    chat.say("Two teas.")
    chat.box.fill("Of the first")
    new.click()
    expect(chat.box).to_have_value("Of the first")  # it goes along
    go("Two teas.")
    expect(chat.box).to_have_value("")
    new.click()
    expect(chat.box).to_have_value("Of the first")
    chat.box.fill("")
    go("Two teas.")
    chat.button("Edit").click()
    chat.box.fill("Two teas and a scone")
    chat.reload()
    expect(chat.box).to_have_value("Two teas and a scone")
    go("Delete")
    chat.box.fill("Of another")
    chat.button("Undo").click()
    expect(chat.box).to_have_value("Two teas and a scone")
    chat.box.press("Enter")  # it is still the last question that is changed
    expect(chat.answer).to_contain_text("2/2")
    chat.box.fill("Of the first")
    new.click()
    expect(chat.box).to_have_value("Of another\n\nOf the first")


def test_a_browser_that_is_full(chat: Chat, model: Model) -> None:
    """It says so, and loses nothing while the tab is open."""
    chat.say("Two teas.")
    chat.page.evaluate("""() => { for (let n = 2 ** 22; n; n >>= 1)
        for (;;) try { localStorage["x" + n + Math.random()] = "x".repeat(n); } catch { break; } }""")
    chat.say("And a scone.")
    expect(chat.alert.filter(has_text="no room")).to_be_visible()
    chat.button("New conversation").click()
    chat.say("A coffee.")
    chat.list.get_by_role("button", name="Two teas.").click()
    expect(chat.questions.last).to_contain_text("And a scone.")
    chat.list.get_by_role("button", name="A coffee.").click()
    expect(chat.questions.last).to_contain_text("A coffee.")
    chat.page.evaluate("for (const each of Object.keys(localStorage)) if (each[0] === 'x') delete localStorage[each]")
    chat.button("New conversation").click()  # now there is room
    chat.reload()
    for title in ("Two teas.", "A coffee."):
        expect(chat.list.get_by_role("button", name=title)).to_be_visible()


def test_damaged_conversations_hide_no_others(chat: Chat, model: Model) -> None:
    chat.say("Two teas.")
    good = {"id": "x", "title": "x", "instructions": "", "turns": [{"variants": [{"question": "?", "answer": {
        "content": "!"}}], "shown": 0}]}
    bad = [None, 5, [], {}, {**good, "turns": [None]}, {**good, "turns": [5]}, {**good, "turns": [{}]},
           {**good, "turns": [{"variants": [], "shown": 0}]}, {**good, "turns": [{"variants": [{
               "question": "?", "answer": {"content": {}}}], "shown": 0}]}, {**good, "title": 5}]
    chat.page.evaluate("""all => all.forEach((each, n) => {
        localStorage["bitnet-edge.conversation." + n] = JSON.stringify(each); });
        localStorage["bitnet-edge.conversation.broken"] = "{"; """.replace("all => all", "all => { all") + "}", bad)
    chat.reload()
    expect(chat.list.get_by_role("button", name=re.compile("teas"))).to_be_visible()
    expect(chat.list.get_by_role("listitem")).to_have_count(1)
    chat.say("And a scone.")


def test_export(chat: Chat, model: Model) -> None:
    chat.settings(Instructions="Be brief.")
    model.says("Two *teas*.")
    chat.say("What did I order?")
    found = {}
    for kind in ("Markdown", "JSON"):
        with chat.page.expect_download() as download:
            chat.list.get_by_role("button", name=f"Save as {kind}").click()
        found[download.value.suggested_filename] = Path(download.value.path()).read_text()
    markdown, whole = found["What did I order.md"], json.loads(found["What did I order.json"])
    assert "What did I order?" in markdown and "Two *teas*." in markdown and "Be brief." in markdown
    assert [(each["role"], each["content"]) for each in whole["messages"]] == [
        ("system", "Be brief."), ("user", "What did I order?"), ("assistant", "Two *teas*.")]


def test_rename_delete_and_undo(chat: Chat, model: Model) -> None:
    chat.say("Two teas.")
    chat.list.get_by_role("button", name="Rename").click()
    chat.list.get_by_role("textbox").fill("Breakfast")
    chat.page.keyboard.press("Enter")
    chat.reload()
    expect(chat.list.get_by_role("button", name="Breakfast")).to_be_visible()
    chat.list.get_by_role("button", name="Delete").click()
    expect(chat.answers).to_have_count(0)
    assert "teas" not in chat.page.evaluate("JSON.stringify({ ...sessionStorage, ...localStorage })")
    chat.button("Undo").click()
    expect(chat.questions).to_contain_text("Two teas.")
    expect(chat.list.get_by_role("button", name="Breakfast")).to_be_visible()


# ---- long conversations ---------------------------------------------------------------------------------------------


def test_thirty_long_turns(page: Any, url: str) -> None:
    """With the demo model, whose context is soon full: each question is answered, none is lost."""
    chat = Chat(page, url)
    chat.settings(Longest_answer="60")
    for n in range(30):
        chat.say(f"Question {n}: " + "two teas and a scone " * 12)
        assert "Answer:" in chat.answer.inner_text() and "Try again" not in chat.actions(), chat.answer.inner_text()
    expect(chat.questions).to_have_count(30)
    expect(page.get_by_text("The model no longer sees what is above this line.")).to_have_count(1)
    expect(page.get_by_role("meter", name="Context")).to_be_visible()
    chat.reload()
    expect(chat.questions).to_have_count(30)
    expect(chat.answers).to_have_count(30)


# ---- keyboards, screen readers, languages ---------------------------------------------------------------------------


def test_enter_on_a_phone_begins_a_line(visitor: Callable[..., Any], url: str, model: Model) -> None:
    context = visitor(**screen("phone"))
    model.serve(context)
    chat = Chat(context.new_page(), url)
    chat.box.tap()
    chat.page.keyboard.type("a")
    chat.page.keyboard.press("Enter")
    chat.page.keyboard.type("b")
    expect(chat.box).to_have_value("a\nb")
    chat.switch("Send")
    chat.says("Yes.")
    assert model.words() == ["a\nb"]


def test_the_keyboard_alone(chat: Chat, model: Model) -> None:
    page = chat.page
    expect(chat.box).to_be_focused()
    page.keyboard.type("Hello")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("there")
    page.keyboard.press("Enter")
    chat.says("Yes.")
    chat.ended()
    assert model.words() == ["Hello\nthere"]
    reached = set()
    for _ in range(20):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.ariaLabel || document.activeElement.innerText"))
    assert {"Conversations", "New conversation", "Settings", "Copy", "Another answer", "Edit"} <= reached
    while page.evaluate("document.activeElement.innerText") != "Another answer":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(chat.answer).to_contain_text("2/2")
    assert page.evaluate("document.activeElement !== document.body")  # one can go on from there


def test_screen_readers_are_told(chat: Chat, model: Model, npm: Callable[[str], Path]) -> None:
    """The answer without marks and buttons; and axe finds nothing that is serious."""
    axe = (npm("axe-core") / "axe.min.js").read_text()
    chat.page.evaluate("() => {" + axe + "}")

    def serious() -> Any:
        found = chat.page.evaluate("axe.run().then(found => found.violations)")
        return [(each["id"], [node["html"] for node in each["nodes"]]) for each in found
                if each["impact"] in ("serious", "critical")]

    assert serious() == []
    model.says(ANSWER)
    chat.say("Hello")
    told = chat.page.get_by_role("status").filter(has_text="short overview").text_content()
    assert "Steps\n" in told and "**two" not in told and "Copy" not in told
    assert chat.list.is_visible() and serious() == []
    chat.button("Settings").click()
    assert serious() == []
    chat.page.keyboard.press("Escape")
    chat.page.emulate_media(color_scheme="dark")
    assert serious() == []


def test_right_to_left(chat: Chat, model: Model) -> None:
    """Each paragraph in the direction of its language, code always from the left."""
    model.says("مرحبا بك\n\nand in English\n\n```\ncode\n```")
    answer = chat.say("مرحبا")
    for words, side in (("مرحبا بك", "right"), ("and in English", "left"), ("code", "left")):
        at, box = answer.get_by_text(words).evaluate("""node => { const range = document.createRange();
            range.selectNodeContents(node); const a = range.getBoundingClientRect(), b = node.getBoundingClientRect();
            return [[a.left, a.right], [b.left, b.right]]; }""")
        assert abs((at[1] - box[1]) if side == "right" else (at[0] - box[0])) < 20, (words, at, box)


def test_what_is_typed_is_read_before_it_is_sent(chat: Chat, model: Model) -> None:
    """Whole words only."""
    chat.say("Two teas.")
    chat.box.press_sequentially("Where is the lift no")
    expect(chat.box).to_have_value("Where is the lift no")
    chat.page.wait_for_timeout(1500)
    assert model.read[-1]["max_tokens"] == 0
    assert [each["content"] for each in model.read[-1]["messages"]] == ["Two teas.", "Yes.", "Where is the lift "]
    n = len(model.read)
    chat.box.press_sequentially("w")
    chat.page.wait_for_timeout(1000)
    assert len(model.read) == n  # no word has ended


# ---- what goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.complains("net::", "status of")
def test_no_question_is_lost(chat: Chat, model: Model) -> None:
    """Whatever happens to the answer, the question stays, here and after a reload, and can be asked again."""
    model.says("Half an", then=" answer", ended=None)
    chat.ask("First?")
    chat.says("Half an")
    model.go()
    chat.says("connection to the model was lost")
    chat.press("Continue")
    assert model.words()[0] == "First?"
    for status, code, words in ((500, "", "Something went wrong"), (503, "load_failed", "could not be started")):
        model.refuses(status, code)
        chat.say(f"Of {status}?")
        chat.says(words)
        chat.reload()
        expect(chat.questions.last).to_contain_text(f"Of {status}?")
        chat.press("Try again")
        chat.says("Yes.")
        assert model.words()[-1] == f"Of {status}?"
    for new in (False, True):  # a question that is too long by itself
        if new:
            chat.button("New conversation").click()
        for _ in range(1 if new else 4):
            model.refuses(400, "context_length_exceeded")
        chat.ask("Of a very long question?")
        expect(chat.alert.filter(has_text="longer than the model can keep in mind")).to_be_visible()
        expect(chat.box).to_have_value("Of a very long question?")
        expect(chat.page.get_by_text("no longer sees")).to_have_count(0)  # what is above is not in its way
    chat.reload()
    expect(chat.box).to_have_value("Of a very long question?")


@pytest.mark.complains("status of 503")
def test_a_busy_model_is_waited_for(chat: Chat, model: Model) -> None:
    model.refuses(503, "busy")
    chat.ask("Two teas.")
    chat.says("The model is busy; your question waits.")
    chat.says("Yes.")


@pytest.mark.complains("status of 403")
def test_a_page_that_is_refused_says_why(chat: Chat, model: Model) -> None:
    """As behind a proxy that does not pass on the host name: the server's words are for who sets it up."""
    model.refuses(403, message="requests from http://kiosk are not allowed")
    chat.say("Two teas.")
    chat.says("requests from http://kiosk are not allowed")


@pytest.mark.complains("net::", "status of 503")  # while the model loads again
def test_a_server_that_hangs_is_killed_and_comes_back(page: Any) -> None:
    with started() as (url, process):
        chat = Chat(page, url)
        chat.say("Two teas.")
        page.evaluate("import('/page/model.js').then(({ limits }) => { limits.silence = 1500; })")
        process.send_signal(signal.SIGSTOP)
        try:
            chat.say("And a scone.")
            chat.says("not reachable")
        finally:
            process.send_signal(signal.SIGCONT)
        chat.press("Try again")
        assert chat.actions() == ["Copy", "Another answer"]
        process.kill()
        process.wait()
        chat.say("And a coffee.")
        chat.says("not reachable")
    with serve("--port", url.rpartition(":")[2]):
        chat.press("Try again")
        assert chat.actions() == ["Copy", "Another answer"]
        chat.reload()
        expect(chat.questions).to_have_count(3)


@pytest.mark.complains("status of 401")
def test_a_key_is_asked_for(page: Any) -> None:
    with serve("--api-key", "sesame") as url:
        chat = Chat(page, url)
        dialog = page.get_by_role("dialog", name="Settings")
        for key in ("wrong", "wr\u00f6ng \u043a\u043b\u044e\u0447"):
            expect(dialog.get_by_label("Key")).to_be_focused()
            dialog.get_by_label("Key").fill(key)
            page.keyboard.press("Enter")
        expect(dialog.get_by_text("Wrong key")).to_be_visible()
        dialog.get_by_label("Key").fill("sesame")
        page.keyboard.press("Enter")
        chat.say("Two teas.")
        assert chat.actions() == ["Copy", "Another answer"]


def test_locked_instructions(page: Any) -> None:
    """The page does not offer what the server refuses."""
    with serve("--system", "Be brief.", "--lock-system") as url:
        chat = Chat(page, url)
        chat.settings(Longest_answer="4")
        chat.say("Two teas and a scone, please.")
        chat.says("longest length")
        assert chat.actions() == ["Copy", "Another answer"]
        chat.button("Settings").click()
        expect(page.get_by_label("Temperature")).to_be_focused()
        expect(page.get_by_label("Instructions")).to_have_count(0)
