"""The menu of models on a terminal: what a person sees and types (test_contract.py has when nothing is asked)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import make_model
from edge.cli.menu import listing
from edge.registry import library
from edge.registry.known import KNOWN
from edge.tools.fit import Candidate
from tests.hub import Hub, serving
from tests.terminal import CTRL_C, CTRL_D, Terminal

ROOT = Path(__file__).resolve().parents[2]
RUN = ("run", "hello", "-n", "4")
FIRST = KNOWN["bonsai-1.7b"]  # behind the smallest one, of which no tiny copy can stand in
ASKS = "Number or name: "


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A tiny model of the first one's kind."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    make_model.make(path, "tiny-qwen3", "Q2_0", "Q2_0")
    return path.read_bytes()


@pytest.fixture
def hub(model: bytes) -> Iterator[Hub]:
    """The hub with the first known model."""
    assert FIRST.file is not None
    with serving({FIRST.file: model}, FIRST.repo) as hub:
        yield hub


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of pulled models; no model is named or set."""
    monkeypatch.setenv("BITNET_EDGE_MODELS", str(tmp_path / "models"))
    monkeypatch.delenv("BITNET_EDGE_MODEL", raising=False)
    return tmp_path / "models"


@pytest.fixture
def terminal(models: Path) -> Any:
    """with terminal("run", "hello", HF_ENDPOINT=url) as t: ..."""

    def start(*args: str, columns: int = 100, **extra: str) -> Terminal:
        env = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT), "no_proxy": "*", **extra}
        return Terminal([sys.executable, "-m", "edge", *args], env, columns)

    return start


def pulled(model: bytes, name: str) -> None:
    """Put a model into the library."""
    place = Path(library.folder()) / name
    place.mkdir(parents=True)
    (place / "m.gguf").write_bytes(model)
    library.write_record(library.Pulled(name, str(place / "m.gguf"), "hf:o/n/m.gguf", "1", len(model), None, "MIT"),
                         "m.gguf")


def test_a_model_is_chosen_pulled_and_the_default(terminal: Any, hub: Hub) -> None:
    with terminal(*RUN, HF_ENDPOINT=hub.url) as t:
        shown = t.expect(ASKS)
        line = next(line for line in shown.splitlines() if " 2  " in line)
        for word in (FIRST.name, "463 MB", "64", "about", FIRST.licence):
            assert word in line, word
        t.line("")
        t.expect(ASKS)  # Enter alone is no yes
        assert hub.requests == []
        t.line("2")
        t.expect(f"{FIRST.name} is the default from now on")
        assert t.wait() == 0
    assert library.default() == FIRST.name and [each.name for each in library.pulled()] == [FIRST.name]
    with terminal(*RUN) as t:
        assert t.wait() == 0
        assert "Number or name" not in t.screen and f"bitnet-edge: model {FIRST.name}" in t.screen


def test_no_asks_again_and_the_demo_model_needs_no_download(terminal: Any, hub: Hub) -> None:
    with terminal("chat", HF_ENDPOINT=hub.url) as t:
        t.expect(ASKS)
        t.line("bitnet-large")  # not on the list, so its size was not shown
        t.expect(r"Download bitnet-large, 2\.9 GB\? \[y/N\]: ")
        t.line("perhaps")
        t.expect(r"\[y/N\]: ")
        t.line("")
        t.expect(rf"Nothing was downloaded.*{ASKS}")
        t.line("bitnet-large")
        t.expect(r"\[y/N\]: ")
        t.line("n")
        t.expect(ASKS)
        t.line("demo")
        t.expect(r"demo is the default from now on.*demo \(5.*> ")
        t.type(CTRL_D)
        assert t.wait() == 0
    assert hub.requests == [] and library.default() == "demo"


def test_wrong_entries_ask_again(terminal: Any) -> None:
    with terminal(*RUN) as t:
        t.expect(ASKS)
        for wrong in ("", "0", "99", "-1", "1.5", "falcon", "bonsai", "\u00b2", "1 2"):
            t.line(wrong)
            t.expect(rf"Enter a number from 1 to \d+, or the name of a model; Ctrl-C leaves\..*{ASKS}")
        t.line("DEMO")
        assert t.wait() == 0


@pytest.mark.parametrize("key", [CTRL_C, CTRL_D])
def test_leaving_at_the_question(terminal: Any, hub: Hub, key: str) -> None:
    with terminal(*RUN, HF_ENDPOINT=hub.url) as t:
        t.expect(ASKS)
        t.line("bitnet-large")
        t.expect(r"\[y/N\]: ")
        t.reads()
        t.type(key)
        assert t.wait() == 130
        assert "Traceback" not in t.screen
    assert hub.requests == [] and library.default() is None


def test_an_interrupted_download_can_be_continued(terminal: Any, hub: Hub, models: Path) -> None:
    hub.cuts = [8] * 100  # each followed by a second of waiting
    with terminal(*RUN, HF_ENDPOINT=hub.url) as t:
        t.expect(ASKS)
        t.line("2")
        t.expect(f"pulling {FIRST.name}")
        t.type(CTRL_C)
        t.expect(f"interrupted; bitnet-edge pull {FIRST.name} continues the download")
        assert t.wait() == 130
        assert "Traceback" not in t.screen
    assert library.default() is None and library.pulled() == []
    assert list((models / FIRST.name).glob("*.part"))


def test_terminated(terminal: Any) -> None:
    with terminal(*RUN) as t:
        t.expect(ASKS)
        t.reads()
        t.process.send_signal(signal.SIGTERM)
        assert t.wait() == 143
        assert "Traceback" not in t.screen


def test_names_that_are_not_on_the_list(terminal: Any) -> None:
    """Any known model can be downloaded, if it fits."""
    with terminal(*RUN, "--memory", "900M") as t:
        assert "bitnet-large" not in t.expect(ASKS)
        t.line("bitnet-large")
        t.expect(r"Download bitnet-large, 2\.9 GB\? ")
        t.line("n")
        t.line("bitnet-3b")
        t.expect("bitnet-3b does not fit this machine")
        t.type(CTRL_D)
        assert t.wait() == 130
    assert library.default() is None


def test_models_on_this_machine_come_first(terminal: Any, model: bytes, models: Path) -> None:
    pulled(model, "zebra")
    pulled(model, "ant")
    with terminal(*RUN) as t:
        rows = [line.split()[:4] for line in t.expect(ASKS).splitlines() if line.split()[:1] in (["1"], ["2"], ["3"])]
        assert rows[:2] == [["1", "ant", "on", "disk"], ["2", "zebra", "on", "disk"]] and rows[2][1] != "demo"
        t.line("2")
        assert t.wait() == 0
    assert library.default() == "zebra"


def test_better_models_are_named_once(terminal: Any, model: bytes, models: Path) -> None:
    """With the first, dense model those are named that fit by what `fit` computes; never where a program reads."""
    pulled(model, "smollm2-135m")
    said = "smollm2-135m is the smallest model and knows little; better ones that fit this machine: bitnet-edge pull "
    piped = subprocess.run([sys.executable, "-m", "edge", *RUN], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert piped.returncode == 0 and "better" not in piped.stderr
    with terminal(*RUN, "-q") as t:
        assert t.wait() == 0 and "better" not in t.screen
    with terminal(*RUN, "--memory", "1500M", columns=200) as t:
        assert t.wait() == 0
        assert said + "bonsai-1.7b (463 MB), bonsai-4b (1.1 GB)\x1b[0m" in t.screen, t.screen
    with terminal(*RUN) as t:
        assert t.wait() == 0 and "better" not in t.screen


def test_a_damaged_model_is_not_offered(terminal: Any, model: bytes, models: Path) -> None:
    pulled(model, "whole")
    pulled(model[:1000], "cut")
    with terminal(*RUN) as t:
        shown = t.expect(ASKS)
        assert "whole" in shown and "cut" not in shown
        t.type(CTRL_D)
        assert t.wait() == 130


@pytest.mark.parametrize("columns", [24, 40])
def test_narrow_terminal(terminal: Any, columns: int) -> None:
    with terminal(*RUN, columns=columns) as t:
        shown = t.expect(ASKS)
        assert max(map(len, shown.splitlines())) <= columns
        t.type(CTRL_D)
        assert t.wait() == 130


def test_terminal_that_cannot_move_its_cursor(terminal: Any) -> None:
    with terminal("chat", "-n", "4", TERM="dumb") as t:
        assert "\x1b" not in t.expect(ASKS)
        t.line("demo")
        t.expect("\n> ")
        t.line("hello")
        assert "\x1b" not in t.expect("\n> ")
        t.type(CTRL_D)
        assert t.wait() == 0


@pytest.mark.parametrize(
    "words", ["serve --port 0", "batch IN OUT", "bench -n 2 -d 4"], ids=lambda words: words
)
def test_other_commands_ask(terminal: Any, tmp_path: Path, words: str) -> None:
    (tmp_path / "IN").write_text("")
    places = {name: str(tmp_path / name) for name in ("IN", "OUT")}
    with terminal(*(places.get(word, word) for word in words.split())) as t:
        t.expect(ASKS)
        t.type(CTRL_D)
        assert t.wait() == 130


@pytest.mark.parametrize("stream", ["stdin", "stderr"])
def test_nothing_is_asked_without_a_terminal(models: Path, stream: str) -> None:
    redirection = {"stdin": "</dev/null", "stderr": "2>/dev/null"}[stream]
    command = ["sh", "-c", f"{sys.executable} -m edge run hello -n 4 {redirection}"]
    with Terminal(command, {**os.environ, "PYTHONPATH": str(ROOT)}) as t:
        assert t.wait() == 0
        assert "Number or name" not in t.screen


def test_nothing_is_asked_where_only_the_demo_model_fits(models: Path) -> None:
    """A list of one is no choice."""
    program = ("import edge.tools.fit as fit, edge.loading as loading\n"
               "loading.available_memory = fit.available_memory = lambda: 100_000_000\n"
               "print(fit.candidates(fit.LoadSettings()))")
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_choice_that_cannot_be_kept_still_answers(terminal: Any, models: Path) -> None:
    models.write_text("not a folder")
    with terminal(*RUN) as t:
        t.expect(ASKS)
        t.line("demo")
        assert t.wait() == 0
        assert "cannot be made the default" in t.screen


@pytest.mark.parametrize("width", [20, 39, 70, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    found = [
        Candidate("bonsai-1.7b", 463_000_000, 647_000_000, 12.3, "Apache-2.0"),
        Candidate("falcon3-3b", 2_220_000_000, 1_202_000_000, 0.4, "Falcon LLM Licence 2.0"),
        Candidate("mine", 0, 30_000_000, 500.0, "see its page"),
    ]
    text = "\n".join(listing(found, width))
    assert max(map(len, text.splitlines())) <= width
    for word in ("bonsai-1.7b", "463", "647", "12", "Apache-2.0", "below", "disk", "demo"):
        assert word in text
