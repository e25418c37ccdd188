"""``bitnet-edge serve``: an HTTP server with the APIs of OpenAI and Ollama and a web page."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from edge.cli import options
from edge.cli.command import Command, Path, Text, heading, option
from edge.cli.output import Output
from edge.errors import Busy, EdgeError, UsageError
from edge.settings import SETTINGS

if TYPE_CHECKING:
    from edge.serve.service import Service

SPARE = 512  # connections in addition to those that get an answer; each takes some kilobytes
OWN_FILES = 32  # that the program itself opens: the model, what it stores, the loop

#: options that --embeddings does not honour, and refuses where they are typed: there are no answers
OF_ANSWERS = ("parallel", "state", "system", "system_file", "lock_system", "think", "max_tokens", "temperature", "seed",
              "timeout", "stop")
#: options that --kiosk refuses -> why
NOT_IN_KIOSKS = {
    **dict.fromkeys(("system", "system_file"), "FILE has the instructions"),
    **dict.fromkeys(("state", "kv_offload"), "nothing of a visitor is written to disk"),
    "api_key": "its visitors have none",
    "embeddings": "there are no answers then"}

EPILOG = """\
Examples:
  bitnet-edge serve -m bonsai-1.7b                 # page and APIs at http://127.0.0.1:8080
  bitnet-edge serve -m bonsai-1.7b --parallel 4 --host 0.0.0.0 --api-key "$KEY"
"""

DETAILS = """\
Programs: base URL http://127.0.0.1:8080/v1 for OpenAI clients, http://127.0.0.1:8080 for Ollama's.
docs/serve.md shows Home Assistant, Python and curl, docs/kiosk.md systemd.
"""


@click.command(
    cls=Command,
    help="Serve the model over HTTP: a chat page, and the APIs of OpenAI and Ollama.",
    epilog=EPILOG,
    details=DETAILS,
)
@heading(
    "Service",
    option("--host", type=Text(), metavar="ADDRESS", default="127.0.0.1",
           help="Address to listen on (default 127.0.0.1: this machine only)."),
    option("--port", type=click.IntRange(0, 65535), metavar="N", default=8080,
           help="Port (default 8080; 0: any free one)."),
    option("--socket", "socket_path", type=Path(), metavar="PATH", help="Listen on a Unix socket instead."),
    option("--api-key", type=Text(), metavar="KEY", help="Key that clients must send (Authorization: Bearer KEY). "
           "Prefer the variable BITNET_EDGE_API_KEY: other users of this machine can see command lines."),
    option("--insecure", is_flag=True, help="Allow an address that others can reach, without --api-key."),
    option("--host-name", "host_names", type=Text(), multiple=True, metavar="NAME", allow_from_autoenv=False,
           help="Also accept requests under this name, such as that of a reverse proxy. Addresses and localhost are "
           "always accepted."),
    option("--cors", type=Text(), multiple=True, metavar="ORIGIN", allow_from_autoenv=False,
           help="Let web pages from this address (https://example.org) ask; *: from all. Default: none."),
    options.setting("parallel", default=1, help="Number of answers at the same time (default 1). Each takes the memory "
                    "of a context."),
    option("--state", type=Path(file_okay=False), metavar="DIR", help="Keep conversations in DIR, so that after "
           "a restart they continue without being read again."),
    option("--name", type=Text(), metavar="NAME", help="Model name that clients see. Default: the name "
           "in the file."),
    option("--embeddings", is_flag=True, help="Serve /v1/embeddings only; for embedding models."),
    option("--kiosk", type=Path(dir_okay=False), metavar="FILE", help="Serve a page for visitors, as FILE "
           "(TOML) describes it: title, instructions for the model, limits of questions and answers (docs/kiosk.md). "
           "Includes --lock-system. What a visitor wrote is deleted after a minute without use, or the time in FILE."),
)
@options.system_options
@heading(
    "Prompt",
    option("--lock-system", is_flag=True, help="Refuse requests that would replace or bypass the system prompt: those "
           "with system messages, functions (tools), raw prompts or an answer to continue. Without this option, a "
           "client's system message replaces that of --system."),
)
@options.model_option
@options.model_options
@options.kv_options
@options.sampling_options
@options.settings("file", "model", "context", "answer", "sampling", "typing", "service")
@options.output_options
@click.pass_context
def serve(ctx: click.Context, **flags: Any) -> int:
    """Run the command: open the port, load the model, answer until a signal ends the server."""
    from edge.amounts import parse_size
    from edge.serve.addresses import unix_socket
    from edge.serve.kiosk import Kiosk
    from edge.serve.service import Service, Settings

    out = ctx.ensure_object(Output)
    rivals = dict.fromkeys(OF_ANSWERS, "is for answers, and --embeddings makes none") if flags["embeddings"] else {}
    if flags["socket_path"]:
        rivals |= dict.fromkeys(("host", "port"), "cannot be combined with --socket")
    for name, why in rivals.items():
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(why, argument=name, hint="leave one of them out")
    kiosk = None
    if flags["kiosk"] is not None:
        for name, why in NOT_IN_KIOSKS.items():
            if flags.get(name):
                raise UsageError(f"cannot be combined with --kiosk: {why}", argument=name)
        kiosk = Kiosk.read(flags["kiosk"])
        flags["system"] = kiosk.instructions
    system = options.system_prompt(flags)
    check_exposure(flags["host"], flags["api_key"], flags["insecure"], flags["socket_path"])
    flags.setdefault("overflow", "stop")  # a client learns that it is too long; nothing is cut silently
    defaults = {**options.ask_arguments(flags), "timeout": flags["timeout"]}
    for name in ("metrics", "queue", "state_size", "read_ahead"):
        flags.setdefault(name, SETTINGS[name].default)
    service = Service(Settings(
        name=flags["name"], **admitted(flags), metrics=flags["metrics"], parallel=flags["parallel"],
        queue=flags["queue"], state=flags["state"],
        state_bytes=parse_size(flags["state_size"], "state_size") or 0, warn=out.warn,
        reads_ahead=flags["read_ahead"], defaults=defaults, system=system,
        locked=flags["lock_system"] or kiosk is not None, kiosk=kiosk,
    ))
    with ExitStack() as opened:
        if flags["socket_path"] is None:
            listening = [opened.enter_context(each) for each in listen(flags["host"], flags["port"])]
        else:
            listening = [opened.enter_context(unix_socket(flags["socket_path"]))]
        return _run(out, flags, service, listening)


def _run(out: Output, flags: dict[str, Any], service: Service, listening: list[socket.socket]) -> int:
    """Load the model while the port is already open, and serve."""
    import asyncio
    import errno
    import threading
    from functools import cache, partial

    import uvicorn

    from edge.cli.texts import embedder
    from edge.machine.linux import open_files
    from edge.serve.addresses import BACKLOG
    from edge.serve.app import application
    from edge.serve.calls import SPARE_CONTEXTS
    from edge.serve.connections import Connection
    from edge.serve.exchange import RESERVE
    from edge.serve.notify import Notifier
    from edge.threads import start

    notifier = Notifier()
    ended = threading.Event()
    failure: list[BaseException] = []
    feeding: list[asyncio.Future[None]] = []

    def ready(model: str) -> None:
        for each in listening:
            each.listen(BACKLOG)  # asyncio still accepts as many at once as it was told
        name = f"{service.settings.name}: " if service.settings.name else ""
        status = f"{name}{model} answers at {addresses_of(listening[0], flags['host'])}"
        notifier.send(f"READY=1\nSTATUS={status}")
        out.info(status)
        ended.wait()

    def load() -> None:
        try:
            if flags["embeddings"]:
                path = options.choice(out, flags, named=True).path
                for each in options.REQUESTS:
                    import_module(each)
                service.open_embedder(found := embedder(out, flags, path, reserve=RESERVE))
                ready(options.title(found.config))
                return
            with options.loaded(out, flags, named=True, lasting=options.REQUESTS, reserve=RESERVE,
                                spare_contexts=SPARE_CONTEXTS) as engine:
                service.settings.defaults = options.advised(service.settings.defaults, flags, engine)
                service.open(engine)
                ready(options.title(engine.config))
        except BaseException as error:
            failure.append(error)
            service.failure = str(error)
            server.should_exit = True

    @cache  # once is enough
    def full() -> None:
        out.warn(f"all {most} connections are in use, further ones are closed; the limit of open files (ulimit -Hn, "
                 f"LimitNOFILE=) is {files}")

    def on_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if getattr(context.get("exception"), "errno", None) in (errno.EMFILE, errno.ENFILE):  # of accept, very often
            full()
        else:
            loop.default_exception_handler(context)

    def begin() -> None:
        asyncio.get_running_loop().set_exception_handler(on_error)
        fed = notifier.feed(lambda: service.trouble() is None)
        feeding.append(asyncio.ensure_future(fed))  # asyncio itself does not keep it
        try:
            start(threading.Thread(target=load, name="loading", daemon=True))
        except EdgeError as error:
            failure.append(error)
            server.should_exit = True

    files, wanted = open_files(), flags["parallel"] + flags["queue"] + SPARE
    room = max(8, files - OWN_FILES)
    most = min(2 * wanted, room // 2)  # above ``wanted`` they are told to come again, with status 503
    config = uvicorn.Config(
        application(service, begin), log_level="critical", access_log=False, lifespan="on", ws="none",
        http=partial(Connection, most=most, full=full),  # type: ignore[arg-type]
        loop="asyncio", timeout_keep_alive=30, server_header=False, limit_concurrency=wanted + 1,
        backlog=min(BACKLOG, room // 8),  # asyncio accepts so many at once, before any of them can be closed
        h11_max_incomplete_event_size=1 << 16, timeout_graceful_shutdown=5,
    )

    class Server(uvicorn.Server):
        """Ends the answers before it waits for them."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            """Called by uvicorn after a signal."""
            service.stop()
            await super().shutdown(sockets)

    server = Server(config)
    try:
        server.run(sockets=listening)
    finally:
        ended.set()
        notifier.send("STOPPING=1")
    if failure:
        raise failure[0]
    return 0


def check_exposure(host: str, key: str | None, insecure: bool, socket_path: str | None) -> None:
    """Raise UsageError for an address that others can reach without a key and ``insecure``."""
    from edge.serve.addresses import is_loopback, known

    if socket_path is None and not key and not insecure and not is_loopback(host):
        if not known(host):
            raise UsageError(f"is {host!r}", argument="host", hint="no address has this name; --port sets the port")
        raise UsageError(f"--host {host} can be reached by others: use --api-key KEY, or --insecure to allow everybody")


def admitted(flags: dict[str, Any]) -> dict[str, Any]:
    """The settings ``hosts``, ``cors`` and ``api_key`` of a service.  Raises UsageError for a name that none can send.
    """
    from edge.serve.addresses import numeric, sent_name

    named = (flags["host"],) * (numeric(flags["host"]) is None)
    return {"hosts": tuple(map(sent_name, flags["host_names"] + named)), "cors": flags["cors"],
            "api_key": flags.get("api_key") or None}


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets bound to all addresses of a name, at the same port.  Raises UsageError, or Busy if the port is in use."""
    import errno

    from edge.serve.addresses import BACKLOG

    found: list[socket.socket] = []
    try:
        known = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, (name, _, *scope) in dict.fromkeys(known):
            at = (name, found[0].getsockname()[1] if found else port, *scope)
            found.append(socket.create_server(
                at, family=family, backlog=BACKLOG, dualstack_ipv6=family == socket.AF_INET6))
            found[-1].setblocking(False)
        return found
    except OSError as error:
        for each in found:
            each.close()
        if error.errno == errno.EADDRINUSE:
            raise Busy(f"another process listens on {host}:{port}; use another --port") from None
        reason = (error.strerror or str(error)).partition(" (while")[0]  # create_server() names the address again
        raise UsageError(f"cannot listen on {host}:{port}: {reason}") from None


def addresses_of(listening: socket.socket, host: str) -> str:
    """The addresses that the log shows to people; ``host``: what was typed."""
    from edge.machine.linux import addresses
    from edge.serve.addresses import numeric

    if listening.family == socket.AF_UNIX:
        return str(listening.getsockname())
    bound, port = listening.getsockname()[:2]
    hosts = [bound] if numeric(host) else [host]
    if bound in ("0.0.0.0", "::"):  # no address that a browser can open
        hosts = [each for each in addresses() if bound == "::" or ":" not in each] or ["127.0.0.1"]
    return ", ".join(f"http://{f'[{each}]' if ':' in each else each}:{port}" for each in hosts)
