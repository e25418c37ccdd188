"""The output head: every kind against NumPy float64, and the two-stage head against the int8 head, bit for bit."""

from __future__ import annotations

import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edge
from pyx import machine
from pyx.step import Head, placement
from pyx.tokens import Sampler
from pyx.weights import StoredRows
from tests import handmade
from tests.handmade import ARR, I32, STR, value


def head(rows: np.ndarray, kind: str, n_threads: int = 1) -> Head:
    """A head whose rows are made (the first answer only passes them by)."""
    made = Head(StoredRows("F32", np.ascontiguousarray(rows, np.float32).tobytes(), *rows.shape), kind, n_threads)
    made.apply(array.array("f", bytes(4 * made.k)))
    return made


def logits(of: Head, x: np.ndarray, top: int = 0, n_threads: int = 1) -> np.ndarray:
    """[n][n_row]"""
    flat = array.array("f", np.ascontiguousarray(x, np.float32).ravel().tolist())
    return np.array(of.apply(flat, top, n_threads), np.float32).reshape(-1, of.n_row)


def winners(full: np.ndarray, top: int) -> np.ndarray:
    """The answer of a two-stage head: the top largest, ties included, -inf for the rest."""
    limit = np.sort(full, axis=1)[:, -min(top, full.shape[1])][:, None]
    return np.where(full >= limit, full, np.float32(-np.inf))


def same(got: np.ndarray, want: np.ndarray) -> bool:
    return bool((got.view(np.uint32) == want.view(np.uint32)).all())


def int8_heads(rows: np.ndarray) -> tuple[Head, Head]:
    """(a head that finds the winners in two stages, one of the same rows that reads all)."""
    return head(rows, "two-stage", 3), head(rows, "int8", 3)


def check(heads: tuple[Head, Head], x: np.ndarray, tops=(1, 2, 40)) -> None:
    """The winners are those of the head that reads all, bit for bit, alone, together and by any threads."""
    staged, whole = heads
    full = logits(whole, x)
    assert same(logits(staged, x), full)
    for top in tops:
        for n_threads in (1, 3):
            assert same(logits(staged, x, top, n_threads), winners(full, top)), (top, n_threads)
    for _ in range(12):  # on the way to the first anchor, and with it
        one = np.concatenate([logits(staged, row[None], 1, 2) for row in x])
        assert same(one, winners(full, 1))
    if whole.winners is not None:
        check_several(whole, x, tops)


def check_several(made: Head, x: np.ndarray, tops=(1, 2, 40)) -> None:
    """An int8 head that finds only the winners of five to eight vectors: their logits are those of the whole head."""
    made.winners.least_codes = 0
    several = np.concatenate([x] * 5)[: max(5, len(x))]
    full = logits(made, several)
    for top in tops:
        for n_threads in (1, 3):
            want = winners(full, top) if machine.isa() != "avx2" else full
            assert same(logits(made, several, top, n_threads), want), (top, n_threads)


def integers(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes and scales of the int8 head."""
    most = np.abs(rows).max(1)
    return np.rint(rows * (np.float32(127) / np.maximum(most, np.float32(1e-30)))[:, None]), most / np.float32(127)


@pytest.mark.parametrize(
    "kind, bound",
    [("int8", 1e-2), ("two-stage", 1e-2), ("f16", 1e-3), ("f32", 1e-6)],
)
@pytest.mark.parametrize("k", [1, 96, 513])
def test_near_the_exact_product(kind, bound, k):
    """One quantisation step of the row and of the 14-bit activations for int8."""
    rng = np.random.default_rng(4)
    rows, x = rng.normal(size=(77, k)).astype(np.float32), rng.normal(size=(5, k)).astype(np.float32)
    want = x.astype(np.float64) @ rows.astype(np.float64).T
    got = logits(head(rows, kind), x)
    assert np.linalg.norm(got - want) <= bound * np.linalg.norm(want)
    assert same(got[3:4], logits(head(rows, kind), x[3:4]))  # together or alone


@pytest.mark.parametrize("k", [1, 3, 511, 512, 513, 1100])
@pytest.mark.parametrize("n_row", [1, 2, 63, 64, 65, 200])
def test_two_stage_shapes(n_row, k):
    rng = np.random.default_rng(n_row * 1000 + k)
    check(int8_heads(rng.normal(size=(n_row, k))), rng.normal(size=(3, k)))


def test_two_stage_residual_along_x():
    """Rows whose unread bits all point along x: the estimate is as wrong as Cauchy and Schwarz allow.

    The winner looks worst by its upper bits, and the rows that look best are decoys.
    """
    rng = np.random.default_rng(2)
    k, n_row = 512, 400
    x = np.sign(rng.normal(size=k))
    for low in (15, 7, 3, 1):
        upper = rng.integers(-6, 6, (n_row, k)) * 16
        codes = upper + np.where(x > 0, 0, low)  # decoys: unread bits against x
        codes[::7] = upper[0] + np.where(x > 0, low, 0)  # alike but for the unread bits
        codes[5] = upper[0] + np.where(x > 0, low, 0)
        codes[6] = upper[0] + np.where(x > 0, 0, low)
        codes[:, 0], codes[:, 1] = 127, -127  # the scale of every row is 1
        check(int8_heads(codes), np.stack([x, -x, x * rng.uniform(0.1, 1, k)]))


@pytest.mark.parametrize("bit, rest", [(8, 3), (4, 1)])
def test_two_stage_rounding_along_the_bits(bit, rest):
    """For the bits 3 and 2 the vector is rounded to bytes; here all that is lost lies along, or against, those bits.

    The bits after them are near their middle, so that the bound has little else to give.
    """
    rng = np.random.default_rng(13)
    k, n_row = 4096, 120
    lost = rng.choice([-32, 31], k)  # of 64, the step of the bytes
    x = 64 * rng.integers(-1, 2, k) + lost
    x[0] = 8191  # the scale of the vector is 1
    codes = rng.integers(-1, 1, (n_row, k)) * 16 + rest + np.where(lost > 0, 0, bit)
    codes[::5] = codes[0] + np.where(lost > 0, bit, -bit)
    codes[7] = codes[0]
    codes[7, 3] += 1 if x[3] > 0 else -1  # the best by a single step
    codes[:, 0], codes[:, 1] = 127, -127
    check(int8_heads(codes), np.stack([x, -x, x - lost]))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_two_stage_any_rows(data):
    """Codes drawn from few values and a vector of few values: bounds that are met exactly, many ties."""
    n_row, k = data.draw(st.integers(1, 150)), data.draw(st.integers(1, 40))
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    steps = data.draw(st.sampled_from([1, 2, 4, 8, 16, 64]))
    rows = np.clip(rng.integers(-128 // steps, 128 // steps + 1, (n_row, k)) * steps, -127, 127).astype(np.float32)
    x = rng.integers(-2, 3, (2, k)) * data.draw(st.sampled_from([1.0, 1e-3, 0.37]))
    check(int8_heads(rows), x, (1, data.draw(st.integers(1, 256))))


@pytest.mark.parametrize("isa", machine.supported())
def test_several_vectors_on_every_row(isa, own_isa):
    rng = np.random.default_rng(14)
    machine.use(isa)
    for n_row, k in ((1, 7), (70, 64), (700, 300), (129, 1100)):
        check_several(head(rng.normal(size=(n_row, k)), "int8", 3), rng.normal(size=(6, k)), (1, 5, 256))


def test_sizes():
    for kind, size in (("two-stage", 77 * (64 * 8 + 28)), ("int8", 77 * (96 + 4)), ("f16", 77 * 192),
                       ("f32", 77 * 384)):
        made = head(np.ones((77, 96)), kind)
        assert made.nbytes == size and placement(kind, "F32", 77, 96, 1).nbytes == size
        assert made.mapped == (kind == "f32") and made.allocated == (0 if kind == "f32" else size)
    assert placement("native", "F16", 77, 96, 1)[:3] == ("f16", 77 * 192, True)
    for kind in ("auto", "q8_0"):
        assert placement(kind, "Q8_0", 77, 96, 1)[:3] == ("q8_0", 77 * 102, True)
    assert placement("auto", "F16", 77, 96, 1)[:3] == ("int8", 77 * 100, False)
    assert placement("native", "Q8_0", 77, 96, 1)[:3] == ("f32", 77 * 384, False)


def test_what_is_refused():
    rows = np.ones((4, 32))
    for kind in ("int3", "q8_0"):  # Q8_0 is never made, only used
        with pytest.raises(ValueError, match=f"{kind}.*not"):
            head(rows, kind)
    with pytest.raises(ValueError, match="16384"):
        head(np.ones((1, 16385)), "two-stage")
    for size, top in ((31, 0), (9 * 32, 0), (0, 0), (32, -1), (32, 257)):
        with pytest.raises(ValueError):
            head(rows, "int8").apply(array.array("f", bytes(4 * size)), top)
    with pytest.raises(ValueError, match="threads"):
        head(rows, "int8").apply(array.array("f", bytes(4 * 32)), 0, 2)


# ---- in two stages: codes of our own, and blocks of Q8_0 where they lie ---------------------------------------------


def q8_0(codes: np.ndarray, scales: np.ndarray) -> StoredRows:
    """Rows of blocks: codes int8 [n_row][k], scales [n_row][k / 32]."""
    n_row, k = codes.shape
    blocks = np.empty((n_row, k // 32, 34), np.uint8)
    blocks[:, :, :2] = scales.astype(np.float16)[..., None].view(np.uint8)
    blocks[:, :, 2:] = codes.astype(np.int8).view(np.uint8).reshape(n_row, k // 32, 32)
    return StoredRows("Q8_0", blocks.tobytes(), n_row, k)


def q8_0_of(rows: np.ndarray) -> StoredRows:
    n_row, k = rows.shape
    with np.errstate(over="ignore"):
        scales = (np.abs(rows).reshape(n_row, -1, 32).max(2) / 127).astype(np.float16)
    by = np.where(scales == 0, 1, scales).astype(np.float64)
    codes = np.clip(np.rint(rows.reshape(n_row, -1, 32) / by[..., None]), -128, 127)
    return q8_0(codes.reshape(n_row, k), scales)


def staged_q8_0(rows: StoredRows, n_threads: int = 3) -> Head:
    """With all planes made, by different numbers of threads."""
    of = Head(rows, "two-stage", n_threads)
    zero = array.array("f", bytes(4 * of.k))
    for i in range(32 + 64 + 2):
        of.apply(zero, 1, n_threads if i % 8 == 0 else 1)
    assert of.kind == "two-stage" and of.mapped
    return of


def q8_0_heads(rows: StoredRows | np.ndarray) -> tuple[Head, Head]:
    """As :func:`int8_heads`, of blocks."""
    stored = q8_0_of(rows) if isinstance(rows, np.ndarray) else rows
    return staged_q8_0(stored), Head(stored, "q8_0")


BOTH = {"int8": int8_heads, "q8_0": q8_0_heads}
each_kind = pytest.mark.parametrize("heads", BOTH.values(), ids=BOTH)


@each_kind
def test_ties_and_equal_rows(heads):
    """Every row that shares the last place must come through: the sampler breaks ties by the lower id."""
    rng = np.random.default_rng(3)
    rows = np.repeat(rng.normal(size=(9, 96)), 40, axis=0)
    rng.shuffle(rows)
    check(heads(rows), np.concatenate([rng.normal(size=(3, 96)), rows[:1], np.zeros((1, 96))]), (1, 39, 40, 41, 256))
    x = rng.normal(size=(2, 64))
    for rows in (np.ones((300, 64)), np.zeros((300, 64))):
        check(heads(rows), x, (1, 200))
    check(heads(-np.abs(rng.normal(size=(300, 64)))), np.abs(x))  # all logits below zero


@each_kind
def test_rows_that_are_no_numbers(heads):
    """A broken file: what the head that reads all answers, the winners in two stages answer, too."""
    rng = np.random.default_rng(6)
    rows, x = rng.normal(size=(300, 64)).astype(np.float32), rng.normal(size=(3, 64))
    rows[10], rows[20, 3], rows[30, 3], rows[90, 0] = np.nan, np.inf, -np.inf, 3e38
    with np.errstate(invalid="ignore"):
        staged, whole = heads(rows)
        for top in (1, 5, 256):
            full, got = logits(whole, x), logits(staged, x, top)
            usable = np.where(np.isnan(full), -np.inf, full)
            limit = np.sort(usable, axis=1)[:, -top][:, None]
            assert (got[usable >= limit] == usable[usable >= limit]).all()
            assert not (got[usable < limit] > -np.inf).any()


@each_kind
@pytest.mark.parametrize("isa", machine.supported())
def test_two_stages_on_every_row(isa, heads, own_isa):
    rng = np.random.default_rng(11)
    rows, x = rng.normal(size=(700, 1056)), rng.normal(size=(3, 1056))
    machine.use("scalar")
    want = winners(logits(heads(rows)[1], x), 10)
    machine.use(isa)
    assert same(logits(heads(rows)[0], x, 10), want)


@each_kind
def test_two_stages_read_few_rows(heads):
    """Rows that stand out are found by reading little else, and the count says so."""
    rng = np.random.default_rng(8)
    rows, x = rng.normal(size=(5000, 512)), rng.normal(size=512)
    rows[77] += 0.3 * x
    staged, _ = heads(rows)
    before = np.array(staged.bit_planes.rows_read)
    got = logits(staged, x[None], 1)[0]
    assert got.argmax() == 77 and np.isneginf(np.delete(got, 77)).all()
    read = np.array(staged.bit_planes.rows_read) - before
    assert 1 <= read[2] <= read[1] <= read[0] < 1000 and read[2] < 50


def test_q8_0_in_two_stages_blocks_of_scale_zero():
    rng = np.random.default_rng(5)
    codes, scales = rng.integers(-127, 128, size=(300, 64)), np.full((300, 2), 0.01)
    x = np.concatenate([rng.normal(size=(3, 64)), -codes[1:2] * 1.0])
    check(q8_0_heads(q8_0(codes, np.zeros((300, 2)))), x)
    scales[::3] = 0
    check(q8_0_heads(q8_0(codes, scales)), x)


def test_q8_0_in_two_stages_near_ties():
    """Rows that differ from the best by one code: the bounds must not be tighter than the rounding of the logits."""
    rng = np.random.default_rng(6)
    best = rng.integers(-120, 121, size=1024)
    codes = np.repeat(best[None], 600, 0)
    for row in range(600):
        codes[row, rng.integers(0, 1024, 3)] += rng.integers(-1, 2, 3)
    scales = np.repeat(rng.uniform(0.001, 0.02, (1, 32)), 600, 0)
    check(q8_0_heads(q8_0(codes, scales)), np.stack([best * 1.0, -best * 1.0, rng.normal(size=1024)]), (1, 5, 40))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_q8_0_in_two_stages_any_rows(data):
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    n_row, k = data.draw(st.integers(1, 90)), 32 * data.draw(st.integers(1, 20))
    spread = data.draw(st.sampled_from([0.0, 0.3, 2.0]))
    codes = rng.integers(-128, 128, size=(n_row, k)) // data.draw(st.sampled_from([1, 9, 100]))
    scales = 0.01 * np.exp(spread * rng.normal(size=(n_row, k // 32)))
    x = rng.normal(size=(2, k))
    if data.draw(st.booleans()):
        x[1] = codes[0] + 0.01 * x[1]
    check(q8_0_heads(q8_0(codes, scales)), x, (1, data.draw(st.integers(1, 256))))


def test_q8_0_in_two_stages_is_made_a_part_at_a_time():
    """Until then all rows are read, and a vector that asks for all logits still reads all of them."""
    rng = np.random.default_rng(9)
    rows, x = q8_0_of(rng.normal(size=(700, 96))), rng.normal(size=(2, 96))
    staged, full = Head(rows, "two-stage", 3), logits(Head(rows, "q8_0"), x)
    for _ in range(32 + 64):
        assert same(logits(staged, x, 3, 2), full)
    assert same(logits(staged, x, 3, 2), winners(full, 3))
    assert same(logits(staged, x, 0, 2), full)
    assert staged.nbytes == 700 * 102 and staged.allocated == 700 * (64 * 6 + 28)
    assert placement("two-stage", "Q8_0", 700, 96, 3) == (
        "two-stage", staged.nbytes, True, staged.scratch, staged.allocated, 0)


# ---- in the engine --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def padded(tmp_path_factory):
    """A model of 20 rows for 14 texts; of the others, which are in the middle and at the end, one is always first."""
    random = np.random.default_rng(3)
    n_rows, unused = 20, [5, 13, *range(14, 20)]
    rows = random.standard_normal((n_rows, handmade.HIDDEN)).astype(np.float16)
    for i, row in enumerate(unused):
        rows[row] = rows[unused[0]] * 50 * (-1) ** i
    tokens = [chr(97 + i) for i in range(14)]
    tokens[5], tokens[13] = "[PAD5]", "[PAD13]"
    types = [5 if i in unused else 1 for i in range(14)]
    keys = {"tokenizer.ggml.tokens": value(ARR, (STR, tokens)), "tokenizer.ggml.token_type": value(ARR, (I32, types)),
            "tokenizer.ggml.merges": None, "tokenizer.chat_template": value(STR, "abcd"),
            "tokenizer.ggml.bos_token_id": None, "tokenizer.ggml.eos_token_id": None}
    path = tmp_path_factory.mktemp("padded") / "m.gguf"
    path.write_bytes(handmade.model("llama", keys=keys, tensors={
        "token_embd.weight": ((handmade.HIDDEN, n_rows), 1, rows.tobytes()), "output.weight": None}))
    return path


@pytest.mark.parametrize("kind", ["int8", "two-stage"])
def test_rows_of_padding_are_never_chosen(padded, kind):
    """At any temperature, with log probabilities, a grammar and several answers."""
    forbidden = {5, 13, *range(14, 20)}
    with edge.load(str(padded), ctx=64, threads=1, head=kind, parallel=2) as engine:
        assert set(engine.model.unused) == forbidden
        sessions = [engine.session() for _ in range(2)]
        for seed, temperature in enumerate((0.0, 0.7, 1.0, 5.0)):
            for asked in ({}, {"top_k": 0}, {"top_k": 3}, {"logprobs": 20, "top_k": 0}, {"regex": "[a-z\\[\\]A-Z0-9]*"},
                          {"presence_penalty": -5.0, "top_k": 0}):
                answers = [each.complete([0, 1, 2, 0, 1], temperature=temperature, seed=seed, max_tokens=12, **asked)
                           for each in sessions]
                for answer in answers:
                    ids = [i for piece in answer for i in piece.ids]
                    assert ids and not forbidden & set(ids), (temperature, asked)
                    for each in answer.logprobs:
                        assert each.id not in forbidden and not forbidden & {top.id for top in each.top}


@pytest.fixture(scope="module")
def engines():
    """The bundled model with the whole head and with the two-stage one."""
    with edge.load(ctx=512, threads=1) as whole, edge.load(ctx=512, threads=1, head="two-stage") as staged:
        yield whole, staged


SAMPLINGS = [
    edge.Sampling(temperature=0, repeat_penalty=1.3),
    edge.Sampling(seed=3, temperature=1.5, repeat_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.2),
    edge.Sampling(seed=4, temperature=1.5, repeat_penalty=0.8, repeat_last_n=20),  # lifts tokens: all logits are needed
    edge.Sampling(temperature=1.0, top_k=0, repeat_penalty=1.1, seed=7),
    edge.Sampling(seed=8, temperature=1.0, top_k=300),  # more winners than a two-stage head is asked for
]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=range(len(SAMPLINGS)))
def test_two_stage_chooses_the_same_tokens(engines, sampling):
    answers = []
    for engine in engines:
        with engine.session() as session:
            answers.append([
                session.ask(text, sampling=sampling, max_tokens=40, ignore_eos=True).text
                for text in ("Two large coffees and a tea, please.", "My name is Zorblax. What does it cost?")])
    assert answers[0] == answers[1]


def test_winners_are_enough():
    """Penalties of any size on any recent tokens: the choice among the winners is the choice among all."""
    rng = np.random.default_rng(9)
    for trial in range(300):
        sampling = edge.Sampling(
            temperature=float(rng.choice([0, 0.5, 3])),
            top_k=int(rng.integers(1, 8)),
            top_p=float(rng.choice([0.5, 0.9, 1])),
            min_p=float(rng.choice([0, 0.1])),
            repeat_penalty=float(rng.choice([1, 1.5, 30])),
            repeat_last_n=int(rng.integers(1, 9)),
            presence_penalty=float(rng.choice([0, 2, 50])),
            frequency_penalty=float(rng.choice([0, 1])),
        )
        full = rng.choice([1.0, 0.1], size=60).astype(np.float32) * rng.integers(-6, 7, 60).astype(np.float32)
        recent = array.array("i", rng.integers(0, 60, sampling.repeat_last_n).tolist())
        kept = winners(full[None], sampling.winners)[0]
        args = (
            *(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p),
            *(sampling.repeat_penalty, sampling.presence_penalty, sampling.frequency_penalty, recent),
        )
        assert 1 <= sampling.winners <= 16
        assert Sampler(60, trial).sample(full.copy(), *args) == Sampler(60, trial).sample(kept, *args), sampling
    assert edge.Sampling(top_k=0).winners == 0
    assert edge.Sampling(repeat_penalty=0.9).winners == 0
    assert edge.Sampling(repeat_penalty=1.1, repeat_last_n=-1).winners == 0


@pytest.mark.parametrize("k", [32, 512, 2080])
def test_blocks_of_the_file_are_used_where_they_lie(k):
    """Q8_0 as the gguf package writes it: near the exact product, the same together or alone and by any threads."""
    from gguf import GGMLQuantizationType, quants

    rng = np.random.default_rng(k)
    rows, x = rng.normal(size=(333, k)).astype(np.float32), rng.normal(size=(8, k)).astype(np.float32)
    stored = quants.quantize(rows, GGMLQuantizationType.Q8_0)
    of = Head(StoredRows("Q8_0", stored.tobytes(), *rows.shape), "auto", 3)
    assert of.kind == "q8_0" and of.mapped and of.allocated == 0 and of.nbytes == stored.nbytes
    got = logits(of, x)
    want = x.astype(np.float64) @ quants.dequantize(stored, GGMLQuantizationType.Q8_0).astype(np.float64).T
    assert np.linalg.norm(got - want) <= 2e-4 * np.linalg.norm(want)  # half a step of 14-bit activations
    assert same(got, logits(of, x, 40, 3))
    assert same(got[3:4], logits(of, x[3:4]))


@pytest.mark.parametrize("type", ["F32", "F16"])
@pytest.mark.parametrize("n", [1, 3, 8])
def test_the_first_answer_is_that_of_the_rows_it_does_not_keep(type, n):
    """Bit for bit, for any number of threads and vectors, and so is one after that."""
    rng = np.random.default_rng(n)
    rows = rng.standard_normal((1000, 160)).astype({"F32": np.float32, "F16": np.float16}[type])
    rows[3] = 0
    rows[4] *= 1e-6  # subnormal halves
    x = rng.standard_normal((n, 160)).astype(np.float32)
    for n_threads in (1, 2, 3):
        fresh = Head(StoredRows(type, rows.tobytes(), *rows.shape), "int8", 3)
        first = logits(fresh, x, 0, n_threads)
        made = logits(fresh, x, 0, n_threads)
        assert same(first, made)
        assert same(made, logits(fresh, x, 0, 1))
        codes, scale = integers(rows.astype(np.float32))
        assert np.allclose(first, x @ (codes * scale[:, None]).T, rtol=1e-3, atol=2e-2)
