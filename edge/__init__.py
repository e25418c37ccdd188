"""bitnet-edge: ternary language models on small machines.

    import edge

    with edge.load() as engine:               # the default model; edge.load("bonsai-1.7b") or a path for another
        session = engine.session(system="You are a helpful guide.")
        session.warm()                                # read the system prompt before the first guest waits
        for piece in session.ask("Where is the lift?", max_tokens=60, temperature=0):
            print(piece.text, end="", flush=True)

load         a model -> Engine; refuses if the memory plan does not fit.  load(model, ctx=, kv=, memory=, parallel=);
             without a model: the default one (bitnet-edge default), else the only pulled one, else the demo model
Engine       one model: session(system), chat(messages), load_session(path), share_prefixes(size), memory(), close()
Session      one conversation: ask(text), regen(), chat(messages), complete(prompt), choose(question, options), warm(),
             undo(), clear(), cancel(), save(path), park(path), messages, system, context.  One caller at a time; use a
             session for each guest, on as many threads as you like
Answer       what ask, chat and complete return: iterate it for pieces, or .text; .finish_reason, .usage, .timings,
             .value (of an answer with a schema), .logprobs, cancel(), close(); "with" closes it
Piece        .text, .ids, .bytes
Sampling     temperature, top_k, top_p, min_p, seed, ...; each is also an option of ask
EdgeError    base of all expected errors: a message of one line, and exit_code.  edge.errors has UsageError,
             ModelNotFound, InvalidFile, MemoryRefused, ContextFull, Busy, AnswerTimeout, UnsupportedCPU, NotBuilt
edge.aio     async for piece in edge.aio.pieces(answer)

A loop that forgets its guest, stops after ten seconds and keeps running after an error:

    with edge.load(ctx=512, system="You sell coffee and tea.") as engine:
        session = engine.session()
        session.warm()
        while True:
            try:
                question = input("> ")
                if question == "bye":
                    session.clear()                       # for the next guest; the system prompt is kept
                    continue
                answer = session.ask(question, by="sentence", max_tokens=80, timeout=10)
                for piece in answer:
                    print(piece.text, end="", flush=True)  # or speak it
                print(f" [{answer.finish_reason}]")
            except edge.EdgeError as error:
                print(error)
            except (EOFError, KeyboardInterrupt):
                break

docs/python.md is a guide; edge.Session.ask explains the options of an answer.

Importing this package loads nothing: these names are imported when they are first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know the name; importing typing itself costs milliseconds on a Pi

__version__ = "0.1.0"

__all__ = [
    "Answer", "EdgeError", "Engine", "Piece", "Sampling", "Session", "__version__", "load",
]

_HOME = {
    "Answer": "edge.session.answer",
    "EdgeError": "edge.errors",
    "Engine": "edge.engine",
    "Piece": "edge.session.stream",
    "Sampling": "edge.sampling",
    "Session": "edge.session.session",
    "load": "edge.loading",
}

if TYPE_CHECKING:
    from typing import Any

    from edge.engine import Engine
    from edge.errors import EdgeError
    from edge.loading import load
    from edge.sampling import Sampling
    from edge.session.answer import Answer
    from edge.session.session import Session
    from edge.session.stream import Piece


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("aio", "errors"):
        return import_module(f"edge.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'edge' has no attribute {name!r}")
    from edge.errors import needs_build

    value = getattr(needs_build(import_module)(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
