"""Writes docs/models.md from the tables of the program: python packaging/docs/make_models.py

tests/registry/test_models_page.py fails when the page is not what this makes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "models.md"
sys.path.insert(0, str(ROOT))

from edge.formats import gguf_writer  # noqa: E402
from edge.registry.families import FAMILIES, REFUSED  # noqa: E402
from edge.tools import fit  # noqa: E402

#: board -> GB/s of its memory that reach the cores, least and most: of the Pi 5 published (a read-only STREAM gave 9.3,
#: 13.2 and 11.6 with 1, 2 and 4 threads: github.com/ggml-org/llama.cpp/issues/26484), of the others assumed
BOARDS = {"Pi 4": (4.0, 5.0), "Pi 5": (11.6, 13.2), "ARM laptop": (60.0, 100.0)}


@dataclass(frozen=True)
class Model:
    """A published model: its name, and its name in edge.registry.shapes."""

    name: str
    shape: str


MODELS = (
    Model("SmolLM2-135M-Instruct", "smollm2-135m"),
    Model("Ternary-Bonsai 1.7B", "bonsai-1.7b"),
    Model("Ternary-Bonsai 4B", "bonsai-4b"),
    Model("Ternary-Bonsai 8B", "bonsai-8b"),
    Model("Ternary-Bonsai 27B", "bonsai-27b"),
    Model("Ternary-Bonsai 2 27B", "bonsai2-27b"),
    Model("BitNet-b1.58-2B-4T", "2b-4t"),
    Model("bitnet_b1_58-large", "large"),
    Model("bitnet_b1_58-xl", "xl"),
    Model("bitnet_b1_58-3B", "3b"),
    Model("Falcon3-1B-Instruct-1.58bit", "falcon3-1b"),
    Model("Falcon3-3B-Instruct-1.58bit", "falcon3-3b"),
    Model("Falcon-E-1B-Instruct", "falcon-e-1b"),
    Model("Falcon-E-3B-Instruct", "falcon-e-3b"),
    Model("Llama3-8B-1.58-100B-tokens", "llama3-8b"),
    Model("maple-preview (20B)", "maple"),
    Model("Bonsai 1.7B (1 bit)", "bonsai-1bit-1.7b"),
    Model("Bonsai 4B (1 bit)", "bonsai-1bit-4b"),
    Model("Bonsai 8B (1 bit)", "bonsai-1bit-8b"),
    Model("Bonsai 27B (1 bit)", "bonsai-1bit-27b"),
    Model("BitNet-embedding-270M", "bitnet-embedding-270m"),
    Model("BitNet-embedding-0.6B", "bitnet-embedding-0.6b"),
)


INTRO = """The supported ternary language models, with their size and memory. This page is made by `make docs`
from the tables of the program (`edge/registry/families.py`, `edge/registry/shapes.py`), and a
test checks it. The published weights were not available when this was written: sizes are computed from the published
dimensions (the feed-forward width of Falcon-E-1B from the size of its file), and each architecture is compared with
`transformers` or NumPy on tiny models."""
BY_MODEL = """Download: the size of the published file, about; `pull` shows the exact size before it downloads. Stored:
the size of the file on this machine after `pull`, which converts some files so that they load faster. Memory: the whole
process with the default context and KV cache (2048 tokens, int8), as `bitnet-edge fit MODEL --memory SIZE` shows it;
where plenty is free, a faster output head takes more. It can be less than the file: `pull` stores an
output head in F16 as 8 bits, and of a table of embeddings only the rows of the text are read. Speed: an upper limit in
tokens per second after 512 tokens,
computed from the speed of the memory: 4 to 5 GB/s of a Pi 4 and 60 to 100 of an ARM laptop (assumed), 11.6 to 13.2 of a
Pi 5 (published). Nothing in this table was measured. Speeds measured on
an x86-64 machine are in [SPEED.md](../benchmarks/SPEED.md). SmolLM2 is a dense model, which runs as the sum of three
ternary planes ([Planes](planes.md)); without the hub its file comes out of a Python package, a download of 93 MB. The
two embedding models turn texts into vectors (`bitnet-edge embed`) and write no answers; their memory is that without an
output head."""
FURTHER = """Also supported, if a file has them: sub-norms, a norm before each projection, biases of q, k and v,
separate output heads, norms after blocks, layers with sliding windows, gated delta layers and output gates (Qwen3.5),
matrices in a rotated basis (Bonsai 2), and rotary scaling (linear, YaRN, Llama 3, and the short factors of
longrope). The first upload of BitNet-b1.58-2B-4T (`bitnet-25`) has an output head of its own; the
second has none and uses the table for both. The head is used as it is stored, as in ik_llama.cpp: if it is a copy of
the table, answers are the same, and if it is not, only it is right."""
EXPERTS = """maple and qwen3moe are mixtures of experts: a token uses few of them (8 of 256, 8 of 128). All of them
should fit in memory; where they do not, or `--memory` allows less, the rest stays on the disk and is read when a token
needs it: answers are the same, and slower by what the disk reads (`bench` shows its share). They run from the map only
in files that `pull` or `convert` has made, or of types Q2_0 and PQ2_0; other files need the memory for a copy of all
experts. Of maple, published as a preview, a perplexity of 86.9 on wikitext was measured (llama.cpp, pull request
27000): do not expect the answers of a model of 20 B."""
COST = """Models marked "int8 per 128 values" were trained with float activations; here these are rounded to int8 with a
scale per 128 values. On the demo model this costs 0.0010 nats per token over floats (+- 0.0008) and keeps the most
likely token in 98.9% of places (`python benchmarks/activations.py`); the published weights were not measured."""
TOKENIZERS = """Tokenizers: byte-level BPE and SentencePiece. A `tokenizer.json` is taken as the `tokenizers`
library takes it, or refused with the name of what is not supported: normalizers NFC, NFD, NFKC, NFKD, Lowercase,
StripAccents, Strip, Replace, Prepend and Sequence; pre-tokenizers Split, ByteLevel, Digits, Punctuation,
Whitespace, WhitespaceSplit, CharDelimiterSplit and Sequence; `ignore_merges`; added tokens with `lstrip`, `rstrip`,
`single_word` and `normalized`. `convert` keeps all of it. GGUF files whose pre-tokenizer is `qwen2`, `qwen35`,
`deepseek-r1-qwen`, `megrez`, `stablelm2`, `olmo` or `mpt` read text as NFC, as their vocabularies were trained. An
added token that is not special is text: answers show it, `stop` finds it, and who types it means it; only special
ones, `<|...|>` and the marks of thoughts and calls cannot be typed. Characters are those of Unicode 14 to 16, as
Python's; a library of another year treats newer ones differently (`tokenizers` 0.23: those after Unicode 9 in NFKC,
NFKD and StripAccents)."""
SAMPLING = """Sampling: options of the user come first. Where none is given, each value that the model file recommends
is used: `general.sampling.temp`, `top_k`, `top_p` and `min_p` of a GGUF file, `temperature`, `top_k`, `top_p` and
`min_p` in the generation_config.json of a folder; `convert` keeps them. A generation_config.json without `do_sample:
true` recommends nothing: `transformers` then chooses the most likely token and ignores these values. A value
that is not valid is ignored, with a note. Then comes the advice of the makers for the architecture (Qwen3, Hunyuan,
Gemma 3; Qwen3 with `--no-think` always uses the values for answers without thinking), and last temperature 0.7, top-k
40, top-p 0.95 and min-p 0.05."""
BINARY = """The models of 1 bit have weights -1 and +1 only, in type Q1_0. Here such a weight takes two bits, in memory
and in what `pull` stores: only the download is smaller. Ternary is the better buy per byte: in one published test
(ArmanJR/PrismML-Bonsai-vs-Qwen3.5-Benchmark) Ternary-Bonsai 4B, a download of 1.07 GB, has 83% of the answers right,
the 8B of 1 bit, 1.16 GB, 79%."""
TYPES = """Types of matrices: I2_S (three layouts), TQ1_0, TQ2_0, Q2_0 with groups of 64 or 128, PQ2_0, PQ2_0_R64, Q1_0
(an early one of type 40 as well, if 128 weights share a scale), PTQ1_0, PTQ1_0_R64, STQ1_0, IQ1_BN, IQ2_BN, IQ2_BN_R4,
packed Hugging Face weights, 2 bits of MLX, and floats, Q8_0 or Q4_0 whose values are ternary; `convert --ternarise`
rounds latent weights. In files with the key `bitnet-edge.planes.group`, each matrix is the sum of 1 to 4 ternary ones
(planes), with a scale for each 32, 64 or 128 weights: TP32_R64, TP64_R64, PQ2_0_R64. `bitnet-edge model check FILE`
tests whether a file is sound."""


def rate(speed: float) -> str:
    """Tokens a second in two digits."""
    return f"{speed:.0f}" if speed >= 10 else f"{speed:.1f}"


def row(model: Model) -> str:
    """A line of the table of models."""
    subject = fit.published(model.shape)
    c, tensors = subject.checkpoint.config, subject.checkpoint.tensors.values()
    assert subject.known is not None, model
    stored = sum(gguf_writer.Entry(tensor.name, tensor.type, tensor.shape, b"").nbytes for tensor in tensors)
    plan = fit.needed(subject, fit.LoadSettings())
    token = fit.read_bytes(subject, plan)
    speeds = " | ".join(
        "-" if subject.embeds else " to ".join(rate(gb_s * 1e9 / token) for gb_s in both) for both in BOARDS.values())
    sizes = f"{subject.known.nbytes / 1e6:.0f} MB | {stored / 1e6:.0f} MB | {plan.total_bytes / 1e6:.0f} MB"
    return f"| {model.name} | {c.arch} | `bitnet-edge pull {subject.name}` | {sizes} | {speeds} |"


def page() -> str:
    """The whole page."""
    boards = " | ".join(BOARDS)
    lines = [
        "# Models",
        "",
        fill(INTRO, 120),
        "",
        "## By model",
        "",
        fill(BY_MODEL, 120),
        "",
        f"| model | architecture | command | download | stored | memory | {boards} |",
        "|---" * (6 + len(BOARDS)) + "|",
        *(row(model) for model in MODELS),
        "",
        "## By architecture",
        "",
        "| `general.architecture` | Hugging Face | what it is | activations | norms of heads |",
        "|---|---|---|---|---|",
    ]
    for family in FAMILIES.values():
        norms = {"": "none", "before": "before the rotation", "after": "after the rotation"}[family.qk_norm]
        kind = "int8 per 128 values" if family.weight_only else "int8 per token"
        classes = ", ".join(f"`{name}`" for name in family.huggingface) or "none"
        lines.append(f"| `{family.arch}` | {classes} | {family.about} | {kind} | {norms} |")
    lines += [
        "",
        fill(FURTHER, 120),
        "",
        fill(EXPERTS, 120),
        "",
        fill(COST, 120),
        "",
        fill(BINARY, 120),
        "",
        fill(TYPES, 120),
        "",
        fill(SAMPLING, 120),
        "",
        fill(TOKENIZERS, 120),
        "",
        "## Not supported, and what to use instead",
        "",
        "| architecture contains | what it is |",
        "|---|---|",
        *(f"| `{name}` | {why} |" for name, why in REFUSED.items()),
        "| types TL1, TL2 | can only be decoded with the tile sizes of the machine that wrote them; convert again as "
        "I2_S |",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
