"""``python -m training.fact_model KNOWLEDGE.json``: edge/kiosk/vectors.bin, which edge.kiosk.facts chooses facts by.

A student with a vector and two weights for each token (word, or pair of words), a layer over neighbours and a small
scorer learns, all together:

- to find texts as alike as a teacher does (training.fact_teacher), which is first tuned to the same houses;
- which fact of a house answers a question, or none: questions.jsonl, and the question-and-answer pairs of DSTC9 Track 1
  (Apache-2.0, alexa/alexa-with-dstc9-track1-dataset @ 7ebb4c7, data_eval/knowledge.json = KNOWLEDGE.json).  The other
  facts of the same house are the near misses; some facts are left out, so that their questions have no answer;
- to score all facts of a house, and facts of several houses put together, as the teacher does;
- that the words on one line of topics.txt are alike.

Some houses of each hand of questions.jsonl are held out (HELD): neither teacher nor student reads a text of them.  The
least score is set on the visits of DEVELOPMENT.  Hand c and the blind visits are not read here: training.kiosk_exam
counts them.  What the marks say is measured on the file as it ships, by edge.kiosk.facts.
``--check`` only measures the file that is there; ``--houses 50 --tune 0`` learns from fewer houses, without tuning.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edge.kiosk import facts, vectors
from edge.kiosk import house as house_file
from edge.kiosk.words import stem
from training.corpus import dialogues
from training.fact_teacher import House, Teacher, drawn, folder, tune, unlikelihood
from training.kiosk_exam import HOUSES, visits

HERE = Path(__file__).resolve().parent
#: of each hand of questions.jsonl, every so many-th house is held out; otherwise every sixth
HELD = {"own": 1000, "w1": 4, "w2": 4}
#: hands of questions.jsonl that the teacher is tuned to; the others came later
TUNED = ("own", "w1", "w2", "q1", "q2", "q3")
#: hands of the visits that set the least score
DEVELOPMENT = "abghkl"
#: numbers of facts.features
N_FEATURES = 12
WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


# What is learned from


def written() -> tuple[list[House], list[House]]:
    """The houses of questions.jsonl: to learn from, held out."""
    learned: list[House] = []
    held: list[House] = []
    count: Counter[str] = Counter()
    for line in (HERE / "questions.jsonl").read_text().splitlines():
        entry = json.loads(line)
        house = House(entry["kind"], [fact["text"] for fact in entry["facts"]], [], entry["none"], entry["hand"])
        for at, fact in enumerate(entry["facts"]):
            house.questions += [(text, (at,)) for text in fact["questions"]]
        count[entry["hand"]] += 1
        (held if count[entry["hand"]] % HELD.get(entry["hand"], 6) == 0 else learned).append(house)
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
        whole = (folder() / "vocab.txt").read_text(encoding="utf-8").split()
        words += [word for word in whole if re.fullmatch("[a-z]{3,}", word)]
        words = list(dict.fromkeys(words))[:n_words]
        telling = (pair for pair, _ in pairs.most_common() if set(pair) <= set(words) and pair[1] not in ("the", "a"))
        self.names = ["", *words, *(f"{a}_{b}" for (a, b), _ in zip(telling, range(n_pairs)))]
        self.index = {name: at for at, name in enumerate(self.names) if name}
        self.stems: dict[str, str] = {}
        for word in words:
            self.stems.setdefault(stem(word), word)
        self._read: dict[str, list[int]] = {}

    def ids(self, text: str) -> tuple[list[int], list[int]]:
        """The numbers of the words of a text in order, and of its pairs, as edge.kiosk.vectors finds them."""
        if text not in self._read:
            self._read[text] = tuple(
                [self.index[name] if name in self.index else len(self.names) + int(name[1:]) for name in found]
                for found in vectors.names(text, self.index, self.stems)
            )
        return self._read[text]


@dataclass
class Read:
    """Texts as the student reads them: directions [texts, most, dims], weights [texts, most], which are there."""

    units: Tensor
    weights: Tensor
    there: Tensor

    def sums(self) -> Tensor:
        """Unit vectors [texts, dims]."""
        return F.normalize((self.units * self.weights[..., None]).sum(1), dim=1)


class Student(nn.Module):
    """Directions [tokens, dims], two weights a token, a layer over neighbours, and a scorer over facts.features."""

    def __init__(self, known: Vocabulary, start: Tensor, weights: Tensor, n_near: int, n_hidden: int = 16,
                 drop: float = 0.2) -> None:  # fmt: skip
        super().__init__()
        self.known, self.drop = known, drop
        self.table = nn.Parameter(start)
        inverse = torch.log(torch.expm1(weights))
        self.raw = nn.Parameter(torch.stack([inverse, inverse]))
        self.unknown = nn.Parameter(torch.zeros(2, 1))  # weights of words that are not known
        dims = start.shape[1]
        codes = [vectors.codes_of_unknown(f"#{i}", dims) for i in range(vectors.BUCKETS)]
        self.register_buffer("others", F.normalize(torch.tensor(codes).float(), dim=1))
        self.near = nn.Linear(4 * dims, n_near)  # the word before, itself, the word after, the whole text
        self.turn = nn.Linear(n_near, dims, bias=False)
        self.role, self.more = nn.Parameter(torch.zeros(2, n_near)), nn.Parameter(torch.zeros(2, n_near))
        nn.init.normal_(self.near.weight, std=dims**-0.5)
        nn.init.zeros_(self.turn.weight)
        self.hidden, self.out = nn.Linear(N_FEATURES, n_hidden), nn.Linear(n_hidden, 1, bias=False)
        self.straight = nn.Linear(N_FEATURES, 1)
        self.refresh()

    def refresh(self) -> None:
        """Make ``units`` [tokens + BUCKETS, dims] of the table, rounded as vectors.coded does; gradients pass."""
        step = self.table.detach().abs().amax(1, keepdim=True).clamp(min=1e-6) / 7
        rounded = self.table + ((self.table / step).round() * step - self.table).detach()
        self.units = torch.cat([F.normalize(rounded, dim=1), self.get_buffer("others")])

    def read(self, texts: Sequence[str], asking: bool) -> Read:
        """While training, some words are left out."""
        rows, n_words = [], []
        for words, pairs in map(self.known.ids, texts):
            if self.training:
                words = [i for i in words if random.random() > self.drop] or words
                pairs = [i for i in pairs if random.random() > self.drop]
            n_words.append(len(words))
            rows.append([*words, *pairs])
        most = max(1, *map(len, rows))
        ids = torch.tensor([row + [0] * (most - len(row)) for row in rows])
        words_here = torch.arange(most) < torch.tensor(n_words)[:, None]
        role = 0 if asking else 1
        there = ids > 0
        raw = torch.cat([self.raw[role], self.unknown[role].expand(vectors.BUCKETS)])[ids]
        x = F.embedding(ids, self.units) * there[..., None]
        itself = x * words_here[..., None]
        whole = F.normalize((x * (F.softplus(raw) * there)[..., None]).sum(1, keepdim=True), dim=2)
        seen = [F.pad(itself, (0, 0, 1, -1)), itself, F.pad(itself, (0, 0, -1, 1)), whole.expand_as(x)]
        hidden = torch.tanh(self.near(torch.cat(seen, 2)) + self.role[role]) * words_here[..., None]
        x = F.normalize(x + self.turn(hidden), dim=2) * there[..., None]
        raw = raw + hidden @ self.more[role]
        return Read(x, F.softplus(raw) * there, there)

    def features(self, asked: Read, told: Read) -> Tensor:
        """facts.features [questions, statements, N_FEATURES]."""
        (q, m), (n, k) = asked.there.shape, told.there.shape
        a, b = asked.weights, told.weights
        cosine = asked.sums() @ told.sums().T
        like = (asked.units.reshape(q * m, -1) @ told.units.reshape(n * k, -1).T).view(q, m, n, k)
        most = like.masked_fill(~told.there, -1.0).amax(3)  # [q, m, n]
        back = like.masked_fill(~asked.there[:, :, None, None], -1.0).amax(1)  # [q, n, k]
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

    def forward(self, asked: Sequence[str], told: Sequence[str]) -> Tensor:
        """Scores [questions, statements]; "none" has 0."""
        x = self.features(self.read(asked, True), self.read(told, False))
        return (self.out(torch.tanh(self.hidden(x))) + self.straight(x))[..., 0]

    def file(self, least: float) -> bytes:
        """The student as vectors.bin; ``least``, the least score of a fact that is shown, becomes 0."""

        def rounded(values: Tensor) -> list[list[float]]:
            return [[round(x, 5) for x in row] for row in values.detach().tolist()]

        scorer = {
            "hidden": rounded(torch.cat([self.hidden.weight, self.hidden.bias[:, None]], 1)),
            "out": rounded(torch.cat([self.out.weight, self.straight.weight, self.straight.bias[None] - least], 1)),
            "unknown": rounded(self.unknown.T)[0],
        }
        layer = {"near": self.near.weight.tolist(), "turn": self.turn.weight.tolist(),
                 "bias": rounded(self.near.bias + self.role), "more": rounded(self.more)}  # fmt: skip
        counts = self.raw.T.tolist()
        rows = {name: (row, *pair) for name, row, pair in zip(self.known.names, self.table.tolist(), counts) if name}
        return vectors.write(rows, scorer, layer)


# Learning


def begun(known: Vocabulary, teacher: Teacher, texts: list[str], dims: int, n_near: int) -> Student:
    """A student whose tokens point as the teacher's vectors of them do; rare ones weigh more."""
    spoken = {"<n>": "20", "<n.n>": "9:30", "<nnn>": "150", "<cur>": "euro", "": "."}
    whole = teacher.read([spoken.get(name, name.replace("_", " ")) for name in known.names], 256)
    whole = whole - whole.mean(0)
    _, _, axes = torch.pca_lowrank(whole[[("_" not in name) for name in known.names]], q=dims, center=False)
    seen = Counter(at for text in texts for at in set(sum(known.ids(text), [])))
    share = torch.tensor([seen[at] / len(texts) for at in range(len(known.names))])
    weights = (2e-3 / (2e-3 + share)).clamp(0.03)
    weights[[("_" in name) for name in known.names]] *= 0.3
    return Student(known, F.normalize(whole @ axes, dim=1), weights, n_near)


def alike(student: Student, texts: list[str], goal: Tensor, n: int, draw: random.Random) -> Tensor:
    """How far the student is from finding ``n`` texts as alike as the teacher does."""
    at = draw.sample(range(len(texts)), n)
    some = [texts[i] for i in at]
    got, want = student.read(some, True).sums() @ student.read(some, False).sums().T, goal[at] @ goal[at].T
    alone = torch.eye(n, dtype=torch.bool)
    got_ranks, want_ranks = ((x / 0.07).masked_fill(alone, -1e4) for x in (got, want))
    ranks = F.kl_div(got_ranks.log_softmax(1), want_ranks.softmax(1), reduction="batchmean")
    return ranks + 10 * F.mse_loss(got, want)


def answered(student: Student, rated: Rated | None, house: House, n: int, draw: random.Random) -> Tensor | None:
    """Likelihood of the right facts, or of none, and how far the scores are from the teacher's if it has ``rated``."""
    if (some := drawn(house, draw.randint(8, 24), n, draw)) is None:
        return None
    asked, told, right = some
    scores = student(asked, told)
    loss = unlikelihood(scores, right)
    return loss + apart(scores, rated.scores(asked, told)) if rated else loss


def mixed(student: Student, rated: Rated, houses: list[House], n: int, draw: random.Random) -> Tensor:
    """How far the scores are from the teacher's, for facts and questions of several houses put together."""
    chosen = draw.sample(houses, 4)
    told = [text for house in chosen for text in draw.sample(house.facts, min(5, len(house.facts)))]
    asked = [text for house in chosen for text in draw.sample([*(q for q, _ in house.questions), *house.none], n // 4)]
    return apart(student(asked, told), rated.scores(asked, told))


def apart(scores: Tensor, goal: Tensor) -> Tensor:
    """Divergence of the choice among facts and none from the teacher's."""
    got, want = F.pad(scores, (0, 1)), F.pad(goal, (0, 1))
    return F.kl_div(got.log_softmax(1), want.softmax(1), reduction="batchmean")


class Rated:
    """Texts with the teacher's vectors."""

    def __init__(self, teacher: Teacher, texts: list[str]) -> None:
        self.teacher, self.vectors = teacher, teacher.read(texts)
        self.at = {text: at for at, text in enumerate(texts)}

    @torch.inference_mode()
    def scores(self, asked: list[str], told: list[str]) -> Tensor:
        q, f = (self.vectors[[self.at[text] for text in texts]] for texts in (asked, told))
        return self.teacher.scores(q, f)


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


def learn(student: Student, rated: Rated, texts: list[str], houses: tuple[list[House], list[House]],
          steps: tuple[int, int], seed: int, distil: bool) -> None:  # fmt: skip
    """``steps``: at first only likeness of texts, then all.  ``houses``: ours, DSTC9's.  ``distil``: scores, too."""
    draw = random.Random(seed)
    goal, groups = rated.vectors[[rated.at[text] for text in texts]], synonyms(student.known)
    weights = [student.raw, student.unknown]
    rest = [each for name, each in student.named_parameters() if name not in ("raw", "unknown")]
    optimizer = torch.optim.Adam([{"params": rest}, {"params": weights}], betas=(0.9, 0.98))
    first, then = steps
    begin = time.monotonic()
    student.train()
    for step in range(first + then):
        rate = 3e-3 * (1 - 0.7 * step / first) if step < first else 2e-3 * (1 - (step - first) / then)
        for group, factor in zip(optimizer.param_groups, (1, 3)):
            group["lr"] = rate * factor
        student.refresh()
        loss = near = alike(student, texts, goal, 384 if step < first else 128, draw)
        right = torch.tensor(0.0)
        if step >= first:
            goals = rated if distil else None
            parts = [answered(student, goals, draw.choice(houses[0]), 24, draw) for _ in range(3)]
            parts.append(answered(student, goals, draw.choice(houses[1]), 12, draw))
            right = torch.stack([each for each in parts if each is not None]).mean()
            loss = right + 0.3 * near
            if distil:
                loss = loss + 0.5 * mixed(student, rated, houses[0], 24, draw)
        loss = loss + 0.3 * together(student, groups, 96, draw)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"{step:5} {time.monotonic() - begin:5.0f} s  alike {near:.3f}  answers {right:.3f}", flush=True)
    student.eval()
    student.refresh()


# Measuring


#: the best score, whether that fact is right, whether any is
Mark = tuple[float, bool, bool]


def marks(houses: list[House]) -> list[Mark]:
    """What edge.kiosk.facts finds, by the file as it ships."""
    found = []
    for house in houses:
        for text, right in (*house.questions, *((text, ()) for text in house.none)):
            scores = facts.scores(text, tuple(house.facts))
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
    read = (vectors.table, vectors.layer, vectors.stems, vectors.token, vectors.beside)
    for cached in (*read, facts.prepared, facts.scorer, facts.scores):
        cached.cache_clear()


def table(sets: dict[str, list[Mark]]) -> str:
    rows = [f"{'':24}known  none   right beside none   right whatever the score"]
    for name, found in sets.items():
        known = sum(m[2] for m in found)
        percent = "  ".join(f"{share:5.1%}" for share in (*shares(found, 0.0), shares(found, -1e9)[0]))
        rows.append(f"{name:24}{known:5}  {len(found) - known:4}   {percent}")
    return "\n".join(rows)


def tradeoff(found: list[Mark]) -> str:
    """What other least scores would give."""
    rows = [f"{'beside at most':24}least score  right beside none"]
    for beside in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3):
        least = margin(found, beside)
        rows.append(f"{beside:24.0%}{least:11.2f}  " + "  ".join(f"{share:5.1%}" for share in shares(found, least)))
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("knowledge", type=Path, nargs="?")
    parser.add_argument("--check", action="store_true", help="only measure the file that is there")
    parser.add_argument("--out", type=Path, default=Path(vectors.PATH))
    parser.add_argument("--teacher", type=Path, help="file of the tuned teacher: read if it exists, else written")
    parser.add_argument("--tune", type=int, default=400, help="steps of the teacher; 0: as it is, and no scores of it")
    parser.add_argument("--houses", type=int, default=1000, help="learn from so many of the houses of questions.jsonl")
    parser.add_argument("--dims", type=int, default=96)
    parser.add_argument("--near", type=int, default=32, help="hidden numbers of the layer over neighbours")
    parser.add_argument("--words", type=int, default=14000)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--steps", type=int, nargs=2, default=(600, 3000), help="on likeness alone, on all")
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
        chosen = set(random.Random(args.seed).sample(range(len(ours)), min(args.houses, len(ours))))
        ours = [house for at, house in enumerate(ours) if at in chosen]
        theirs = knowledge(args.knowledge)
        teacher = Teacher()
        if args.teacher and args.teacher.exists():
            teacher.load_state_dict(torch.load(args.teacher))
        elif args.tune:
            tune(teacher, [house for house in ours if house.hand in TUNED], theirs, args.tune, args.seed)
            if args.teacher:
                torch.save(teacher.state_dict(), args.teacher)
        task = list(dict.fromkeys(text for house in ours for text in house.texts()))
        faq = list(dict.fromkeys(text for house in theirs for text in house.texts()))
        random.Random(args.seed).shuffle(faq)
        others = sentences(6000, args.seed)
        known = Vocabulary([*task, *faq], others, args.words, args.pairs)
        texts = list(dict.fromkeys([*task, *faq[:8000], *others]))
        student = begun(known, teacher, texts, args.dims, args.near)
        rated = Rated(teacher, list(dict.fromkeys([*texts, *faq])))
        print(f"{len(ours)} houses, {len(known.names)} tokens, {len(rated.at)} texts read by the teacher", flush=True)
        learn(student, rated, texts, (ours, theirs), args.steps, args.seed, args.tune > 0)
        args.out.write_bytes(student.file(0.0))
        load()
        least = margin(marks([house for hand in DEVELOPMENT for house in visited(hand)]), args.beside)
        args.out.write_bytes(student.file(least))
        print(f"{args.out.stat().st_size} bytes; least score {least:.3f}")
    load()
    sets = {"learned": ours, "held out": held} | {f"hand {hand}": visited(hand) for hand in DEVELOPMENT}
    found = {name: marks(houses) for name, houses in sets.items()}
    print(table(found), "\n", sep="")
    print(tradeoff([mark for hand in DEVELOPMENT for mark in found[f"hand {hand}"]]))


if __name__ == "__main__":
    main()
