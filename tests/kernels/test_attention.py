"""KV pages and attention against float64 over exactly the kept tokens, at every page and ring boundary."""

from __future__ import annotations

import numpy as np
import pytest

from pyx.kv import KVCache
from pyx.step import attention
from tests.oracles.attention import PAGE, attend, kept
from tests.oracles.pages import decode_page
from tests.streams import Stream


@pytest.mark.parametrize("head_dim", [64, 96, 100, 128, 256])
@pytest.mark.parametrize("heads", [(1, 1), (4, 2), (5, 5), (8, 1)])
def test_f32_equals_float64(head_dim, heads):
    n = 2 * PAGE + 1
    s = Stream(n, *heads, head_dim)
    out = s.run(KVCache(1, heads[1], head_dim, n, "f32"), [1] * n)[0]
    assert np.abs(out - s.expected(0, 0)).max() <= 2e-6 * np.abs(s.v).max()


@pytest.mark.parametrize("window", [0, 512])
def test_f32_equals_float64_in_a_long_text(window):
    """K1 and P1 up to 4097 tokens, four query heads to a KV head: at the edges of pages, chunks and windows."""
    n, at = 4097, [0, 1, 31, 32, 33, 255, 256, 257, 511, 512, 513, 516, 517, 1023, 1024, 2049, 4063, 4064, 4095, 4096]
    s = Stream(n, 8, 2, 64, seed=3)
    cache = KVCache(1, 2, 64, n, "f32", window, 4 if window else 0)
    (out,) = s.run(cache, [1] * 40 + [217, 300, 1, *[128] * 27, 82, 1])
    assert len(out) == n
    for t in at:
        seen = kept(t, window, 4 if window else 0)
        assert np.abs(out[t] - attend(s.q[0, t], s.k[0, seen], s.v[0, seen])).max() <= 2e-6 * np.abs(s.v).max(), t


@pytest.mark.parametrize("n", [31, 32, 33, 255, 256, 257, 600])
def test_f16_error_is_storage_only(n):
    s = Stream(n, 4, 2, 64)
    out = s.run(KVCache(1, 2, 64, n, "f16"), [1] * n)[0]
    assert np.abs(out - s.expected(0, 0, stored=np.float16)).max() <= 5e-6 * np.abs(s.v).max()
    assert np.linalg.norm(out - s.expected(0, 0)) <= 1e-3 * np.linalg.norm(out)


@pytest.mark.parametrize("n", [33, 65, 95, 300])
def test_int8_stays_near(n):
    """Gaussian: against unquantised keys and values 2e-2 relative, against its own decoded pages 8e-3."""
    s = Stream(n, 4, 2, 128, peak=1)
    cache = KVCache(1, 2, 128, n, "int8")
    out = s.run(cache, [1] * n)[0]
    assert np.linalg.norm(out - s.expected(0, 0)) <= 2e-2 * np.linalg.norm(out)
    k, v = np.zeros((n, 2, 128)), np.zeros((n, 2, 128))
    for page in range((n + PAGE - 1) // PAGE):
        for head in range(2):
            data, kind = cache.page(0, head, page)
            assert kind == ("f16" if page == n // PAGE else "int8")
            stop = min(n, (page + 1) * PAGE)
            keys, values = decode_page(data, kind, 128)
            k[page * PAGE : stop, head] = keys[: stop - page * PAGE]
            v[page * PAGE : stop, head] = values[: stop - page * PAGE]
    last = attend(s.q[0, -1], k, v)
    assert np.linalg.norm(out[-1] - last) <= 8e-3 * np.linalg.norm(last)
    # each element within half a step of its token's scale, and half floats exact
    scale = np.abs(s.k[0]).max(axis=2, keepdims=True) / 127
    assert (np.abs(k - s.k[0]) <= scale * 0.51 + 1e-3 * np.abs(s.k[0])).all()


@pytest.mark.parametrize("kv_type", ["f32", "f16"])
@pytest.mark.parametrize("window", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("sinks", [0, 1, 4, 33])
def test_ring_attends_exactly_the_kept_tokens(kv_type, window, sinks):
    n = 3 * window + 71
    s = Stream(n, 2, 1, 64)
    out = s.run(KVCache(1, 1, 64, n, kv_type, window, sinks), [1] * n)[0]
    stored = np.float32 if kv_type == "f32" else np.float16
    assert np.abs(out - s.expected(window, sinks, stored=stored)).max() <= 5e-6 * np.abs(s.v).max()


def test_int8_ring_with_sinks():
    s = Stream(500, 2, 1, 64)
    out = s.run(KVCache(1, 1, 64, 500, "int8", 70, 4), [1] * 500)[0]
    expected = s.expected(70, 4)
    assert np.linalg.norm(out - expected) <= 2e-2 * np.linalg.norm(expected)


def test_all_extreme_and_zero_vectors():
    """+-large everywhere and all-zero tokens: no NaN, no saturation (exact softmax over equal scores)."""
    n = 70
    for value in (0.0, 1000.0, -1000.0, 6e4):
        k = np.full((n, 1, 64), value, np.float32)
        sign = np.where(np.arange(n)[:, None, None] % 2, np.float32(1), np.float32(-1))
        v = 127 * sign * np.ones((1, 1, 64), np.float32)
        q = np.full((n, 1, 64), 1e-4, np.float32)
        for kv_type in ("f16", "int8"):
            cache = KVCache(1, 1, 64, n, kv_type)
            out = np.array(attention(cache, 0, q.ravel(), k.ravel(), v.ravel())).reshape(n, 64)
            expected = np.array([v[: t + 1, 0].mean(axis=0) for t in range(n)])
            assert np.isfinite(out).all()
            assert np.abs(out - expected).max() <= 1.3


@pytest.mark.parametrize(
    "args", [(0, 1, 64, 10), (1, 1, 63, 10), (1, 1, 64, 0), (1, 1, 64, 10, "int5"), (1, 1, 64, 10, "f16", -1)]
)
def test_bad_shapes_are_refused(args):
    with pytest.raises(ValueError):
        KVCache(*args)
