"""Models by name: the folder of pulled models, the path of a name, and which model answers where none is named.

A pulled model is a folder below :func:`folder` that holds its files and ``pull.json``, which names their origin:

    MODELS/bonsai-1.7b/Ternary-Bonsai-1.7B-PQ2_0.gguf
    MODELS/bonsai-1.7b/pull.json

``pull.json`` is written last, so a folder without it is not a model.  :mod:`edge.tools.pull` fills these folders.
``MODELS/.default`` holds the name of the default model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from edge import packed
from edge.errors import Busy, EdgeError, ModelNotFound, UsageError, check_path
from edge.files import exclusive, home, replacing

RECORD = "pull.json"
DEFAULT = ".default"
LOCK = ".lock"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


class Pulled(NamedTuple):
    """A model on this machine.  ``path``: the file or folder to load; ``sha256``: of ``file`` as it was downloaded."""

    name: str
    path: str
    source: str  # hf:owner/name/file, or pip:package==version/file
    revision: str  # commit of the repository, or version of the package
    nbytes: int
    sha256: str | None
    licence: str
    converted: bool = False  # rewritten by `convert` after the download, so that it starts faster


#: the name of the small model that ships inside the package, and the folder that it is in
DEMO = "demo"
DEMO_FOLDER = "bundled"
#: abilities of the demo model, for those who ask it about rivers
DEMO_PLAYS = "it takes orders at a coffee counter; try: A large latte, please."
#: said where the demo model answers because no other was chosen
DEMO_ANSWERS = ("no model was chosen: the demo model answers (5.8 M parameters, for tests); "
                "for a real one: bitnet-edge pull")


class Choice(NamedTuple):
    """Which model answers, and why."""

    name: str  # as -m takes it
    path: str
    why: str  # "named", "inside" (the program is a packed one), "default", "only" (the only pulled one) or "demo"


def folder() -> str:
    """The folder of pulled models: $BITNET_EDGE_MODELS, else the user's data folder (XDG_DATA_HOME)."""
    return os.path.abspath(home("BITNET_EDGE_MODELS", "XDG_DATA_HOME", "~/.local/share", "models"))


def demo() -> str:
    """The path of the model that ships inside the package.  Raises ModelNotFound."""
    place = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), DEMO_FOLDER)
    models = sorted(name for name in os.listdir(place) if name.endswith(".gguf")) if os.path.isdir(place) else ()
    if not models:
        raise ModelNotFound("this copy has no demo model; give the path of a .gguf file or a Hugging Face folder")
    return os.path.join(place, models[0])


def is_demo(path: str) -> bool:
    """True for the file of the model that ships inside the package."""
    try:
        return os.path.samefile(path, demo())
    except (ModelNotFound, OSError):
        return False


def checked_name(name: str) -> str:
    """Return ``name`` if it is a valid model name.  Raises UsageError."""
    if not NAME.fullmatch(name):
        raise UsageError(f"'{name[:60]}' cannot be the name of a model; use small letters, digits, '.', '-' and '_'")
    if name == DEMO:
        raise UsageError(f"'{name}' is the name of the model that ships with the program; use another name")
    return name


def find(name: str) -> Pulled | None:
    """The pulled model of that name; None if there is none, or its record cannot be read."""
    if not NAME.fullmatch(name):
        return None
    import json

    place = os.path.join(folder(), name)
    try:
        with open(os.path.join(place, RECORD), "rb") as file:
            record = json.loads(file.read(1 << 20))
        inside = record.pop("file")
        path = place if inside is None else os.path.join(place, os.path.basename(inside))
        return Pulled(name=name, path=path, **record)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def pulled() -> list[Pulled]:
    """All models on this machine, by name."""
    try:
        names = sorted(os.listdir(folder()))
    except OSError:
        return []
    return [model for name in names if (model := find(name)) is not None]


def short(name: str) -> str:
    """The name here of a model by the one under which it was published, or that others write as ``smollm2:135m`` or
    ``NAME:latest``; any other name in small letters.
    """
    from edge.registry.known import KNOWN
    from edge.registry.shapes import ALIASES, shape_of

    plain = name.lower().removesuffix(":latest").replace(":", "-")
    shape = ALIASES.get(plain)
    return next((each for each in KNOWN if shape and shape_of(each) == shape and plain not in KNOWN), plain)


def default() -> str | None:
    """The name of the default model; None if none is set."""
    try:
        with open(os.path.join(folder(), DEFAULT), encoding="utf-8", errors="replace") as file:
            name = file.read(200).strip()
    except OSError:
        return None
    return name if NAME.fullmatch(name) else None


def set_default(name: str) -> None:
    """Make a pulled model, or the demo model, the one that answers where none is named.  Raises ModelNotFound."""
    if find(name) is None:
        name = short(name)
    if name != DEMO and find(name) is None:
        from edge.registry.known import KNOWN

        if name in KNOWN:
            raise not_here(name)
        if os.sep in name or name.endswith(".gguf"):
            raise ModelNotFound(f"'{name[:60]}' is no name of a pulled model, and a file has no name here; set "
                                "BITNET_EDGE_MODEL=FILE to use one without -m")
        raise ModelNotFound(f"no model named '{name[:60]}' was pulled; bitnet-edge list shows those that were")
    os.makedirs(folder(), exist_ok=True)
    with replacing(os.path.join(folder(), DEFAULT)) as out:
        out.write(f"{name}\n".encode())


def forget_default() -> None:
    """From now on no model is the default."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(folder(), DEFAULT))


def choose(model: str | os.PathLike[str] | None = None) -> Choice:
    """The model that answers: ``model``, else that of BITNET_EDGE_MODEL, the one inside a packed program, the default,
    the only pulled one, the demo.

    Raises ModelNotFound for a name that cannot be used, or a default that is gone, and InvalidFile for a damaged packed
    program.
    """
    wanted = os.environ.get("BITNET_EDGE_MODEL") if model is None else check_path(model, "model", "a path or a name")
    if wanted:
        return Choice(wanted, resolve(wanted), "named")
    if inside := packed.own():
        return Choice(inside.path, inside.path, "inside")
    name = default()
    if name == DEMO:
        return Choice(DEMO, demo(), "default")
    if name is not None:
        found = find(name)
        if found is None:
            raise ModelNotFound(f"the default model {name} is not on this machine; use bitnet-edge pull {name}, or "
                                "bitnet-edge default NAME for another")
        return Choice(name, found.path, "default")
    models = pulled()
    if len(models) == 1:
        return Choice(models[0].name, models[0].path, "only")
    return Choice(DEMO, demo(), "demo")


def write_record(model: Pulled) -> None:
    """Write pull.json, which makes the folder of ``model`` a pulled model: the last step of a pull, atomic."""
    import json

    record: dict[str, Any] = {k: v for k, v in model._asdict().items() if k not in ("name", "path")}
    record["file"] = None if os.path.isdir(model.path) else os.path.basename(model.path)
    with replacing(os.path.join(folder(), model.name, RECORD)) as out:
        out.write(json.dumps(record, indent=1).encode())


def remove(name: str) -> int:
    """Delete a pulled model, or the remains of an interrupted pull.  Returns the number of bytes freed.

    Raises ModelNotFound, and Busy while it is being pulled.
    """
    import shutil

    place = os.path.join(folder(), name)
    if not NAME.fullmatch(name) or not os.path.isdir(place) or os.path.islink(place):
        raise ModelNotFound(f"no model named '{name[:60]}' was pulled; bitnet-edge list shows those that were")
    with alone(place, name):
        nbytes = sum(entry.stat().st_size for entry in os.scandir(place) if entry.is_file(follow_symlinks=False))
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(place, RECORD))  # first: half a model must not be found
        if default() == name:
            forget_default()
        shutil.rmtree(place)
    return nbytes


@contextmanager
def alone(place: str, name: str) -> Iterator[None]:
    """A context manager: only one process changes the folder of a model at a time.  It is made, and removed again if
    there is nothing in it that a later pull could go on with.  Raises Busy, and EdgeError if it cannot be made.
    """
    import shutil

    try:
        os.makedirs(place, exist_ok=True)
        lock = exclusive(os.path.join(place, LOCK))
    except Busy:
        raise Busy(f"{name} is being pulled by another process") from None
    except OSError as error:
        raise EdgeError(f"cannot write {place}: {error.strerror}") from None
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            if os.listdir(place) == [LOCK]:
                shutil.rmtree(place, ignore_errors=True)
        os.close(lock)


def not_here(name: str) -> ModelNotFound:
    """The error for a model that can be pulled, but was not."""
    return ModelNotFound(f"{name} is not on this machine; get it with: bitnet-edge pull {name}")


def near(name: str) -> list[str]:
    """At most three names of known and pulled models that resemble ``name``, the most similar first."""
    from difflib import get_close_matches

    from edge.registry.known import KNOWN

    names = list(dict.fromkeys([DEMO, *KNOWN, *(model.name for model in pulled())]))
    plain = name.lower()
    inside = [each for each in names if len(plain) >= 4 and plain in each]
    return inside[:3] or get_close_matches(plain, names, n=3)


def is_model(word: str) -> bool:
    """True for the name of a known or a pulled model, or the path of one."""
    from edge.registry.known import KNOWN

    if word.startswith("hf:") or word.endswith(".gguf"):
        return True
    if os.path.exists(word):
        return os.path.isdir(word) and any(each == "config.json" or each.endswith(".gguf") for each in os.listdir(word))
    name = short(word)
    return name == DEMO or name in KNOWN or bool(
        NAME.fullmatch(name) and os.path.isfile(os.path.join(folder(), name, RECORD)))


def resolve(model: str) -> str:
    """The path of a model given as a path or by name.  A path that exists takes precedence over a name.  Raises
    ModelNotFound.
    """
    model = os.path.expanduser(model)
    if os.path.exists(model):
        return model
    if model.removesuffix(":latest") == DEMO:
        return demo()
    if model.startswith("hf:"):
        for each in pulled():
            if each.source == model or each.source.rpartition("/")[0] == model:
                return each.path
        raise not_here(model)
    name = short(model)
    found = find(model.lower()) or find(name)
    if found is not None:
        return found.path
    from edge.registry.known import KNOWN

    if name in KNOWN:
        raise not_here(name)
    if "/" in model or model.endswith((".gguf", ".safetensors")):
        raise ModelNotFound(f"{model}: no such file or directory")
    like = near(name) if NAME.fullmatch(name) else []
    hint = f"did you mean {' or '.join(like)}?" if like else "bitnet-edge list shows the pulled models"
    raise ModelNotFound(f"'{model}' is neither a file nor a pulled model; {hint}")
