"""Pages of KV caches: every byte of a sealed one against NumPy, and attention over them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyx.kv import KV_TYPES, KVCache, page_types
from pyx.step import attention
from tests.oracles.attention import attend, kept
from tests.oracles.pages import PAGE, block_bytes, decode_page, e4m3, quantised, rotated
from tests.streams import Stream, dumped, restored

SEALED = [name for name in KV_TYPES if name not in ("f32", "f16")]
#: exact to the last bit; the others round one sum (of least squares, of a mean) in float32
EXACT = ["int8", "int4c", "fp8"]


def seal(kv_type: str, keys: np.ndarray, values: np.ndarray) -> bytes:
    """The sealed page of 32 tokens [32][D]."""
    cache = KVCache(1, 1, keys.shape[1], 64, kv_type)
    x = [np.ascontiguousarray(each, np.float32).ravel() for each in (keys, keys, values)]
    attention(cache, 0, *x)
    data, kind = cache.page(0, 0, 0)
    assert kind == kv_type
    return data


def normal(rng: np.random.Generator, D: int) -> np.ndarray:
    return rng.normal(size=(PAGE, D)).astype(np.float16)


def awkward(draw, D: int, most: float = 65504) -> np.ndarray:
    """Tokens of any sort: zeros, denormals, the largest numbers, outliers, all equal, one sign only."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    x = rng.normal(size=(PAGE, D)) * 10.0 ** draw(st.integers(-7, 3))
    for kind in draw(st.lists(st.sampled_from(range(6)), max_size=4)):
        t, d = draw(st.integers(0, PAGE - 1)), draw(st.integers(0, D - 1))
        if kind == 0:
            x[t] = 0.0
        elif kind == 1:
            x[:, d] = rng.integers(-9, 9, PAGE) * 2.0**-24
        elif kind == 2:
            x[t, d] = draw(st.sampled_from([-most, most]))
        elif kind == 3:
            x[:, d] += 100.0
        elif kind == 4:
            x[t] = np.abs(x[t, d]) + 1
        else:
            x = np.abs(x)
    return np.clip(x, -most, most).astype(np.float16)


def stored(keys: np.ndarray, kind: str) -> np.ndarray:
    """The keys as an open page has them: INT4 rotates them first."""
    return rotated(keys).astype(np.float16) if kind == "int4" else keys


#: numbers whose rotation is a half float
ROTATES = 5000.0


@pytest.mark.parametrize("kind", SEALED)
@settings(max_examples=20)
@given(data=st.data())
def test_sealed_pages_hold_what_they_should(kind, data):
    D = data.draw(st.sampled_from([4, 8, 12, 20, 64, 96, 100, 128]))
    keys, values = awkward(data.draw, D, ROTATES if kind == "int4" else 65504), awkward(data.draw, D)
    got = decode_page(seal(kind, keys, values), kind, D)
    for found, x, of_values in zip(got, (stored(keys, kind), values), (False, True), strict=True):
        expected = quantised(x, kind, of_values)
        assert np.isfinite(found).all()
        if kind in EXACT or (kind == "int4" and of_values):
            assert (found == expected).all()
        else:
            assert (np.abs(found - expected) <= np.abs(expected) * 2.0**-9 + 16 * 2.0**-24).all()


def test_fp8_is_the_published_format():
    """Landmarks of arXiv 2209.05433, table 1; and every code against PyTorch's, where that is installed."""
    assert e4m3()[[0x01, 0x07, 0x08, 0x38, 0x7E, 0xFE]].tolist() == [2**-9, 7 * 2**-9, 2**-6, 1.0, 448.0, -448.0]
    torch = pytest.importorskip("torch")
    theirs = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).to(torch.float64).numpy()
    assert np.array_equal(e4m3(), theirs, equal_nan=True)


def test_fp8_pages_keep_all_their_codes():
    """Tokens that hold 448 have scale 1: every finite code comes back as it was."""
    table = e4m3()[np.isfinite(e4m3())]
    x = np.resize(table, (PAGE, 128)).astype(np.float16)
    x[:, 0] = 448
    keys, values = decode_page(seal("fp8", x, x), "fp8", 128)
    assert (keys == x).all() and (values == x).all()
    assert (np.signbit(keys) == np.signbit(x)).all()


def test_sizes_are_those_of_the_layouts():
    """And, for heads of 128, the published ones: bytes per token and head with all scales."""
    per_token = {"f16": 512, "int8": 260, "fp8": 260, "int4": 152, "int4c": 160,
                 "binary": 36, "int8:int4": 210}
    for kind, wanted in per_token.items():
        assert KVCache.bytes_for(1, 1, 128, 64, kind) - KVCache.bytes_for(1, 1, 128, 32, kind) == wanted * 32
    for k_type in KV_TYPES:
        for v_type in KV_TYPES:
            for D in (4, 12, 20, 96, 100):
                size = KVCache.bytes_for(1, 1, D, 64, f"{k_type}:{v_type}") - KVCache.bytes_for(
                    1, 1, D, 32, f"{k_type}:{v_type}")
                assert size == block_bytes(k_type, False, D) + block_bytes(v_type, True, D)


# ---- attention over them ---------------------------------------------------------------------------------------------

#: relative error of attention against the decoded page, by type of the keys (queries of 8 bits) and of the values
#: (probabilities of 8 bits, which weigh codes from 0 on more than those around 0)
FLOATS = {"f32": 1e-5, "f16": 1e-5, "fp8": 1e-5}
KEYS, VALUES = {**dict.fromkeys(SEALED, 9e-3), **FLOATS}, {**dict.fromkeys(SEALED, 1.15e-2), **FLOATS}
VALUES["int8"] = VALUES["binary"] = 6e-3
#: relative error against what was given, gaussian
STORAGE = {"int8": 0.02, "int4": 0.15, "int4c": 0.125, "fp8": 0.045, "binary": 0.85,
           "int8:int4": 0.095}


def attended(kv_type: str, D: int, q: np.ndarray, keys: np.ndarray, values: np.ndarray, **options) -> np.ndarray:
    """The answer to the last of n tokens; q [n][n_head][D], keys and values [n][n_kv_head][D]."""
    cache = KVCache(1, keys.shape[1], D, len(keys), kv_type, **options)
    out = attention(cache, 0, *(each.astype(np.float32).ravel() for each in (q, keys, values)))
    return np.array(out).reshape(q.shape)[-1]


@pytest.mark.parametrize(
    "kv_type", [*SEALED, "int8:int4", "int4:f16", "f16:int4c", "fp8:binary", "f32:int8", "int4c:f32"]
)
@pytest.mark.parametrize("D", [128, 96, 100])
def test_attention_is_that_over_the_decoded_page(kv_type, D):
    """64 sealed tokens and one in the open page, five query heads per KV head (one more than share a load)."""
    rng = np.random.default_rng(D)
    n, n_kv = 65, 2
    keys, values = (rng.normal(size=(n, n_kv, D)).astype(np.float16).astype(np.float32) for _ in range(2))
    q = (rng.normal(size=(n, 10, D)) / np.sqrt(D)).astype(np.float32)
    cache = KVCache(1, n_kv, D, n, kv_type)
    out = np.array(attention(cache, 0, q.ravel(), keys.ravel(), values.ravel())).reshape(q.shape)[-1]
    k_type, v_type = (kv_type.split(":") * 2)[:2]
    asked, k = (rotated(each).astype(np.float64) if k_type == "int4" else each.astype(np.float64)
                for each in (q[-1], keys))
    v = values.astype(np.float64)
    for page in range(2):
        for head in range(n_kv):
            data, kind = cache.page(0, head, page)
            assert kind == page_types(kv_type)
            part = slice(page * PAGE, (page + 1) * PAGE)
            k[part, head], v[part, head] = decode_page(data, kind, D)
    expected = attend(asked, k, v)
    error = np.linalg.norm(out - expected) / np.linalg.norm(expected)
    assert error <= np.hypot(KEYS[k_type], VALUES[v_type])
    given_tokens = attend(q[-1], keys, values)
    if kv_type in STORAGE:
        assert np.linalg.norm(out - given_tokens) <= 1.1 * STORAGE[kv_type] * np.linalg.norm(given_tokens)


@pytest.mark.parametrize("kv_type", STORAGE)
def test_error_over_a_long_text(kv_type):
    """1024 gaussian tokens: each type stays within its own bound, and is no better than it can be (one that keeps more
    than it says would show here)."""
    rng = np.random.default_rng(7)
    D, n = 128, 1025
    keys, values = (rng.normal(size=(n, 1, D)).astype(np.float32) for _ in range(2))
    q = (rng.normal(size=(n, 4, D)) / np.sqrt(D)).astype(np.float32)
    expected = attend(q[-1], keys, values)
    error = np.linalg.norm(attended(kv_type, D, q, keys, values) - expected) / np.linalg.norm(expected)
    assert STORAGE[kv_type] / 2 <= error <= STORAGE[kv_type]


@pytest.mark.parametrize("kv_type", SEALED)
def test_any_batching_crop_and_copy_gives_the_same_bits(kv_type):
    rng = np.random.default_rng(3)
    D, n = 32, 200
    q, keys, values = (rng.normal(size=(n, heads, D)).astype(np.float32) for heads in (4, 2, 2))

    def run(cache: KVCache, *batches: int, threads: int = 1) -> np.ndarray:
        outs, at = [], cache.n_tokens
        for m in batches:
            part = [each[at : at + m].ravel() for each in (q, keys, values)]
            outs.append(np.array(attention(cache, 0, *part, threads)))
            at += m
        return np.concatenate(outs)

    def make() -> KVCache:
        return KVCache(1, 2, D, n, kv_type, window=100, sinks=4, spare=1)

    first = make()
    straight = run(first, n).reshape(n, -1)
    assert np.isfinite(straight).all()
    assert run(make(), *[1] * n).tobytes() == straight.tobytes()
    assert run(make(), 31, 2, 97, 70, threads=2).tobytes() == straight.tobytes()
    cut = make()
    run(cut, 170)
    kept = cut.crop(165)
    assert 0 < kept <= 165
    copy = cut.fork()
    for cache in (cut, copy):
        assert run(cache, n - kept).tobytes() == straight[kept:].tobytes()
    assert dumped(copy) == dumped(first)  # no byte of it is left to chance
    restored(make(), first)


@pytest.mark.parametrize("kv_type", ["f16", *SEALED])
def test_zeros_and_extremes(kv_type):
    """No NaN, no saturation: equal scores give the mean of the values."""
    n, D = 70, 64
    for value in (0.0, 1000.0, -ROTATES if kv_type == "int4" else -6e4):
        keys = np.full((n, 1, D), value, np.float32)
        values = np.full((n, 1, D), 3.0, np.float32)
        q = np.full((n, 1, D), 1e-4, np.float32)
        out = attended(kv_type, D, q, keys, values)
        assert np.abs(out - 3.0).max() <= 0.02
    assert (attended(kv_type, D, q, keys, np.zeros((n, 1, D))) == 0).all()


# ---- float pages, every page and ring boundary: float64 over exactly the kept tokens ---------------------------------


@pytest.mark.parametrize("head_dim", [64, 96, 100, 128, 256])
@pytest.mark.parametrize("heads", [(1, 1), (4, 2), (5, 5), (8, 1)])
def test_f32_equals_float64(head_dim, heads):
    n = 2 * PAGE + 1
    s = Stream(n, *heads, head_dim)
    out = s.run(KVCache(1, heads[1], head_dim, n, "f32"), [1] * n)[0]
    assert np.abs(out - s.expected(0, 0)).max() <= 2e-6 * np.abs(s.v).max()


@pytest.mark.parametrize("window", [0, 512])
@pytest.mark.parametrize(("kv_type", "stored", "bound"), [("f32", np.float32, 2e-6), ("f16", np.float16, 5e-6)])
def test_a_long_text_equals_float64(window, kv_type, stored, bound):
    """K1 and P1 up to 4097 tokens, four query heads to a KV head: at the edges of pages, chunks and windows."""
    n, at = 4097, [0, 1, 31, 32, 33, 255, 256, 257, 511, 512, 513, 516, 517, 1023, 1024, 2049, 4063, 4064, 4095, 4096]
    s = Stream(n, 8, 2, 64, seed=3)
    cache = KVCache(1, 2, 64, n, kv_type, window, 4 if window else 0)
    (out,) = s.run(cache, [1] * 40 + [217, 300, 1, *[128] * 27, 82, 1])
    assert len(out) == n
    for t in at:
        seen = kept(t, window, 4 if window else 0)
        k, v = (each[0, seen].astype(stored) for each in (s.k, s.v))
        assert np.abs(out[t] - attend(s.q[0, t], k, v)).max() <= bound * np.abs(s.v).max(), t


@pytest.mark.parametrize("kv_type", ["f32", "f16"])
@pytest.mark.parametrize("window", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("sinks", [0, 1, 4, 33])
def test_ring_attends_exactly_the_kept_tokens(kv_type, window, sinks):
    n = 3 * window + 71
    s = Stream(n, 2, 1, 64)
    out = s.run(KVCache(1, 1, 64, n, kv_type, window, sinks), [1] * n)[0]
    stored = np.float32 if kv_type == "f32" else np.float16
    assert np.abs(out - s.expected(window, sinks, stored=stored)).max() <= 5e-6 * np.abs(s.v).max()


@pytest.mark.parametrize(
    "args", [(0, 1, 64, 10), (1, 1, 63, 10), (1, 1, 64, 0), (1, 1, 64, 10, "int5"), (1, 1, 64, 10, "f16", -1)]
)
def test_bad_shapes_are_refused(args):
    with pytest.raises(ValueError):
        KVCache(*args)
