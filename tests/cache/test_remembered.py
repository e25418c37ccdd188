"""What the operator wrote is read once in its life: the folder of remembered beginnings, and hostile states of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import edge
from edge.cache import kv_file, remembered
from edge.engine import Engine
from edge.errors import UsageError
from edge.sampling import Sampling

GREEDY = Sampling(temperature=0.0)
SYSTEM = "You sell tickets, coffee and umbrellas at the harbour, and you answer politely and briefly. " * 3


@pytest.fixture
def cache(bundled_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder; everything is worth keeping at once."""
    monkeypatch.setenv("BITNET_EDGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("BITNET_EDGE_NO_CACHE")
    monkeypatch.setattr(remembered, "LOADED", 1e30)
    monkeypatch.setattr(remembered, "LEAST", 0.0)
    return tmp_path / "cache" / "beginnings"


def load(**options: object) -> Engine:
    return edge.load(ctx=512, threads=1, **options)


def answer(system: str = SYSTEM, question: str = "Hello", **options: object) -> tuple[str, int, int]:
    """(text, tokens of the prompt, of these not read again) of one process."""
    with load(**options) as engine:
        session = engine.session(system)
        text = session.ask(question, sampling=GREEDY, max_tokens=8).text
        return text, session.outcome.usage.prompt, session.outcome.usage.cached


def files(cache: Path) -> list[Path]:
    return sorted(cache.glob("*.bes"))


def test_the_next_process_reads_only_the_question(cache: Path) -> None:
    text, prompt, cached = answer()
    assert cached == 0 and len(files(cache)) == 1
    assert cache.stat().st_mode & 0o777 == 0o700 and files(cache)[0].stat().st_mode & 0o777 == 0o600
    again, _, known = answer()
    assert again == text and known == int(files(cache)[0].name[:8])
    alone = edge.load(ctx=512, threads=1, cache=False)
    with alone:
        question = len(alone.tokenizer.encode("Hello"))
        other = alone.session(SYSTEM)
        assert other.ask("A tea, please.", sampling=GREEDY, max_tokens=8).text == answer(question="A tea, please.")[0]
    assert prompt - known <= question + 8  # and what the template writes around it
    assert len(files(cache)) == 1


@pytest.mark.parametrize("kv", ["f32", "f16", "int8", "int4"])
def test_answers_are_those_without_it(cache: Path, kv: str) -> None:
    expected = answer(kv=kv, cache=False)[0]
    assert [answer(kv=kv)[0] for _ in range(3)] == [expected] * 3 and len(files(cache)) == 1


def test_nothing_of_users_and_answers_is_kept(cache: Path) -> None:
    with load() as engine:
        session = engine.session(SYSTEM)
        for question in ("My name is Ottilie.", "Two tickets, please."):
            session.ask(question, sampling=GREEDY, max_tokens=8).text  # noqa: B018
    (path,) = files(cache)
    data = path.read_bytes()
    assert b"Ottilie" not in data and b"tickets" not in data
    with load() as engine:
        tokens, _ = kv_file.read(engine.space, path)
        text = engine.tokenizer.decode(tokens)
        assert SYSTEM.strip() in text and "Ottilie" not in text


def test_a_conversation_without_a_system_prompt_is_not_kept(cache: Path) -> None:
    answer("", "Tell me everything about umbrellas. " * 20)
    assert not cache.exists()


def test_what_is_read_in_a_moment_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "LEAST", 1e9)
    answer()
    assert not cache.exists()


def test_what_loads_no_faster_than_it_is_read_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "LOADED", 1e-9)
    answer()
    assert not cache.exists()


@pytest.fixture(params=["cut", "flip", "empty", "foreign", "folder", "link"])
def damaged(request: pytest.FixtureRequest, cache: Path, tmp_path: Path) -> Iterator[Path]:
    answer()
    (path,) = files(cache)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if request.param == "cut":
        path.write_bytes(data[: len(data) // 3])
    elif request.param == "flip":
        path.write_bytes(data)
    elif request.param == "empty":
        path.write_bytes(b"")
    elif request.param == "foreign":
        path.write_bytes(os.urandom(5000))
    elif request.param == "folder":
        path.unlink()
        path.mkdir()
    else:
        os.replace(path, tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    yield path


def test_a_damaged_file_is_read_again_in_silence(damaged: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kind = "link" if damaged.is_symlink() else "folder" if damaged.is_dir() else "file"
    text, _, cached = answer()
    assert cached == 0 and text == answer(cache=False)[0]
    assert capfd.readouterr() == ("", "")
    if kind == "file":
        assert answer()[2] > 0  # it was replaced


@pytest.mark.parametrize("state", ["open to others", "a link", "a file", "no folder above"])
def test_a_folder_that_is_not_private_is_not_used(cache: Path, tmp_path: Path, state: str) -> None:
    expected = answer()[0]
    before = files(cache)[0].read_bytes()
    if state == "open to others":
        cache.chmod(0o755)
    elif state == "a link":
        os.replace(cache, tmp_path / "real")
        cache.symlink_to(tmp_path / "real")
    elif state == "a file":
        shutil.rmtree(cache)
        cache.write_text("not a folder")
    else:
        shutil.rmtree(cache.parent)
        cache.parent.write_text("not a folder")
    text, _, cached = answer(SYSTEM)
    assert text == expected and cached == 0
    answer("Another " + SYSTEM)
    if state in ("open to others", "a link"):
        assert [path.read_bytes() for path in files(cache)] == [before]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_used(cache: Path) -> None:
    answer()
    os.chown(cache, 65534, 65534)
    assert answer()[2] == 0


def test_a_disk_that_is_nearly_full_is_left_alone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.statvfs("/")
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((*full[:3], 10, 10, *full[5:10])))
    assert answer()[2] == 0 and not files(cache)


def test_errors_of_the_disk_cost_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = answer(cache=False)[0]

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert answer()[0] == expected and [each.suffix for each in cache.iterdir()] in ([], [".model"])


def test_it_stays_within_its_bytes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer()
    size = files(cache)[0].stat().st_size
    made = remembered.Remembered.__init__
    monkeypatch.setattr(remembered.Remembered, "__init__",
                        lambda self, *given: made(self, *given, max_bytes=2 * size + size // 2))
    for name in "ABC":
        answer(f"{name} " + SYSTEM)
    assert len(files(cache)) == 2
    assert answer("C " + SYSTEM)[2] > 0 and answer("B " + SYSTEM)[2] > 0 and answer()[2] == 0


def test_a_process_that_is_killed_leaves_nothing_that_is_used(cache: Path, tmp_path: Path) -> None:
    program = (
        "import os, edge\nfrom edge.cache import remembered, kv_file\n"
        "remembered.LOADED, remembered.LEAST = 1e30, 0.0\n"
        "kv_file.os = type('os', (), {**vars(os), 'replace': lambda *_: os.kill(os.getpid(), 9)})\n"
        "engine = edge.load(ctx=512, threads=1)\n"
        f"engine.session({SYSTEM!r}).ask('Hello', max_tokens=1).text\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env={**os.environ}, timeout=120)
    assert done.returncode == -9
    assert files(cache) == [] and len(list(cache.glob(".*.tmp"))) == 1  # the half that it wrote
    assert answer()[2] == 0 and not list(cache.glob(".*.tmp"))
    assert answer()[2] > 0


def test_many_processes_share_it(cache: Path) -> None:
    program = (
        "import edge\nfrom edge.cache import remembered\nfrom edge.sampling import Sampling\n"
        "remembered.LOADED, remembered.LEAST = 1e30, 0.0\n"
        "with edge.load(ctx=512, threads=1) as engine:\n"
        f"    print(engine.session({SYSTEM!r}).ask('Hello', sampling=Sampling(temperature=0.0), max_tokens=8).text)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True) for _ in range(10)]
    done = [each.communicate(timeout=300) for each in running]
    assert {out for out, _ in done} == {answer(cache=False)[0] + "\n"} and {error for _, error in done} == {""}
    assert len(files(cache)) == 1 and not list(cache.glob(".*")) and answer()[2] > 0


def test_it_is_written_after_the_answer_and_before_the_end(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer waits here until the answer is over and the engine is being closed."""
    go, write = threading.Event(), kv_file.write
    monkeypatch.setattr(kv_file, "write", lambda *given, **more: (go.wait(60), write(*given, **more)))
    with load() as engine:
        pieces = iter(engine.session(SYSTEM).ask("Hello", sampling=GREEDY, max_tokens=8))
        next(pieces)
        assert not [each for each in threading.enumerate() if each.name == "remembering"]
        list(pieces)
        assert [each for each in threading.enumerate() if each.name == "remembering"]
        assert engine.session("").ask("And you?", max_tokens=4).text is not None  # answers go on meanwhile
        go.set()
    assert len(files(cache)) == 1


EXAMPLES = [{"role": "user", "content": "Two adults to the island. " * 6},
            {"role": "assistant", "content": "12 coins."}]


def test_examples_are_kept(cache: Path) -> None:
    """Those that the program names; not the questions and answers behind them."""
    found = []
    for question in ("One child.", "Nobody at all, thank you."):
        with load() as engine:
            session = engine.session(SYSTEM[:90], EXAMPLES)
            session.ask(question, sampling=GREEDY, max_tokens=4).text  # noqa: B018
            found.append((session.outcome.usage.prompt, session.outcome.usage.cached))
            session.ask("And now?", sampling=GREEDY, max_tokens=4).text  # noqa: B018
    (path,) = files(cache)
    with load() as engine:
        text = engine.tokenizer.decode(kv_file.read(engine.space, path)[0])
    assert "12 coins." in text and "One child" not in text
    assert found[0][1] == 0 and found[1][1] == int(path.name[:8]) > 60


@pytest.mark.parametrize("system", [SYSTEM[:90], ""])
def test_a_conversation_that_a_program_restores_is_not_kept(cache: Path, system: str) -> None:
    """It is what a user said and what was answered, although this session has not asked yet."""
    said = [{"role": "user", "content": "My name is Ottilie, and I am ill. " * 4}, EXAMPLES[1]]
    with load() as engine:
        for _ in range(2):
            session = engine.session(system)
            session.messages += said
            session.warm()
            session.ask("What did I say?", sampling=GREEDY, max_tokens=4).text  # noqa: B018
    with load() as engine:  # the first has written everything when it is closed
        texts = [engine.tokenizer.decode(kv_file.read(engine.space, path)[0]) for path in files(cache)]
    assert len(texts) == bool(system) and "Ottilie" not in "".join(texts)


def test_examples_stay_as_the_system_prompt_does(bundled_model: str, tmp_path: Path) -> None:
    with load() as engine:
        session = engine.session("Be brief.", EXAMPLES)
        session.ask("One child.", max_tokens=2).text  # noqa: B018
        assert session.undo() == "One child." and session.undo() is None
        session.messages[1]["content"] = "edited"
        session.clear()
        assert session.messages == [{"role": "system", "content": "Be brief."}, *EXAMPLES]
        session.ask("One child.", max_tokens=2).text  # noqa: B018
        session.save(tmp_path / "talk.bes")
        loaded = engine.load_session(tmp_path / "talk.bes")
        assert loaded.undo() == "One child." and loaded.undo() is None
        loaded.messages[1]["content"] = "edited"
        loaded.clear()
        assert loaded.messages == session.messages[:3]
        with pytest.raises(UsageError):
            engine.session("", [{"role": "nobody", "content": "x"}])


def test_a_folder_of_others_is_not_even_tidied(cache: Path) -> None:
    answer()
    half = cache / f".00000100-{'1' * 32}.bes.tmp"
    half.write_bytes(b"half")
    cache.chmod(0o755)
    answer()
    assert half.exists()
    cache.chmod(0o700)
    answer()
    assert not half.exists()


def test_a_file_in_front_of_the_question_is_kept(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "house.txt").write_text("The lift is on the left, the tickets are on the right. " * 8)
    program = ("from edge.cache import remembered\nremembered.LOADED, remembered.LEAST = 1e30, 0.0\n"
               "from edge.cli.main import main\nmain()")
    command = [sys.executable, "-c", program, "run", "-m", "demo", "--json", "--temp", "0", "-n", "4"]

    def usage(*more: str, text: str | None = None) -> tuple[int, int]:
        done = subprocess.run([*command, *more], input=text, capture_output=True, text=True, timeout=120,
                              stdin=None if text is not None else subprocess.DEVNULL)
        found = json.loads(done.stdout)["usage"]
        return found["prompt"], found["cached"]

    house = ("-f", str(tmp_path / "house.txt"))
    prompt, cached = usage(*house, text="Where is the lift?")
    again, known = usage(*house, text="And the tickets, please?")
    assert cached == 0 and again - known < 16 < known
    assert usage("Where?", *house)[1] < 16  # the question stands first
    assert usage(*house)[1] >= known - 8  # there is none
    assert len(files(cache)) == 1
