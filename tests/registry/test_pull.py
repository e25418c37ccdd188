"""Pulled models: from a hub that fails in every way it can, into a library that never holds half a model."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

import edge
from benchmarks import make_model
from edge.amounts import human
from edge.cli.group import cli
from edge.errors import Busy, EdgeError, InvalidFile, ModelNotFound, UsageError
from edge.formats import open_checkpoint
from edge.registry import library
from edge.registry.known import KNOWN, Source
from edge.registry.shapes import SHAPES
from edge.tools import convert
from edge.tools import pull as pulling
from edge.tools.pull import pull
from tests import hub as hubs
from tests.services import REAL, ROOT, in_python

FILE = "tiny.gguf"
NAME = f"hf:owner/name/{FILE}"


@pytest.fixture(scope="module")
def model(tiny_model: str) -> bytes:
    return Path(tiny_model).read_bytes()


@pytest.fixture
def hub(model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hubs.Hub]:
    with hubs.serving({FILE: model, "README.md": b"hello"}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("BITNET_EDGE_MODELS", str(tmp_path / "models"))
        monkeypatch.setattr(pulling, "BLOCK", 1 << 12)
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield hub


def patient(waited: list[float]) -> pulling.Hub:
    """A client that notes how long it would have waited."""
    return pulling.Hub(wait=waited.append)


def test_a_model_is_pulled_listed_used_and_removed(hub: hubs.Hub, model: bytes) -> None:
    seen: list[tuple[int, int]] = []
    pulled = pull(NAME, as_is=True, progress=lambda done, total: seen.append((done, total)))
    assert (pulled.name, pulled.source, pulled.revision) == ("tiny", NAME, hubs.COMMIT)
    assert Path(pulled.path).read_bytes() == model
    assert pulled.sha256 == hub.digests[FILE]
    assert seen[0] == (0, len(model)) and seen[-1] == (len(model), len(model))
    assert [each.name for each in library.pulled()] == ["tiny"]
    assert sorted(os.listdir(os.path.dirname(pulled.path))) == [".lock", "pull.json", FILE]
    for name in ("tiny", NAME, pulled.path):
        assert open_checkpoint(name).path == pulled.path
    with edge.load("tiny", ctx=64) as engine:
        assert engine.path == pulled.path
    assert library.remove("tiny") > len(model)
    assert library.pulled() == []
    with pytest.raises(ModelNotFound):
        library.remove("tiny")


def test_a_copied_models_folder_is_used(
    hub: hubs.Hub, model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a board without internet (docs/questions.md): nothing in the folder depends on where it was pulled."""
    pull(NAME, as_is=True)
    copy = tmp_path / "elsewhere" / "models"
    shutil.copytree(library.folder(), copy)
    shutil.rmtree(library.folder())
    monkeypatch.setenv("BITNET_EDGE_MODELS", str(copy))
    assert [each.name for each in library.pulled()] == ["tiny"]
    path = open_checkpoint("tiny").path
    assert path.startswith(f"{copy}{os.sep}") and Path(path).read_bytes() == model


def test_a_second_pull_downloads_nothing(hub: hubs.Hub) -> None:
    pull(NAME, as_is=True)
    hub.requests.clear()
    pull(NAME, as_is=True)
    assert hub.requests == []
    with pytest.raises(UsageError, match="taken"):
        pull("hf:owner/name", name="tiny")


def test_the_token_goes_to_the_hub_and_not_to_the_store(hub: hubs.Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "secret"
    with pytest.raises(EdgeError, match="HF_TOKEN"):
        pull(NAME)
    monkeypatch.setenv("HF_TOKEN", "secret")
    pull(NAME, as_is=True)
    sent = {host: {"secret" in str(headers) for where, _, headers in hub.requests if where == host and headers}
            for host in ("hub", "store")}
    assert sent["store"] == {False} and True in sent["hub"]


def test_the_token_follows_a_repository_to_its_new_name_but_to_no_other_host(
    hub: hubs.Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    hub.token = "secret"

    def tokens(where: str) -> set[bool]:
        return {"secret" in str(headers) for host, _, headers in hub.requests if host == where}

    for there in ("", hub.url):  # as the hub writes it, and whole
        hub.renamed = ("owner/former", there)
        pull(f"hf:owner/former/{FILE}", as_is=True)
        assert tokens("hub") == {True} and tokens("store") == {False}
        library.remove("tiny")
        hub.requests.clear()
    for elsewhere in (hub.store, hub.url.replace("127.0.0.1", "localhost")):
        hub.renamed = ("owner/former", elsewhere)
        with pytest.raises(EdgeError, match=f"{urlsplit(elsewhere).netloc} answered 401"):  # no advice about the token
            pull(f"hf:owner/former/{FILE}")
    assert tokens("store") == {False} and [headers.get("Authorization") for _, _, headers in hub.requests][-1] is None


@pytest.mark.parametrize("address", [
    "http://[bad", "http://127.0.0.1:x", "ftp://127.0.0.1", "//#", "http://a b", "http://\xff"])
def test_redirects_to_nowhere_are_one_line(hub: hubs.Hub, address: str) -> None:
    hub.renamed = ("owner/former", address)
    with pytest.raises(EdgeError) as refused:
        pull(f"hf:owner/former/{FILE}", hub=patient([]))
    assert "\n" not in str(refused.value) and "127.0.0.1" in str(refused.value)


def test_a_cut_connection_goes_on_where_it_stopped(hub: hubs.Hub, model: bytes) -> None:
    hub.cuts = [10_000, 0, 5_000]
    waited: list[float] = []
    pulled = pull(NAME, as_is=True, hub=patient(waited))
    assert Path(pulled.path).read_bytes() == model and len(waited) == 3
    asked = [headers.get("Range") for where, _, headers in hub.requests if where == "store"]
    assert asked[0] is None and all(asked[1:]), asked
    assert int(asked[1].removeprefix("bytes=").rstrip("-")) > 0


def test_a_killed_pull_goes_on_where_it_stopped(hub: hubs.Hub, model: bytes, tmp_path: Path) -> None:
    hub.cuts = [8192]
    code = "import sys, time\nfrom edge.tools import pull as p\np.BLOCK = 1024\n" \
           "def wait(_):\n    print('waiting', flush=True)\n    time.sleep(60)\n" \
           "p.pull(sys.argv[1], as_is=True, hub=p.Hub(wait=wait))"
    child = subprocess.Popen([sys.executable, "-c", code, NAME], cwd=ROOT, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"waiting\n"
    child.send_signal(signal.SIGKILL)
    child.wait(300)
    child.stdout.close()
    part = tmp_path / "models" / "tiny" / f"{FILE}.part"
    kept = part.stat().st_size
    assert 0 < kept <= 8192 and library.pulled() == []
    hub.requests.clear()
    assert Path(pull(NAME, as_is=True).path).read_bytes() == model
    assert [h.get("Range") for w, _, h in hub.requests if w == "store"] == [f"bytes={kept}-"]


def test_a_part_of_another_content_is_not_gone_on_with(hub: hubs.Hub, model: bytes, tmp_path: Path) -> None:
    place = tmp_path / "models" / "tiny"
    place.mkdir(parents=True)
    (place / f"{FILE}.part").write_bytes(b"x" * 5000)
    (place / f"{FILE}.part.json").write_text(json.dumps({"sha256": "0" * 64, "nbytes": 9, "commit": None}))
    assert Path(pull(NAME, as_is=True).path).read_bytes() == model


def test_a_store_without_ranges_starts_again(hub: hubs.Hub, model: bytes) -> None:
    hub.ranges, hub.cuts = False, [10_000]
    assert Path(pull(NAME, as_is=True, hub=patient([])).path).read_bytes() == model


def test_a_busy_hub_is_waited_for_as_it_says(hub: hubs.Hub) -> None:
    hub.statuses = [429, 503]
    waited: list[float] = []
    pull(NAME, as_is=True, hub=patient(waited))
    assert waited == [7.0, 2.0]
    library.remove("tiny")
    hub.statuses, hub.retry_after = [429] * 50, "86400"
    waited.clear()
    with pytest.raises(EdgeError, match="429"):
        pull(NAME, hub=patient(waited))
    assert len(waited) < pulling.TRIES and max(waited) <= pulling.WAIT


@pytest.mark.parametrize(("status", "token", "kind", "text"), [  # as huggingface.co answers
    (401, "", EdgeError, r"check the name; if it is right, accept the terms at \S+/owner/name and set HF_TOKEN"),
    (401, "x", EdgeError, "HF_TOKEN is not valid"),
    (403, "", EdgeError, r"accept the terms at \S+/owner/name and set HF_TOKEN"),
    (403, "x", EdgeError, r"accept the terms at \S+/owner/name with the account of HF_TOKEN"),
    (404, "", ModelNotFound, "no such repository, revision or file$"),
    (404, "x", ModelNotFound, "no such repository, revision or file, or the account of HF_TOKEN may not see it"),
    (500, "", EdgeError, "500"),
])
def test_refusals_are_one_line(
    hub: hubs.Hub, status: int, token: str, kind: type[EdgeError], text: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    hub.statuses = [status] * 20
    with pytest.raises(kind, match=text) as refused:
        pull(NAME, hub=patient([]))
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "models").exists()


def test_a_wrong_hash_is_never_a_model(hub: hubs.Hub, tmp_path: Path) -> None:
    hub.digests[FILE] = "f" * 64
    with pytest.raises(InvalidFile, match="SHA-256"):
        pull(NAME)
    assert library.pulled() == [] and os.listdir(tmp_path / "models") == []


def test_a_hub_that_stays_away(hub: hubs.Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.cuts = [0] * 50
    with pytest.raises(EdgeError, match="cannot be reached"):
        pull(NAME, hub=patient([]))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(EdgeError, match=r"^http://127.0.0.1:9 cannot be reached \(.*-m FILE$"):
        pull(NAME, hub=patient([]))
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    monkeypatch.setenv("http_proxy", "http://user:secret@127.0.0.1:9")
    with pytest.raises(EdgeError, match=r"cannot be reached through the proxy 127.0.0.1 \(") as refused:
        pull(NAME, hub=patient([]))
    assert "secret" not in str(refused.value) and "\n" not in str(refused.value)
    monkeypatch.setenv("HF_ENDPOINT", "gopher://x")
    with pytest.raises(UsageError, match="HF_ENDPOINT"):
        pull(NAME)


def test_too_little_room_is_said_before(hub: hubs.Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    with pytest.raises(EdgeError, match="not enough space"):
        pull(NAME)
    assert not [path for where, path, _ in hub.requests if where == "store"]


def test_a_disk_that_fills_up_keeps_what_it_has(hub: hubs.Hub, tmp_path: Path) -> None:
    code = "import resource, sys\nfrom edge.tools import pull as p\np.BLOCK=1024\n" \
           "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n" \
           "try:\n    p.pull(sys.argv[1])\nexcept p.EdgeError as e:\n    print(e)"
    assert "the disk is full" in in_python(code, NAME)
    assert 0 < (tmp_path / "models" / "tiny" / f"{FILE}.part").stat().st_size <= 20000


def test_one_pull_at_a_time(hub: hubs.Hub, tmp_path: Path) -> None:
    place = tmp_path / "models" / "tiny"
    place.mkdir(parents=True)
    with library.alone(str(place), "tiny"):
        with pytest.raises(Busy):
            pull(NAME)
        with pytest.raises(Busy, match="tiny is being pulled"):
            library.remove("tiny")


def test_a_file_that_was_cut_is_pulled_again(hub: hubs.Hub) -> None:
    pulled = pull(NAME)
    os.truncate(pulled.path, 8192)
    said: list[str] = []
    assert pull(NAME, note=said.append) == pulled and os.path.getsize(pulled.path) == pulled.nbytes
    assert said[0] == f"{pulled.path} is damaged; it is pulled again"


def test_a_file_that_cannot_be_opened_is_said_and_kept(hub: hubs.Hub) -> None:
    hub.files["bad.gguf"] = b"GGUF but not really" * 100
    hub.digests["bad.gguf"] = hashlib.sha256(hub.files["bad.gguf"]).hexdigest()
    with pytest.raises(InvalidFile, match="bitnet-edge rm bad"):
        pull("hf:owner/name/bad.gguf")
    assert library.pulled() == [] and library.remove("bad") > 1000


def test_which_file_is_meant(hub: hubs.Hub) -> None:
    pulling.choose(pulling.repository("a/b"), [pulling.Remote("x.gguf", 1, None)])
    with pytest.raises(UsageError, match="2 GGUF files"):
        pulling.choose(pulling.repository("a/b"), [pulling.Remote(f"{x}.gguf", 1, None) for x in "xy"])
    with pytest.raises(ModelNotFound, match=r"it has x\.gguf"):
        pulling.choose(pulling.repository("a/b", "z.gguf"), [pulling.Remote("x.gguf", 1, None)])
    with pytest.raises(UsageError, match=r"README\.md: is not a GGUF file; it has x\.gguf"):
        files = [pulling.Remote(name, 1, None) for name in ("x.gguf", "README.md")]
        pulling.choose(pulling.repository("a/b", "README.md"), files)
    with pytest.raises(UsageError, match="hf:a/b pulls the whole model"):
        pulling.choose(pulling.repository("a/b", "w.safetensors"), [pulling.Remote("w.safetensors", 1, None)])
    with pytest.raises(ModelNotFound, match="neither"):
        pulling.choose(pulling.repository("a/b"), [pulling.Remote("x.bin", 1, None)])
    names = ("config.json", "model.safetensors", "tokenizer.model", "a.bin")
    folder = [pulling.Remote(name, 1, None) for name in names]
    assert pulling.choose(pulling.repository("a/b"), folder) == folder[:3]
    parts = [pulling.Remote(f"m-0000{i}-of-00002.gguf", 1, None) for i in (1, 2)]
    assert pulling.choose(pulling.repository("a/b", parts[0].path), parts) == parts


def test_files_that_were_replaced(hub: hubs.Hub, model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best file of a known model that is there is taken; where none is, one line names what is."""
    others = ("X-Q2_0_g64.gguf", "X-Q2_0.gguf")
    known = Source("bonsai-x", "owner/name", "X-PQ2_0.gguf", 1, "MIT", "chat", others=others)
    monkeypatch.setitem(KNOWN, "bonsai-x", known)
    for there in ("X-Q2_0.gguf", "X-Q2_0_g64.gguf", "X-PQ2_0.gguf"):  # each time a better one, too
        hub.files[there], hub.digests[there] = model, hub.digests[FILE]
        pulled = pull("bonsai-x", as_is=True, force=True)
        assert pulled.source == f"hf:owner/name/{there}" and os.path.basename(pulled.path) == there
        assert pull("bonsai-x").source == pulled.source, "what an older list took is kept"
    library.remove("bonsai-x")
    hub.files = dict.fromkeys((*(f"{i}.gguf" for i in range(9)), "new/X-PQ2_0.gguf", "Y-PQ2_0.gguf"), model)
    hub.digests = dict.fromkeys(hub.files, hub.digests[FILE])
    with pytest.raises(ModelNotFound) as gone:
        pull("bonsai-x")
    assert str(gone.value).startswith("hf:owner/name/X-PQ2_0.gguf: no such file there; it has Y-PQ2_0.gguf, new/X-PQ")
    assert str(gone.value).endswith(" and 5 more") and "404" not in str(gone.value)


@pytest.mark.parametrize("text", [
    "hf:owner", "hf:../name/x.gguf", "hf:owner/..@v1", "hf:owner/name/../x", "hf:o/n//x", "hf:o/n@a b/x.gguf"])
def test_names_that_cannot_be(text: str) -> None:
    with pytest.raises(UsageError):
        pulling.parse(text)


@pytest.mark.parametrize(("text", "meant"), [
    ("owner/name", "hf:owner/name"),
    ("hf:owner/name@v1/a/m.gguf", "hf:owner/name@v1/a/m.gguf"),
    ("https://huggingface.co/owner/name", "hf:owner/name"),
    ("https://huggingface.co/owner/name/tree/main", "hf:owner/name"),
    ("https://huggingface.co/owner/name/resolve/main/a/m.gguf?download=true", "hf:owner/name/a/m.gguf"),
    ("https://huggingface.co/owner/name/blob/v1/m.gguf", "hf:owner/name@v1/m.gguf"),
])
def test_addresses_as_people_copy_them(text: str, meant: str) -> None:
    assert str(pulling.parse(text)) == meant
    for other in (f"{text}/x/" if text.startswith("owner") else text.replace("hugging", "other"), "github.com/a/b"):
        if not other.startswith("hf:"):
            with pytest.raises(ModelNotFound, match="for others use hf:owner/name"):
                pulling.parse(other)


def test_known_names() -> None:
    assert pulling.parse("bonsai-1.7b").file == "Ternary-Bonsai-1.7B-PQ2_0.gguf"
    with pytest.raises(ModelNotFound, match="did you mean"):
        pulling.parse("bonsai-17b")
    with pytest.raises(ModelNotFound, match="bitnet-edge pull bonsai-1.7b"):
        open_checkpoint("bonsai-1.7b")
    for name, like in (("bonsai", "bonsai-1.7b or bonsai-4b or bonsai-8b"), ("Bonsai-2B", "bonsai-"),
                       ("falcon3", "falcon3-1b")):
        with pytest.raises(ModelNotFound, match=f"neither a file nor a pulled model; did you mean .*{like}"):
            open_checkpoint(name)
    with pytest.raises(ModelNotFound, match="'nonsense' is neither a file nor a pulled model; bitnet-edge list"):
        open_checkpoint("nonsense")
    for name in ("bonsai.gguf", "a/bonsai"):
        with pytest.raises(ModelNotFound, match="no such file or directory$"):
            open_checkpoint(name)
    for name, known in KNOWN.items():  # of groups of 128 only files whose type says so, but as the last resort
        if name.startswith(("bonsai-", "bonsai2-")) and "1bit" not in name:
            plain = known.file.replace("-PQ2_0", "-Q2_0")
            assert known.file.endswith("-PQ2_0.gguf") and known.others[-1] == plain != known.others[0], name
    assert all(each.licence and each.nbytes > 9e7 and each.about for each in KNOWN.values())


def test_a_file_with_a_slow_start_is_converted_once(hub: hubs.Hub, model: bytes) -> None:
    asked: list[str] = []
    pulled = pull(NAME, note=asked.append)
    checkpoint = open_checkpoint("tiny")
    assert pulled.converted == bool(asked) and pulling.starts_at_once(checkpoint)
    assert open_checkpoint("tiny").tensors[checkpoint.head].type == "Q8_0"
    assert not os.path.exists(os.path.join(os.path.dirname(pulled.path), FILE))
    assert pulled.sha256 == hub.digests[FILE]


def test_a_folder_is_converted_once(hub: hubs.Hub, tmp_path: Path) -> None:
    """A folder would be made ready at every start.  It stays with --as-is, or if it cannot be converted."""
    from tests.formats.test_family_oracles import folder

    made = folder(tmp_path / "ternary floats", "qwen3_yarn")
    hub.files = {name: Path(made, name).read_bytes() for name in ("config.json", "model.safetensors")}
    hub.digests = {name: hashlib.sha256(data).hexdigest() for name, data in hub.files.items()}
    kept = pull("hf:owner/name", name="kept", as_is=True)
    assert not kept.converted and os.path.isdir(kept.path)
    pulled = pull("hf:owner/name", name="made")
    assert pulled.converted and sorted(os.listdir(os.path.dirname(pulled.path))) == [
        ".lock", "made-fast.gguf", "pull.json"]
    checkpoint = open_checkpoint("made")
    assert pulling.starts_at_once(checkpoint) and checkpoint.path == pulled.path
    assert checkpoint.config.layers == open_checkpoint("kept").config.layers


def test_scales_per_group_are_stored_as_panels(hub: hubs.Hub, tmp_path: Path) -> None:
    """Rows of the published types would be copied at every start; an interrupted pull keeps the download."""
    source = tmp_path / "g.gguf"
    make_model.make(source, "tiny-qwen3", "Q2_0", "Q2_0")
    hub.files = {"g.gguf": source.read_bytes()}
    hub.digests = {"g.gguf": hashlib.sha256(source.read_bytes()).hexdigest()}

    def interrupt(said: str) -> None:
        if said == pulling.CONVERTING:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull("hf:owner/name/g.gguf", note=interrupt)
    place = tmp_path / "models" / "g"
    assert library.pulled() == [] and "g.gguf" in os.listdir(place)
    pulled = pull("hf:owner/name/g.gguf")
    checkpoint = open_checkpoint("g")
    assert pulled.converted and pulling.starts_at_once(checkpoint)
    assert sorted(os.listdir(place)) == [".lock", "g-fast.gguf", "pull.json"]
    assert {t.type for t in checkpoint.tensors.values() if len(t.shape) == 2} == {"PQ2_0_R64"}


def test_what_embed_recommends_is_pulled_and_embeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITNET_EDGE_MODELS", str(tmp_path / "models"))
    said = subprocess.run([*REAL, "embed", "-m", "demo", "--cosine", "a", "b"], capture_output=True, text=True,
                          timeout=100)
    name = re.search(r"for one that is: bitnet-edge pull (\S+)$", said.stderr)
    assert name is not None, said.stderr
    known = KNOWN[name[1]]
    assert known.file is not None
    make_model.make(tmp_path / "e.gguf", "tiny-embedding", "I2_S", "F16")
    with hubs.serving({known.file: (tmp_path / "e.gguf").read_bytes()}, known.repo) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        pulled = pull(known.name)
    assert pulled.source == f"hf:{known.repo}/{known.file}" and pulled.licence == "MIT" and pulled.converted
    done = subprocess.run([*REAL, "embed", "-m", known.name, "--cosine", "a", "a"], capture_output=True, text=True,
                          timeout=100)
    assert done.stdout == "1.000000\n" and "little use" not in done.stderr, done


def test_what_cannot_be_converted_stays(hub: hubs.Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise UsageError("has 4 scales and I2_S holds one")

    monkeypatch.setattr(convert, "convert", refuse)
    pulled = pull(NAME)
    assert not pulled.converted and pulled.path.endswith(FILE) and library.find("tiny") == pulled


def test_a_file_that_is_cut_while_it_is_converted_is_no_model(hub: hubs.Hub, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir(exist_ok=True)

    def cut(said: str) -> None:
        if said == pulling.CONVERTING:
            os.truncate(tmp_path / "models" / "tiny" / FILE, 8192)

    with pytest.raises(InvalidFile, match="tiny.*the download is kept"):
        pull(NAME, note=cut)
    assert library.pulled() == []


def test_a_damaged_record_is_not_a_model(hub: hubs.Hub, tmp_path: Path) -> None:
    pull(NAME, as_is=True)
    record = tmp_path / "models" / "tiny" / "pull.json"
    for text in ("", "{}", "[]", '{"file": 3}', '{"file": "../../x", "x": 1}'):
        record.write_text(text)
        assert library.find("tiny") is None and library.pulled() == []


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "edge", *arguments], cwd=ROOT, capture_output=True, text=True,
                          timeout=300)


def test_the_commands(hub: hubs.Hub) -> None:
    done = command("pull", NAME, "--name", "mine", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["name"] == "mine", done
    assert done.stderr == "try: bitnet-edge chat -m mine\n" or "mine" in done.stderr or done.stderr == ""
    assert command("list").stdout.startswith("mine ") and "download" not in command("list").stdout
    assert re.search(r"^bonsai-1\.7b +463 MB +648 MB +53  chat, thinking; Apache-2\.0$",
                     command("list", "--all").stdout, re.MULTILINE)
    assert [each["name"] for each in json.loads(command("list", "--json").stdout)] == ["mine"]
    done = command("run", "-m", "mine", "-n", "3", "--raw", "hello")
    assert done.returncode == 0, done
    done = command("rm", "mine", "other", "third")
    assert done.returncode == 3 and "1 model," in done.stderr and done.stderr.count("no model named") == 2
    assert command("list").stdout == ""
    done = command("pull", "hf:owner/name/absent.gguf")
    assert done.returncode == 3 and done.stderr.count("\n") == 1
    done = command("pull", "bonsai-1.7b", "--name", "../x")  # no download is announced
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "'../x' cannot be the name" in done.stderr


def test_list_offers_chat_models_that_fit_the_best_first(hub: hubs.Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge.tools.fit.available_memory", lambda: 1_000_000_000)
    shown = CliRunner().invoke(cli, ["list"])
    names = [line.split()[0] for line in shown.stderr.splitlines()[3:]]
    assert names[:4] == ["bitcpm-1b", "bonsai-1.7b", "bitcpm-0.5b", "bonsai-1bit-1.7b"] and "bonsai-4b" not in names
    assert not {"bitnet-large", "maple", "trilm-3.9b", "hy-mt2-1.8b", "bonsai-27b", "bitnet-embedding-0.6b"} & {*names}
    assert shown.stdout == "" and CliRunner().invoke(cli, ["list", "-q"]).stderr == ""
    everything = [line.split()[0] for line in CliRunner().invoke(cli, ["list", "--all"]).stdout.splitlines()[1:]]
    assert everything == list(KNOWN)


def test_models_of_four_levels_are_refused_by_name() -> None:
    for name in ("hf:AngelSlim/HY-1.8B-2Bit-GGUF", "tencent/Hy-MT2-1.8B-2Bit-GGUF", "hy-1.8b-2bit"):
        with pytest.raises(UsageError, match="four levels .* not ternary; use bitcpm-1b"):
            pulling.parse(name)


# ---- the first model -------------------------------------------------------------------------------------------------


@pytest.fixture
def first(hub: hubs.Hub, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two models to begin with; what the check says of them is for the test to decide.  Returns what is said."""
    for name, file in (("one", FILE), ("two", "two.gguf")):
        monkeypatch.setitem(KNOWN, name, Source(name, "owner/name", file, len(hub.files[FILE]), "MIT", "chat"))
        monkeypatch.setitem(SHAPES, name, SHAPES["smollm2-135m"])
    hub.files["two.gguf"] = hub.files[FILE]
    hub.digests["two.gguf"] = hub.digests[FILE]
    monkeypatch.setattr(pulling, "FIRST", ("one", "two"))
    monkeypatch.setattr("edge.model.interpretation.GARBLED", 1e9)
    return []


def test_the_first_model_comes_from_the_hub(hub: hubs.Hub, first: list[str]) -> None:
    assert pulling.pull_first(note=first.append).name == "one" and [each.name for each in library.pulled()] == ["one"]
    assert first[0] == f"one: a download of {human(len(hub.files[FILE]))} from owner/name; licence: MIT"


def test_the_next_one_is_taken_and_a_line_says_why(
    hub: hubs.Hub, first: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(why: str) -> None:
        first.clear()
        assert pulling.pull_first(note=first.append).name == "two"
        said = next(line for line in first if line.endswith("; two is taken instead"))
        assert re.search(why, said), first
        assert [each.name for each in library.pulled()] == ["two"]
        library.remove("two")

    data, known = hub.files.pop(FILE), KNOWN["one"]
    taken("hub .* has no .*tiny.gguf|tiny.gguf")  # the file is gone
    hub.files[FILE] = data
    monkeypatch.setitem(KNOWN, "one", replace(known, sha256="0" * 64))
    taken("is not the file that was published")
    monkeypatch.setitem(KNOWN, "one", known)
    with monkeypatch.context() as patch:  # the model reads no English
        patch.setattr("edge.model.interpretation.garbled", lambda checkpoint: (
            "a short text scores 9.1 nats" if os.path.basename(os.path.dirname(checkpoint.path)) == "one" else ""))
        taken("^one: a short text scores 9.1 nats; two")
    with monkeypatch.context() as patch:  # too large for this machine
        patch.setitem(SHAPES, "one", SHAPES["bonsai-27b"])
        patch.setattr("edge.tools.fit.available_memory", lambda: 1_000_000_000)
        taken("memory")
    hub.files[FILE] = b"GGUF" + bytes(100)  # it does not load
    hub.digests[FILE] = hashlib.sha256(hub.files[FILE]).hexdigest()
    taken("tiny.gguf")


def test_a_hub_that_is_away_is_asked_once(hub: hubs.Hub, first: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    asked: list[str] = []
    opened = pulling.Hub.open
    monkeypatch.setattr(pulling.Hub, "open", lambda self, path, *more: asked.append(path) or opened(self, path, *more))
    with pytest.raises(EdgeError, match="127.0.0.1:9 cannot be reached"):
        pulling.pull_first(note=first.append)
    assert len(asked) == 1 and "one: the hub cannot be reached; two is taken instead" in first


def test_ctrl_c_keeps_what_was_read(hub: hubs.Hub, tmp_path: Path) -> None:
    hub.cuts = [8192] + [0] * 100
    child = subprocess.Popen([sys.executable, "-m", "edge", "pull", NAME], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    bound = time.monotonic() + 300
    while sum(where == "store" for where, _, _ in hub.requests) < 2 and time.monotonic() < bound:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=300)
    assert child.returncode == 130 and err.endswith("\nstopped; the same command goes on from here\n"), err
    assert (tmp_path / "models" / "tiny" / f"{FILE}.part").stat().st_size > 0
