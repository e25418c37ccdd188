"""The page in a real Chromium, on the screens of a phone, a tablet and a desktop; pictures go to $SCREENSHOTS."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clients import serve

selenium = pytest.importorskip("selenium")

from selenium import webdriver  # noqa: E402
from selenium.common.exceptions import WebDriverException  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

SCREENS = {"phone": (390, 844), "tablet": (820, 1180), "desktop": (1440, 900)}
PICTURES = Path(os.environ.get("SCREENSHOTS", tempfile.gettempdir())) / "page"


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
    wait(browser, lambda: "loading" not in browser.title and browser.find_element(By.ID, "name").text)


def wait(browser: Any, condition: Any) -> Any:
    return WebDriverWait(browser, 180).until(lambda _: condition())


def say(browser: Any, text: str) -> str:
    """Type, send, wait for the whole answer."""
    before = len(browser.find_elements(By.CSS_SELECTOR, ".say.assistant"))
    browser.find_element(By.ID, "text").send_keys(text, Keys.ENTER)
    wait(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, ".say.assistant")) > before)
    wait(browser, lambda: browser.find_element(By.ID, "send").is_displayed())
    return browser.find_elements(By.CSS_SELECTOR, ".say.assistant > span:last-child")[-1].text


def in_sight(browser: Any, box: Any) -> bool:
    """Whether the end of BOX lies between the top of the page and the line where one types."""
    return bool(browser.execute_script("""
        const end = arguments[0].getBoundingClientRect().bottom;
        return end >= 0 && end <= document.getElementById("ask").getBoundingClientRect().top + 1""", box))


@pytest.mark.parametrize("screen", SCREENS)
def test_a_conversation(browser: Any, url: str, screen: str) -> None:
    open_page(browser, url, SCREENS[screen])
    assert browser.find_element(By.ID, "size").text == "5.8 M parameters, demo model for tests"
    assert say(browser, "Two teas and a scone, please.")
    assert say(browser, "And a coffee.")
    fits = "return document.documentElement.scrollWidth <= window.innerWidth"
    assert browser.execute_script(fits), "scrolls sideways"
    small = [e.text for e in browser.find_elements(By.CSS_SELECTOR, "button") if e.is_displayed() and
             (e.size["height"] < 44)]
    assert not small, f"too small for a finger: {small}"
    PICTURES.mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(str(PICTURES / f"{screen}.png"))
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
        {"name": "prefers-color-scheme", "value": "dark"}]})
    browser.save_screenshot(str(PICTURES / f"{screen}-dark.png"))
    errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert not errors, errors


def test_scripts_in_an_answer_stay_text(browser: Any, url: str) -> None:
    open_page(browser, url)
    browser.execute_script("""
        window.hit = false;
        bubble("assistant", "").set("<img src=x onerror='window.hit=true'><script>window.hit=true</scr" + "ipt>");""")
    assert "onerror" in browser.find_elements(By.CSS_SELECTOR, ".say.assistant")[-1].text
    assert browser.execute_script("return window.hit") is False
    assert not browser.find_elements(By.CSS_SELECTOR, "main img, main script")


@pytest.mark.parametrize("screen", SCREENS)
def test_the_end_stays_in_sight_until_somebody_scrolls_up(browser: Any, url: str, screen: str) -> None:
    open_page(browser, url, SCREENS[screen])
    browser.execute_script("window.answer = bubble('assistant', '')")
    box = browser.find_elements(By.CSS_SELECTOR, ".say")[-1]
    for words in (200, 2000, 4000):  # more at once than the screen is high
        browser.execute_script(f"answer.set('tea and cake '.repeat({words}))")
        wait(browser, lambda: in_sight(browser, box))
    browser.execute_script("document.getElementById('main').scrollTop = 100")
    wait(browser, lambda: browser.execute_script("return !following"))
    browser.execute_script("answer.set('tea and cake '.repeat(6000))")
    frames = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done(true)))"
    browser.execute_async_script(frames)
    assert browser.execute_script("return document.getElementById('main').scrollTop") == 100
    browser.execute_script("bubble('user', 'And a scone.')")  # whoever asks sees the answer
    wait(browser, lambda: in_sight(browser, browser.find_elements(By.CSS_SELECTOR, ".say")[-1]))


def test_stop_new_and_settings(browser: Any, url: str) -> None:
    open_page(browser, url)
    browser.find_element(By.ID, "open").click()
    browser.find_element(By.ID, "system").send_keys("You are terse.")
    browser.find_element(By.ID, "temperature").send_keys("0")
    browser.find_element(By.ID, "most").send_keys("5")
    browser.save_screenshot(str(PICTURES.parent / "settings.png"))
    browser.find_element(By.CSS_SELECTOR, "dialog button").click()
    first = say(browser, "Two teas and a scone, please.")
    browser.find_element(By.ID, "fresh").click()
    assert not browser.find_elements(By.CSS_SELECTOR, ".say")
    assert say(browser, "Two teas and a scone, please.") == first
    browser.execute_script("document.getElementById('most').value = 20000")
    browser.find_element(By.ID, "text").send_keys("Tell me a long story.", Keys.ENTER)
    stop = browser.find_element(By.ID, "stop")
    browser.execute_script("arguments[0].click()", stop)
    wait(browser, lambda: browser.find_element(By.ID, "send").is_displayed())


def test_names_for_screen_readers(browser: Any, url: str) -> None:
    """Every control has a name, answers are announced, the keyboard reaches everything."""
    open_page(browser, url)
    say(browser, "Hello")
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    for node in nodes:
        if node.get("role", {}).get("value") in ("button", "textbox", "spinbutton", "dialog"):
            assert node.get("name", {}).get("value") or node.get("ignored"), node
    status = browser.find_element(By.ID, "status")
    assert status.get_attribute("aria-live") == "polite" and status.get_attribute("textContent")
    reached = set()
    for _ in range(8):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(browser.switch_to.active_element.get_attribute("id"))
    assert {"fresh", "open", "text", "send"} <= reached


def test_an_error_is_shown_and_the_page_goes_on(browser: Any, url: str) -> None:
    open_page(browser, url)
    browser.find_element(By.ID, "text").send_keys("x")
    browser.execute_script("document.getElementById('text').value = 'tea and cake '.repeat(4000)")
    browser.find_element(By.ID, "send").click()
    wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".say.error"))
    assert "context" in browser.find_element(By.CSS_SELECTOR, ".say.error").text
    assert say(browser, "Two teas.")
