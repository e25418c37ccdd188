"""Options and commands of llama.cpp, Ollama and mlx-lm: one line says what they are called here.

:data:`HINTS` has the options and commands of those programs that are not ours; a name that means the same here is just
an option.  A model in front of the text (``ollama run MODEL "hello"``) comes after -m here.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import NoReturn

import click

from edge.errors import UsageError
from edge.settings import SETTINGS, Setting

_HINTS = (
    # options; command:option: in that command
    ("-ngl --gpu-layers --n-gpu-layers", "no GPU is used; leave it out"),
    ("-b --batch-size -ub --ubatch-size -fa --flash-attn --no-warmup --keepalive --nowordwrap --no-display-prompt "
     "--trust-remote-code", "nothing here needs it; leave it out"),
    ("--jinja --no-jinja", "the model's chat template is always used; leave it out"),
    ("-cnv --conversation -i --interactive", "bitnet-edge chat is the conversation; leave it out"),
    ("-st --single-turn", "bitnet-edge run gives one answer; leave it out"),
    ("-no-cnv --no-conversation --ignore-chat-template", "bitnet-edge run --raw continues a text as it is"),
    ("-tb --threads-batch", "-t N is for prompts and answers"),
    ("--mmap --no-mmap --mlock", "the file is mapped; --set weights=huge copies it into memory instead"),
    ("-ctk --cache-type-k -ctv --cache-type-v --kv-bits", "use --kv TYPE, or --kv KEYS:VALUES such as int8:int4"),
    ("-e --escape", r"the prompt is taken as it is; in bash, $'a\nb' has a line break"),
    ("-hf --hf-repo -mu --model-url", "first bitnet-edge pull hf:OWNER/NAME, then -m with the name that it prints"),
    ("-p --prompt", "bitnet-edge run takes a prompt; -sys TEXT is the system prompt"),
    ("-f --file", "bitnet-edge run reads it; -sysf FILE is the system prompt"),
    ("bench:-p bench:-pg", "-d N,N sets how much text is read before an answer"),
    ("-np --parallel", "bitnet-edge serve --parallel N gives answers at the same time; batch has it, too"),
    ("--port --host --api-key", "it is an option of bitnet-edge serve"),
    ("-a --alias", "bitnet-edge serve --name NAME"),
    ("--embedding", "bitnet-edge serve --embeddings, or bitnet-edge embed"),
    ("--system-prompt", "use --system TEXT"),
    ("--reverse-prompt", "use --stop TEXT"),
    ("-temp", "use --temp T"),
    ("-j --json-schema --format", "use --schema FILE|TEXT"),
    ("--grammar-file", "use --grammar FILE; it is a Lark grammar"),
    ("--repetition-penalty", "use --set repeat_penalty=X"),
    ("--num-ctx --max-kv-size", "use -c N"),
    ("--reasoning-budget", "use --set thinking_budget=N"),
    ("--hidethinking", "use --set thoughts=off"),
    ("--context-shift --no-context-shift", "use --set overflow=slide, or --set overflow=stop"),
    ("--prompt-cache --prompt-cache-file", "use --session FILE; system prompts are kept without it"),
    ("--chat-template --chat-template-file", "use --set template=NAME"),
    ("--color", "terminals get colours; with NO_COLOR=1 they do not"),
    ("--lora --adapter-path -md --model-draft --draft-model --mmproj --image",
     "adapters, draft models and images are not supported"),
    ("--mirostat --samplers --logit-bias", "not supported; --help-all lists what sets the sampling"),
    # commands
    ("llama-cli generate", "bitnet-edge run gives one answer, bitnet-edge chat is a conversation"),
    ("llama-server", "use bitnet-edge serve"),
    ("llama-bench", "use bitnet-edge bench"),
    ("ps stop", "nothing runs in the background; Ctrl-C ends bitnet-edge serve"),
    ("show", "use bitnet-edge model"),
    ("ls", "use bitnet-edge list"),
    ("quantize", "use bitnet-edge convert"),
    ("create cp push", "a model is a file; bitnet-edge list --json shows where"),
    ("help", "use bitnet-edge --help, or bitnet-edge run --help"),
    ("version", "use bitnet-edge --version"),
    ("completion", "with _BITNET_EDGE_COMPLETE=bash_source (zsh_source, fish_source) the program prints the script"),
)

#: option, ``command:option`` or command -> what to use here
HINTS = {name: hint for names, hint in _HINTS for name in names.split()} | {
    f"bitnet-edge:{name}": f"it comes after a command, as in bitnet-edge run {name}"
    for name in ("-m", "--model", "-p", "--prompt", *(name for row in SETTINGS.values() for name in row.names))}


def long(param: click.Parameter) -> str:
    """The first long name of an option."""
    return next((name for name in param.opts if name.startswith("--")), param.opts[0])


def options_of(ctx: click.Context, command: click.Command) -> dict[str, click.Option]:
    """Name -> the option of a command."""
    return {name: each for each in command.get_params(ctx) if isinstance(each, click.Option) for name in each.opts}


def spelled(
    ctx: click.Context, command: click.Command, words: Sequence[str], settings: Mapping[str, Setting]
) -> list[str]:
    """The words of a command, with long names of options: click looks up -m among these and searches for similar ones
    before it takes it, 1.4 ms of a ``run``, and imports difflib.

    Raises UsageError for an option of others, and a model in front of the text.
    """
    options = options_of(ctx, command)
    takes = [each.metavar or "" for each in command.params if isinstance(each, click.Argument)]
    asks = "--model" in options and not any("MODEL" in each for each in takes)
    found: list[str] = []
    rest = iter(enumerate(words))
    for at, word in rest:
        if word == "--":
            return [*found, *words[at:]]
        name, equals, value = word.partition("=")
        param = options.get(name)
        found.append(f"{long(param)}{equals}{value}" if param else word)
        if word.startswith("-"):
            check_option(ctx, word, options, settings)
        elif asks:
            asks = False
            if not (takes and any(each.startswith(("--model", "-m")) for each in words)):
                check_model(ctx.command_path, words, at, bool(takes))
        if param and not param.is_flag and not equals and (pair := next(rest, None)):
            found.append(pair[1])
    return found


def check_option(
    ctx: click.Context, word: str, options: Mapping[str, click.Option], settings: Mapping[str, Setting]
) -> None:
    """Raise UsageError for an option that is not one of ``options`` and that others have, that is one of ``settings``,
    or that was meant for a long one: click reads ``-cnv`` as -c with the value "nv".
    """
    name = word.partition("=")[0]
    if name in options:
        return
    hint = HINTS.get(f"{ctx.info_name}:{name}") or HINTS.get(name) or (f"use -{name}" if f"-{name}" in options else "")
    plain = name.lstrip("-").replace("-", "_")
    if plain in settings:
        hint = f"use --set {plain}={settings[plain].values}"
    if hint:
        raise UsageError(f"there is no option {name}: {hint}")


def check_model(called: str, words: Sequence[str], at: int, takes_text: bool = True) -> None:
    """Raise UsageError if ``words[at]``, the first that is no option of the command ``called``, is the name of a model,
    or another word where none is taken.
    """
    from edge.registry.library import is_model

    name, rest = words[at], [*words[:at], *words[at + 1 :]]
    program, _, command = called.partition(" ")
    if not is_model(name):
        if not takes_text:
            quoted = shlex.quote(name)
            raise UsageError(f"{command} takes no text; to ask it: {program} run {quoted}; for a model: -m {quoted}")
        return
    more = "" if rest or not takes_text else f"; {called} -- {name} takes it as text"
    if command == "run" and not rest:
        rest, more = ["your question"], f"; {program} chat -m {name} is a conversation{more}"
    elif command == "run" and not any(word.startswith("-") for word in rest):
        rest = [" ".join(rest)]
    raise UsageError(f"{name} is the name of a model; use: {called} {shlex.join(['-m', name, *rest])}{more}")


def refuse_command(ctx: click.Context, group: click.Group, words: Sequence[str]) -> NoReturn:
    """Raise UsageError for the first of ``words``, which is no command: another's, a question, a model or a slip."""
    name, program = words[0], str(ctx.info_name)
    if name in HINTS:
        raise UsageError(f"there is no command {name}: {HINTS[name]}")
    if " " in name:
        raise UsageError(f"there is no such command; to ask the model: {program} run {shlex.quote(name)}")
    check_model(f"{program} run", words, 0)
    from difflib import get_close_matches

    near = get_close_matches(name, group.list_commands(ctx), n=2)
    hint = f"did you mean {' or '.join(near)}?" if near else f"{program} --help lists them"
    raise UsageError(f"there is no command {name[:60]}; {hint}")
