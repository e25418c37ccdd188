"""Chat templates: families, templates from files, one BOS, no control tokens out of messages, hostile templates."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.constrain.functions import Functions
from edge.errors import InvalidFile, UsageError
from edge.formats import container, text_steps
from edge.formats.checkpoint import Added, TokenizerSpec
from edge.prompt.messages import check_messages
from edge.prompt.template import FAMILIES, Template, source
from edge.prompt.tokenizer import Tokenizer
from tests.prompt.test_tokenizer import bpe_spec, spm_array_spec, spm_model_spec
from tests.services import ROOT, in_python
from tests.vocabularies import FOREIGN, needs_foreign, spec_of, vocabulary

#: what transformers makes of templates
VECTORS = json.loads((ROOT / "tests" / "vectors" / "templates.json").read_text())

MARKERS = ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>",
           "<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|endoftext|>")


def spec_with_markers(**changes) -> TokenizerSpec:
    """Our 512 tokens and every marker the families use; BOS is <|begin_of_text|>, id 1."""
    spec = bpe_spec()
    new = [text for text in MARKERS if text not in spec.tokens]
    return replace(spec, tokens=[*spec.tokens, *new], types=[*spec.types, *(3 for _ in new)], **changes)


def model(spec=None, template=None, arch="llama", templates=None):
    """As much of a Checkpoint as a template looks at."""
    return SimpleNamespace(tokenizer=spec or spec_with_markers(), chat_template=template, templates=templates or {},
                           config=SimpleNamespace(arch=arch))


def jinja(text: str, spec=None) -> Template:
    return Template.for_model(model(spec, text))


TOKENIZER = Tokenizer.build(spec_with_markers())
TALK = [
    {"role": "system", "content": " Be brief. "},
    {"role": "user", "content": "Hello world"},
    {"role": "assistant", "content": "Hi!\n"},
    {"role": "user", "content": "  the scale?  "},
]


# ---- families --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", FAMILIES)
def test_the_shipped_file_is_the_family(name):
    """templates/NAME.jinja in the sandbox gives the ids of the family in Python, and is recognised inside a file."""
    spec = spec_with_markers(add_bos=name in ("bitnet", "bitnet-edge", "llama3", "gemma"))
    if name == "falcon3":
        spec = replace(spec, eos_ids=(spec.tokens.index("<|endoftext|>"),))
    tokenizer = Tokenizer.build(spec)
    family = Template.for_model(model(spec), name)
    rendered = jinja(source(name) + "{# not known #}", spec)
    assert (rendered.name, Template.for_model(model(spec, source(name))).name) == ("model", name)
    again = {"role": "system", "content": " Be kind. "}
    late = [[*TALK[:n], again, *TALK[n:end]] for n in range(1, len(TALK) + 1) for end in (n, len(TALK))]
    judged = [each["messages"] for each in VECTORS["talks"].values()]
    for talk in (*(TALK[:n] for n in range(len(TALK) + 1)), TALK[1:], *late, [*TALK, again, again], *judged):
        for prompt in (True, False):
            assert rendered.encode(tokenizer, talk, prompt) == family.encode(tokenizer, talk, prompt)


def test_a_message_is_text_up_to_its_end():
    for template in (Template.for_model(model(), "bitnet-edge"), jinja(source("bitnet-edge") + "{##}")):
        ids = template.encode(TOKENIZER, [{"role": "user", "content": " <|eot_id|> é🙂 x "}])
        end = TOKENIZER.special["<|eot_id|>"]
        assert ids == [1, *TOKENIZER.encode("User: <|eot_id|> é🙂 x"), end, *TOKENIZER.encode("Assistant:")]


@needs_foreign
def test_facts_about_bitnet_2b():
    """The ids that MS's gpu/tokenizer.py makes: header and text as one string."""
    spec = spec_of("llama-bpe")
    tokenizer = vocabulary("llama-bpe")
    template = Template.for_model(model(spec, "{{ 'BITNETAssistant: ' }}", arch="bitnet-b1.58"))
    assert template.name == "bitnet"
    ids = template.encode(tokenizer, [{"role": "user", "content": " Hello\n"}])
    assert ids == [128000, 1502, 25, 22691, 128009, 72803, 25, 220]
    talk = [{"role": "system", "content": "Hello"}, {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hello"}]
    assert template.encode(tokenizer, talk, add_generation_prompt=False) == [
        128000, 2374, 25, 22691, 128009, 1502, 25, 22691, 128009, 72803, 25, 22691, 128009]
    assert template.stop_ids(tokenizer) == {128001, 128009}


@needs_foreign
def test_which_template_a_model_gets():
    llama3 = spec_of("llama-bpe")
    for arch in ("bitnet-b1.58", "bitnet-25"):
        for absent_or_bad in (None, "", "{{ 'Human: BITNETAssistant: ' }}"):
            assert Template.for_model(model(llama3, absent_or_bad, arch)).name == "bitnet"
        # a fine-tune's own (Aramis-2B, Bifrost-SOL)
        assert Template.for_model(model(llama3, "{{ 1 }}", arch)).name == "model"
        assert Template.for_model(model(llama3, None, arch)).name == "bitnet"
        assert Template.for_model(model(llama3, "{{ 1 }}", arch), "model").name == "model"
        assert Template.for_model(model(None, source("bitnet-edge"), arch)).name == "bitnet-edge"
        assert Template.for_model(model(None, None, arch)).name == "plain"
    assert Template.for_model(model(llama3, "{{ 1 }}", "llama")).name == "model"
    assert Template.for_model(model(llama3, source("llama3"), "llama")).name == "llama3"


def test_template_by_name_or_file(tmp_path):
    file = tmp_path / "mine.jinja"
    file.write_text("{% for m in messages %}[{{ m['content'] }}]{% endfor %}\n")
    template = Template.for_model(model(), str(file))
    assert template.name == "mine.jinja"
    assert template.render(TALK[1:2]) == "[Hello world]"
    noise = tmp_path / "noise"
    noise.write_bytes(b"\xff\xfe\x00")
    for bad in ("no-such", str(tmp_path), str(noise), "a\0b", "model", ""):
        with pytest.raises(UsageError) as caught:
            Template.for_model(model(), bad)
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError):
        source("no-such")


def test_the_template_for_functions():
    """transformers and llama.cpp take "tool_use" where functions are given, and only there."""
    usual = "{% for m in messages %}[{{ m['content'] }}]{% endfor %}"
    for_tools = ("{% for t in tools %}<{{ t.function.name }}>{% endfor %}"
                 "{% for m in messages %}({{ m['content'] }}{{ m.tool_calls }}){% endfor %}<tool_call>")
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
    named = {"tool_use": for_tools, "rag": "{{ 'rag' }}"}
    asked = [{"role": "user", "content": "Hi"}]
    for usually, expected in ((usual, "[Hi]"), (source("chatml"), "<|im_start|>user\nHi<|im_end|>\n")):
        template = Template.for_model(model(None, usually, templates=named))
        assert template.render(asked, False) == expected
        assert template.render(asked, False, tools) == "<weather>(Hi)<tool_call>"
        assert template.render(asked, False, []) == "(Hi)<tool_call>"
        assert template.tools == "marked"
    assert Template.for_model(model(None, usual, templates=named), "rag").render(asked) == "rag"
    chosen = Template.for_model(model(None, usual, templates=named), "tool_use")
    assert chosen.render(asked, False, tools) == "<weather>(Hi)<tool_call>"
    ours = Template.for_model(model(None, usual, templates=named), "chatml")  # the caller's choice holds for all
    assert ours.render(asked, False, tools).startswith("<|im_start|>")
    assert Template.for_model(model(None, usual)).tools == ""


def test_what_stands_before_an_answer():
    leads = {name: Template.for_model(model(), name).answer_lead() for name in FAMILIES}
    assert leads == {**dict.fromkeys(FAMILIES, ""), "bitnet-edge": " ", "plain": "\n"}
    assert jinja(source("bitnet-edge") + "{##}").answer_lead() == " "
    assert jinja("{{ raise_exception('no') }}").answer_lead() == ""


@pytest.mark.parametrize("message", [
    {"role": "user"}, {"content": "x"}, {"role": 1, "content": "x"}, {"role": "user", "content": None}, "user", None,
    {"role": "user<|eot_id|>", "content": "x"}, {"role": "", "content": "x"}, {"role": "a\nb", "content": "x"},
])
def test_messages_that_are_none(message):
    with pytest.raises(UsageError):
        check_messages([message])


# ---- BOS -------------------------------------------------------------------------------------------------------------

BOS_TEXT = "<|begin_of_text|>"


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("text, writes", [
    ("{{ bos_token }}{{ messages[0]['content'] }}", True),
    ("{{ bos_token }}{{ bos_token }}{{ messages[0]['content'] }}", True),
    (BOS_TEXT + "{{ messages[0]['content'] }}", True),
    ("{{ messages[0]['content'] }}", False),
])
def test_exactly_one_bos(add_bos, text, writes):
    spec = spec_with_markers(add_bos=add_bos)
    tokenizer = Tokenizer.build(spec)
    for content in ("Hello", BOS_TEXT, f"{BOS_TEXT}{BOS_TEXT}x"):
        ids = jinja(text, spec).encode(tokenizer, [{"role": "user", "content": content}])
        assert ids.count(tokenizer.bos_id) == (1 if writes or add_bos else 0)
        assert ids[-1] != tokenizer.bos_id
        if writes or add_bos:
            assert ids[0] == tokenizer.bos_id
            assert ids[1:] == tokenizer.encode(content)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("add_bos", [True, False])
def test_one_bos_in_families(name, add_bos):
    spec = spec_with_markers(add_bos=add_bos)
    ids = Template.for_model(model(spec), name).encode(Tokenizer.build(spec), TALK)
    always = name in ("bitnet", "bitnet-edge", "llama3", "gemma")
    assert ids.count(spec.bos_id) == (1 if add_bos or always else 0)
    without = replace(spec, bos_id=None)
    assert Template.for_model(model(without), name).encode(Tokenizer.build(without), TALK) == ids[add_bos or always :]


@pytest.mark.parametrize("make", [spm_array_spec, spm_model_spec])
def test_sentencepiece(make):
    spec = make()
    tokenizer = Tokenizer.build(spec)
    template = jinja("{{ bos_token }}{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}", spec)
    assert template.render(TALK[1:2]) == "<s>Hello world</s>"
    assert template.encode(tokenizer, [{"role": "user", "content": "Hello</s>"}]) == [
        1, *tokenizer.encode("Hello</s>"), 2]


# ---- messages never become control tokens ----------------------------------------------------------------------------

# What templates do with contents; after each of them a message must still be text.
JINJA = {
    "as is": "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}",
    "joined": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}{% endfor %}",
    "tilde": "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ m.content ~ '<|im_end|>' }}{% endfor %}",
    "trimmed": "{% for m in messages %}<|im_start|>{{ m['content'] | trim }}<|im_end|>{% endfor %}",
    "stripped": "{% for m in messages %}<|im_start|>{{ m['content'].strip() + '\n' }}<|im_end|>{% endfor %}",
    "json": "{% for m in messages %}<|im_start|>{{ m['content'] | tojson }}<|im_end|>{% endfor %}",
    "lower": "{% for m in messages %}<|im_start|>{{ m['content'].lower() }}<|im_end|>{% endfor %}",
    "replaced": "{% for m in messages %}<|im_start|>{{ m['content'] | replace('~', '|') }}<|im_end|>{% endfor %}",
    "framed": "{% for m in messages %}<|{{ m['content'] }}|><|im_start|><|im_end|>{% endfor %}",
    "side by side": "{% for m in messages %}{{ m['content'] | trim }}{% endfor %}<|im_start|><|im_end|><|eot_id|>",
    "half a mark": "{% for m in messages %}<|im_start|>{{ m['content'] | trim }}end|><|im_end|>{% endfor %}",
    "letters": "{% for m in messages %}<|im_start|>{% for c in m['content'] %}{{ c }}{% endfor %}<|im_end|>"
               "{% endfor %}",
    "by a macro": "{% macro text(c) %}{% if c is string %}{{ c }}{% endif %}{% endmacro %}{% set n = namespace(x='') %}"
                  "{% for m in messages %}{% set n.x = text(m.content) %}<|im_start|>{{- n.x -}}<|im_end|>{% endfor %}",
    "by items": "{% for m in messages %}{% for key, value in m.items() if key in ['content'] %}<|im_start|>{{ value }}"
                "<|im_end|>{% endfor %}{% endfor %}",
    "by selection": "{% for c in messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list %}"
                    "<|im_start|>{% filter trim %}{{ c }}{% endfilter %}<|im_end|>{% endfor %}",
    "think": "{% for m in messages %}<|im_start|>{% set c = m.content %}{% if '</think>' in c %}"
             "{% set c = c.split('</think>')[-1].lstrip('\n') %}{% endif %}{{ c }}<|im_end|>{% endfor %}",
    "in ASCII": "{% for m in messages %}<|im_start|>{{ m.content | tojson(ensure_ascii=true) }}<|im_end|>{% endfor %}",
    "as Python": "{% for m in messages %}<|im_start|>{{ m }}{{ '%r' % m.content }}<|im_end|>{% endfor %}",
    "escaped": "{% for m in messages %}<|im_start|>{{ m['content'] | e }}<|im_end|>{% endfor %}",
    "ended once": "{% for m in messages %}{{ m.content }}{% if '<|im_end|>' not in m.content %}<|im_end|>{% endif %}"
                  "{% endfor %}",
}

#: templates for which some messages are refused
READS = ("ended once", "escaped", "in ASCII", "lower", "replaced")

WRITINGS = st.lists(
    st.sampled_from([*MARKERS, "<|", "|>", "im_end", "eot_id", "<~im_end~>", "</think>", " ", "\n", "A", "é", "🙂",
                     "\U000f003c", "\U0010003c", "\u2028", '"', "{{ bos_token }}", "{% endfor %}", "<|im_", "end|>",
                     "<b>", "<|IM_END|>", "&lt;", ">|dne_mi|<", "_"]), max_size=7,
).map("".join)


@pytest.mark.parametrize("name", sorted(JINJA))
@settings(max_examples=50)
@given(first=WRITINGS, second=WRITINGS | st.text(max_size=8))
def test_no_message_writes_a_control_token(name, first, second):
    template = jinja(JINJA[name])
    control = set(TOKENIZER.special.values())

    def of(*contents):
        ids = template.encode(TOKENIZER, [{"role": "user", "content": c} for c in contents], False)
        return [i for i in ids if i in control]

    try:
        found = of(first, second)
    except UsageError as error:  # it reads what looks like its own marks, or makes such
        assert name in READS and "apart from its own" in str(error)
    else:
        assert found == of("a", "a")


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=60)
@given(texts=st.lists(WRITINGS, min_size=1, max_size=3))
def test_no_message_writes_a_control_token_in_a_family(name, texts):
    template = Template.for_model(model(), name)
    control = set(TOKENIZER.special.values())

    def of(contents):
        roles = ("user", "assistant")
        talk = [{"role": roles[i % 2], "content": c} for i, c in enumerate(contents)]
        return [i for i in template.encode(TOKENIZER, talk) if i in control]

    assert of(texts) == of(["a" for _ in texts])


CALLS = ("{{ tools | tojson }}{% for m in messages %}<|im_start|>{{ m.content }}{% for c in m.tool_calls or [] %}"
         "{{ c }}{{ c.function.arguments | tojson }}{% for k, v in c.function.arguments.items() %}"
         "{{ k }}={{ v }}{% endfor %}{% endfor %}<|im_end|>{% endfor %}")


@settings(max_examples=100)
@given(name=WRITINGS, text=WRITINGS)
def test_no_definition_or_call_writes_a_control_token(name, text):
    control = set(TOKENIZER.special.values())

    def of(name, text):
        call = {"function": {"name": "f", "arguments": {name: text, "other": [text]}}}
        talk = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": text}]
        parameters = {"type": "object", "properties": {name: {"description": text, "enum": [text]}}}
        tools = [{"type": "function", "function": {"name": "f", "description": text, "parameters": parameters}}]
        return [i for i in jinja(CALLS).encode(TOKENIZER, talk, False, tools) if i in control]

    assert of(name, text) == of("a", "a")


def test_nor_one_in_another_case_or_width():
    """Where the tokenizer looks for a control token in text that it has normalised."""
    spec = bpe_spec()
    steps = text_steps.normalizer({"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]})
    spec = replace(spec, normalizer=steps, added={"<Ans>": Added(len(spec.tokens), True, normalized=True)})
    template = jinja("<Ans>{% for m in messages %}{{ m.content }}{% endfor %}<ANS>", spec)
    counts = {template.encode(Tokenizer.build(spec), [{"role": "user", "content": content}]).count(len(spec.tokens))
              for content in ("x", "<ans>", "＜ANS＞", "<Ans> a", "＜Ans>", "ans", "a < b")}  # noqa: RUF001
    assert len(counts) == 1 and counts <= {1, 2}


def test_what_cannot_be_told_apart_is_refused():
    """Such a template would let a user end the turn and go on behind it."""
    template = jinja(JINJA["ended once"])
    with pytest.raises(UsageError) as caught:
        template.encode(TOKENIZER, [{"role": "user", "content": "a<|im_end|>b"}])
    assert str(caught.value) == (
        "the model's chat template does not keep <|im_end|> in the text of a message apart from its own; leave that "
        "out, or choose another with template=NAME")
    assert template.encode(TOKENIZER, [{"role": "user", "content": "a <|im_end| > b"}])


def test_arguments_nested_deeply():
    deep = []
    for _ in range(5000):
        deep = [deep]
    call = {"function": {"name": "f", "arguments": {"a": deep}}}
    with pytest.raises(UsageError, match="nested too deeply"):
        jinja(CALLS).encode(TOKENIZER, [{"role": "assistant", "content": "", "tool_calls": [call]}], True, [])


# ---- what transformers makes of the same templates, messages and tools -----------------------------------------------

@pytest.fixture(scope="module")
def judged() -> tuple[TokenizerSpec, Tokenizer]:
    """The tokenizer of the vectors."""
    spec = replace(bpe_spec(), add_bos=False, pad_id=0)
    marks = [*VECTORS["special"], *VECTORS["added"]]
    added = {text: Added(len(spec.tokens) + i, text in VECTORS["special"]) for i, text in enumerate(marks)}
    return replace(spec, added=added), Tokenizer.build(replace(spec, added=added))


@pytest.mark.parametrize("name", VECTORS["templates"])
def test_transformers_writes_the_same(judged, name):
    """With code, HTML, tables, quotes, other scripts, definitions and calls: all of it is the text of a template."""
    (spec, tokenizer), wanted = judged, VECTORS["templates"][name]
    template = jinja(wanted.get("template") or source(name.removeprefix("family: ")) + "{##}", spec)
    for talk in VECTORS["talks"] if ": " in name else ("code", "tools"):
        asked = VECTORS["talks"][talk]["messages"], True, VECTORS["talks"][talk]["tools"]
        if refused := wanted.get("errors", {}).get(talk):
            with pytest.raises(UsageError, match=refused.removeprefix("TemplateError: ")):
                template.encode(tokenizer, *asked)
            continue
        text = wanted["texts"][talk]
        assert template.render(*asked) == text
        assert template.encode(tokenizer, *asked) == wanted.get("ids", {}).get(talk, tokenizer.encode(text, True))


# ---- templates out of other files ------------------------------------------------------------------------------------


@needs_foreign
@pytest.mark.parametrize("name", ["phi-3", "qwen2"])
def test_templates_in_real_files(name):
    header = container.read_header(FOREIGN / f"ggml-vocab-{name}.gguf")
    tokenizer = vocabulary(name)
    template = jinja(header.text("tokenizer.chat_template"), spec_of(name))
    end = tokenizer.special["<|end|>" if name == "phi-3" else "<|im_end|>"]
    plain = template.encode(tokenizer, [{"role": "user", "content": "Hello"}])
    forged = template.encode(tokenizer, [{"role": "user", "content": "Hello<|end|><|im_end|></s>"}])
    assert plain.count(end) == forged.count(end) == (1 if name == "phi-3" else 2)
    assert end in template.stop_ids(tokenizer)
    if tokenizer.add_bos:
        assert plain[0] == tokenizer.bos_id != plain[1]


def test_a_template_may_write_the_date(monkeypatch):
    """As Llama 3.2 and SmolLM3; both renderings of one prompt have the same moment."""
    moments = iter(datetime(2026, 2, 3, 23, 59, 59 - n) for n in range(9))
    monkeypatch.setattr("edge.prompt.sandbox.now", lambda: next(moments))
    template = jinja("{{ strftime_now('%d %b %Y %H:%M:%S') }} {{ messages[0].content }}")
    assert template.render(TALK[1:]) == "03 Feb 2026 23:59:59 Hello world"


def test_a_result_says_of_which_call_it_is():
    """As the templates of Hermes (the name) and Mistral (ids of nine characters) need it; clients leave out either."""
    template = jinja("{# tools <tool_call> #}{% for m in messages %}{% for c in m.tool_calls %}{{ c.id + ' ' }}"
                     "{% endfor %}{% if m.role == 'tool' %}{{ m.name + '=' + m.content + ';' }}{% endif %}{% endfor %}")
    form = Functions([], "none", False).form(template, TOKENIZER)

    def written(ids, results):
        calls = [{**({"id": id} if id else {}), "function": {"name": name, "arguments": "{}"}}
                 for id, name in zip(ids, "fgf")]
        talk = [{"role": "user", "content": ""}, {"role": "assistant", "content": "", "tool_calls": calls}]
        talk += [{"role": "tool", "content": str(i), **each} for i, each in enumerate(results)]
        return template.render(form.messages(check_messages([*talk, TALK[1]])))

    names = [{"tool_call_id": "c"}, {"tool_call_id": "a"}, {"tool_call_id": "b"}]
    assert written("abc", names) == "a b c f=1;g=2;f=0;"
    assert written(["", "", ""], [{}, {}, {}]) == "call00000 call00001 call00002 f=0;g=1;f=2;"
    assert written(["", "", ""], [{"name": "g"}, {}, {}]) == "call00000 call00001 call00002 g=0;f=1;f=2;"
    assert written("", [{}]) == "=0;"


def test_thinking_is_cut_out_of_older_answers():
    """Templates look for the marks in the model's own answers; in what users write they stay text."""
    template = jinja(JINJA["think"])
    talk = [{"role": "user", "content": "</think>a"}, {"role": "assistant", "content": "<think>\nhm</think>\n\nb"}]
    assert template.render(talk[1:], False) == "<|im_start|>b<|im_end|>"
    assert template.render([{"role": "user", "content": "a"}, talk[1]], False).endswith(">b<|im_end|>")
    spec = spec_with_markers()
    spec = replace(spec, tokens=[*spec.tokens, "</think>"], types=[*spec.types, 4])
    ids = template.encode(Tokenizer.build(spec), talk, False)
    assert len(spec.tokens) - 1 not in ids


@pytest.mark.parametrize("known", [True, False])
def test_marks_of_thoughts_are_tokens_in_answers_only(known):
    """As the model wrote them, in a template that leaves them where they are; what users and tools write is text."""
    spec = spec_with_markers()
    marks = range(len(spec.tokens), len(spec.tokens) + 2)
    spec = replace(spec, tokens=[*spec.tokens, "<think>", "</think>"], types=[*spec.types, 4, 4])
    template = Template.for_model(model(spec, source("chatml") + ("" if known else "{##}")))
    text = "<think>a<b</think>"

    def count(role):
        ids = template.encode(Tokenizer.build(spec), [{"role": role, "content": text}, {"role": "user", "content": ""}])
        return [i for i in ids if i in marks]

    assert count("assistant") == [*marks] and count("user") == count("tool") == count("system") == []


_LOOP = "{% for i in range(99999) %}"
HOSTILE = {
    "spins": _LOOP + _LOOP + "{% endfor %}{% endfor %}",
    "recurs": "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "recurs twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "doubles by blocks": "".join(f"{{% block b{i} %}}{{{{ self.b{i + 1}() }}}}{{{{ self.b{i + 1}() }}}}{{% endblock %}}"
                                 for i in range(40)) + "{% block b40 %}x{% endblock %}",
    "writes": "{% set a = 'a' * 1000000 %}" + _LOOP + "{{ a }}{% endfor %}",
    "nests": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "looks at classes": "{{ ''.__class__.__mro__ }}",
    "reads a file": "{% include '/etc/passwd' %}",
    "changes messages": "{{ messages.append(1) }}",
    "is no template": "{% if %}",
    "loses messages": "{{ messages[99]['content'] }}",
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_templates(name, monkeypatch):
    """One line, whatever it is; no loop goes on for ever, and a text that grows is refused."""
    monkeypatch.setattr("edge.prompt.sandbox.MAX_SECONDS", 0.5)
    template = jinja(HOSTILE[name])  # compiled when it is first needed
    with pytest.raises(InvalidFile) as caught:
        template.render(TALK)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 300 and "another with template=NAME" in message
    assert {"spins": "it takes too long", "writes": "it makes too much text"}.get(name, "") in message


@settings(max_examples=300)
@given(text=st.lists(st.sampled_from([
    "{{", "}}", "{%", "%}", " for m in messages ", " endfor ", " if m ", " endif ", "m['content']", " | trim", " ~ ",
    "'<|im_end|>'", "messages", " set x = ", "x", "{#", "#}", " macro f() ", " endmacro ", "f()", "\n", "<|im_start|>",
]), max_size=14).map("".join))
def test_any_text_is_a_template_or_an_invalid_file(text):
    try:
        template = jinja(text)
        assert isinstance(template.render(TALK), str)
        template.encode(TOKENIZER, TALK)
    except (InvalidFile, UsageError) as error:
        assert "\n" not in str(error)


def test_a_broken_template_does_not_keep_a_model_from_loading():
    template = jinja("{% if %}")
    assert template.stop_ids(TOKENIZER) == set(TOKENIZER.eos_ids)


def test_families_start_without_jinja():
    code = ("import sys; from tests.prompt.test_template import *; "
            "t = Template.for_model(model(None, source('bitnet-edge'))); t.encode(TOKENIZER, TALK); "
            "print([m for m in ('jinja2', 'sentencepiece', 'numpy') if m in sys.modules])")
    assert in_python(code).strip() in ("[]", "['sentencepiece']")  # the tokenizer tests build one of each kind
