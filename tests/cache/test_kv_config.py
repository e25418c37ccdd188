"""The KV plan: exact bytes, exact windows, and refusals that say what would fit."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.amounts import human, parse_size
from edge.cache.planning import PROGRAM_VARIES, cache_plan
from edge.config import ModelConfig
from edge.errors import MemoryRefused, UsageError
from edge.machine.memory import available_memory
from edge.model.footprint import Footprint
from edge.options import Options, parse_kv_type
from pyx.kv import KVCache
from tests.configs import uniform


def model(n_layer: int, n_kv_head: int, head_dim: int, n_ctx_train: int = 4096) -> ModelConfig:
    return uniform(
        arch="bitnet", name="m", n_layer=n_layer, hidden=2560, ffn=6912, n_head=n_kv_head * 4, n_kv_head=n_kv_head,
        head_dim=head_dim, n_vocab=128256, n_ctx_train=n_ctx_train, rope_theta=500000.0, rope_dim=head_dim,
        rope_style="half", eps=1e-5, activation="relu2", sub_norm=True, tied=True,
    )


BITNET_2B = model(30, 5, 128)
MB = 1_000_000


# ---- exact bytes --------------------------------------------------------------------------------------------------


@given(
    ctx=st.integers(1, 5000),
    kv_type=st.sampled_from(["f16", "int8", "int4", "int8:int4", "int4c", "fp8:int4c", "binary"]),
    window=st.integers(0, 600),
    sinks=st.one_of(st.none(), st.integers(0, 80)),
    overflow=st.sampled_from(["slide", "stop"]),
)
def test_the_plan_is_what_a_cache_allocates(ctx, kv_type, window, sinks, overflow):
    config = model(2, 2, 8)
    try:
        plan = cache_plan(config, Options(ctx, kv_type, window, sinks, overflow=overflow))
    except UsageError:
        ring = window or overflow == "slide"
        assert ring and (window or 1) + (4 if sinks is None else sinks) > ctx
        return
    cache = KVCache(2, 2, 8, **plan.cache)
    assert cache.nbytes == plan.kv_bytes
    assert (cache.n_ctx, cache.window, cache.sinks) == (ctx, plan.window, plan.sinks)
    if window:
        assert plan.window == window
    elif overflow == "slide":
        assert plan.window + plan.sinks == ctx and plan.window >= 1
    else:
        assert plan.window == plan.sinks == 0


# ---- defaults and validation --------------------------------------------------------------------------------------


def test_defaults():
    plan = cache_plan(BITNET_2B, Options())
    assert (plan.n_ctx, plan.kv_type, plan.window, plan.sinks) == (2048, "int8", 2044, 4)
    assert cache_plan(model(1, 1, 8, 512), Options()).n_ctx == 512
    assert cache_plan(BITNET_2B, Options(window=4000)).n_ctx == 4004  # as many as are attended
    assert cache_plan(BITNET_2B, Options(window=4000, sinks=0)).n_ctx == 4000
    assert cache_plan(BITNET_2B, Options(window=100)).n_ctx == 2048
    assert cache_plan(BITNET_2B, Options(ctx=100, sinks=0)).window == 100
    assert cache_plan(BITNET_2B, Options(ctx=3)).window == 1  # sinks give way in a tiny context
    assert cache_plan(BITNET_2B, Options(ctx=1, overflow="stop")).n_ctx == 1
    assert cache_plan(BITNET_2B, Options(ctx=8192)).notes == (
        "context 8192 is longer than the 4096 tokens the model was trained on",
    )
    stopping = cache_plan(BITNET_2B, Options(sinks=8, overflow="stop"))
    assert stopping.notes == ("8 sinks have no effect without a window",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ctx": 0}, "ctx is 0"),
        ({"ctx": -5}, "ctx is -5"),
        ({"ctx": 2.5}, "ctx is 2.5"),
        ({"ctx": True}, "ctx is True"),
        ({"ctx": "2048"}, "ctx is '2048'"),
        ({"window": -1}, "window is -1"),
        ({"window": 1.5}, "window is 1.5"),
        ({"sinks": -1}, "sinks is -1"),
        ({"ctx": 100, "window": 97}, "window 97 and 4 sinks do not fit in a context of 100"),
        ({"ctx": 100, "window": 60, "sinks": 41}, "do not fit"),
        ({"ctx": 100, "sinks": 100}, "leave no window"),
        ({"overflow": "wrap"}, "one of slide, stop"),
        ({"memory": "much"}, "1500M"),
        ({"memory": 0}, "1500M"),
        ({"memory": True}, "1500M"),
        ({"kv": "int9"}, "KV type 'int9' is not known; types are f32, f16, int8, int4, .* or KEYS:VALUES of them"),
        ({"kv": "f16:int9"}, "KEYS:VALUES"),
        ({"kv": "f16:f16:f16"}, "not known"),
        ({"kv": ""}, "not known"),
        ({"kv": None}, "must be text"),
        ({"kv": 8}, "must be text"),
    ],
)
def test_what_cannot_be_is_refused_at_once(arguments, message):
    with pytest.raises(UsageError, match=message):
        Options(**arguments)


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        *((n, "f16") for n in ("f16", "F16", "fp16", " f16 ", "f16:F16", "fp16:f16")),
        *((n, "int8") for n in ("int8", "INT8", "q8", "q8_0", "i8", "int8:q8_0")),
        ("f32", "f32"),
        ("int8:f16", "int8:f16"),
        *((n, "int4") for n in ("int4", "i4", "q4", "Q4_0", "int4:q4_0")),
        ("q8_0:q4_0", "int8:int4"),
        *((n, n) for n in ("int4c", "fp8", "binary", "int4c:int4")),
        ("q4c", "int4c"),
        ("fp8_e4m3", "fp8"),
        ("F16:q8_0", "f16:int8"),
    ],
)
def test_kv_type_names(name, canonical):
    assert parse_kv_type(name) == canonical


@pytest.mark.parametrize(
    ("text", "n"),
    [("1500M", 1_500_000_000), ("1.5G", 1_500_000_000), ("2GiB", 2 << 30), ("800mb", 800_000_000), ("64k", 64_000),
     ("64KiB", 65536), ("1.5mib", 3 << 19), ("512Mi", 512 << 20), ("123", 123), (123, 123), (" 1 G ", 10**9),
     ("1T", 10**12), ("7B", 7), (None, None)],
)
def test_sizes(text, n):
    assert parse_size(text) == n


@pytest.mark.parametrize(
    "text", ["", "M", "-1M", "1.5.0G", "1E9", "inf", "nan", "1 000", "0", "0.0G", "5iB", "5i", 1e9 + 0.5j]
)
def test_bad_sizes(text):
    with pytest.raises(UsageError):
        parse_size(text)


def test_human():
    sizes = [0, 499_999, 81_400_000, 999_400_000, 999_600_000, 1_149_000_000]
    assert [human(n) for n in sizes] == ["0 MB", "0 MB", "81 MB", "999 MB", "1.0 GB", "1.1 GB"]


def test_types_that_are_not_for_every_day_are_marked():
    assert cache_plan(BITNET_2B, Options(kv="int4")).notes == ()
    fp8 = "KV type fp8 is for comparison: int8 is as small, more exact and faster"
    assert cache_plan(BITNET_2B, Options(kv="fp8")).notes == (fp8,)
    assert cache_plan(BITNET_2B, Options(kv="fp8:binary")).notes == (fp8, "KV type binary is for experiments only")


# ---- memory -------------------------------------------------------------------------------------------------------

FOOTPRINT = Footprint(mapped=521 * MB, head_allocated=330 * MB, scratch=20 * MB, program=60 * MB)


def limit(n: int | str, **arguments):
    return cache_plan(BITNET_2B, Options(memory=n, **arguments), FOOTPRINT)


def test_a_limit_shortens_the_context_first():
    plan = limit(1011 * MB, kv="f16", overflow="stop")
    assert plan.kv_type == "f16" and plan.n_ctx == 1024 and plan.total_bytes <= 1010 * MB
    assert plan.total_bytes + 32 * 76_800 > 1010 * MB  # the longest that fits
    assert "shortened from 2048 to 1024" in plan.notes[0]


def test_then_a_smaller_type_is_taken():
    plan = limit(945 * MB, kv="f16", overflow="stop")  # f16 would be left with 182 tokens
    assert plan.kv_type == "int8" and 256 <= plan.n_ctx < 2048 and plan.total_bytes <= 945 * MB
    assert [note.split()[0] for note in plan.notes] == ["context", "KV"]


def test_what_the_caller_fixed_is_not_shortened():
    plan = limit(1020 * MB, ctx=2048, kv="f16", overflow="stop")
    assert (plan.n_ctx, plan.kv_type) == (2048, "int8")
    assert limit(1000 * MB, ctx=2048, overflow="stop").kv_type == "int8:int4"
    with pytest.raises(MemoryRefused, match=r'ctx=1\d\d\d kv="int4" would fit'):
        limit(970 * MB, ctx=2048, overflow="stop")
    assert limit(1020 * MB, window=2000, kv="f16").kv_type == "int8"


def test_no_context_is_proposed_that_the_model_was_not_trained_on():
    with pytest.raises(MemoryRefused, match=r"; ctx=4096 would fit$"):
        limit(2000 * MB, ctx=10_000_000)
    with pytest.raises(MemoryRefused, match=r'; ctx=4096 kv="int8:int4" would fit$'):
        limit(1075 * MB, ctx=10_000_000)
    with pytest.raises(MemoryRefused, match=r'; ctx=1\d\d\d kv="int4" would fit$'):
        limit(970 * MB, ctx=10_000_000)


def test_a_limit_nothing_fits_is_refused():
    with pytest.raises(MemoryRefused, match=r'it works from memory="\d{3}M" on') as caught:
        limit(900 * MB)
    assert caught.value.exit_code == 5
    assert "\n" not in str(caught.value)
    for slip in (1, "1", "60K"):
        with pytest.raises(UsageError, match="less than 1 MB; write it like"):
            limit(slip)


@given(st.integers(900 * MB, 1200 * MB), st.sampled_from(["f16", "int8"]), st.sampled_from(["slide", "stop"]))
def test_a_plan_never_exceeds_its_limit(n, kv_type, overflow):
    try:
        plan = limit(n, kv=kv_type, overflow=overflow)
    except MemoryRefused:
        least = cache_plan(BITNET_2B, Options(ctx=256, overflow=overflow), FOOTPRINT)
        assert least.total_bytes > n - PROGRAM_VARIES
        return
    assert plan.total_bytes <= n


def test_preflight_compares_what_is_coming_with_what_is_there():
    config = Options(ctx=2048, overflow="stop")

    def plan(available, **changes):
        return cache_plan(BITNET_2B, dataclasses.replace(config, **changes), FOOTPRINT, available)

    need = FOOTPRINT.coming + cache_plan(BITNET_2B, config).kv_bytes
    assert need == plan(None).total_bytes - FOOTPRINT.program  # the program is there already
    assert plan(need)
    with pytest.raises(MemoryRefused, match=r'is free; kv="int8:int4" would fit; force_memory=True'):
        plan(need - 1)
    with pytest.raises(MemoryRefused, match=r'is free; ctx=1\d\d\d kv="int4" would fit; force_memory=True'):
        plan(need - 45 * MB)
    with pytest.raises(MemoryRefused, match="force_memory=True"):
        plan(100)
    assert plan(100, force_memory=True)
    with pytest.raises(MemoryRefused):  # forcing does not lift a limit the caller set
        plan(100, force_memory=True, memory=1 * MB)


def test_available_memory_sees_cgroup_limits(tmp_path):
    proc, groups = tmp_path / "proc", tmp_path / "sys/fs/cgroup"
    (proc / "self").mkdir(parents=True)
    slice_ = groups / "kiosk.slice" / "edge.service"
    slice_.mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal:  4000000 kB\nMemAvailable:   2000000 kB\n")
    (proc / "self" / "cgroup").write_text("0::/kiosk.slice/edge.service\n")
    assert available_memory(str(tmp_path)) == 2_000_000 * 1024
    (slice_ / "memory.max").write_text("max\n")
    (slice_ / "memory.current").write_text("5\n")
    assert available_memory(str(tmp_path)) == 2_000_000 * 1024
    parent = groups / "kiosk.slice"
    (parent / "memory.max").write_text("1000000\n")
    (parent / "memory.current").write_text("700000\n")
    (parent / "memory.stat").write_text("anon 1\ninactive_file 50000\n")
    assert available_memory(str(tmp_path)) == 350_000
    assert available_memory(str(tmp_path / "none")) is None
