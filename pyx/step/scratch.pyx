"""scratch: the working memory of a step, one allocation cut into arrays."""

from libc.stdint cimport int8_t, int32_t, int64_t

from pyx.layers.attention cimport segment, thread_state_floats
from pyx.machine.cpu cimport TERNARY_BLOCK
from pyx.head.bit_planes cimport answer
from pyx.weights.projection cimport accumulators


cdef int64_t place(
    scratch *w, unsigned char *base, const scratch_widths *p, int64_t C, int64_t n_threads) noexcept:
    """Point w into the memory from base on, each array on a cache line.  Returns how many bytes that takes."""
    C = max(C, n_threads)  # a single token is quantised by every thread in a row of its own
    cdef int64_t at = 0, k_pad = (p.wide + TERNARY_BLOCK - 1) // TERNARY_BLOCK * TERNARY_BLOCK
    w.segments = <segment *>take(base, &at, C * sizeof(segment))
    w.answers = <answer *>take(base, &at, C * sizeof(answer))
    w.ids = <int32_t *>take(base, &at, 4 * C)
    w.position = <int64_t *>take(base, &at, 8 * C)
    w.h = <float *>take(base, &at, 4 * C * p.hidden)
    w.x = <float *>take(base, &at, 4 * C * p.wide)
    w.turned = <float *>take(base, &at, 4 * C * p.turned)
    w.x8 = <int8_t *>take(base, &at, C * k_pad)
    w.s = <float *>take(base, &at, 4 * C * (k_pad // p.group))
    w.sum = <int32_t *>take(base, &at, 4 * C * (k_pad // p.group))
    w.block = <float *>take(base, &at, 4 * C * p.block)
    w.acc = <int32_t *>take(base, &at, 4 * n_threads * p.acc_ints)
    place_attention(&w.attention, base, &at, p, C, n_threads)
    place_delta(&w.delta, base, &at, p, C, n_threads)
    place_dense(&w.dense, base, &at, p, C)
    if p.n_expert:
        place_experts(&w.experts, base, &at, p, C)
    return at


cdef void place_attention(
    attention_scratch *w, unsigned char *base, int64_t *at, const scratch_widths *p, int64_t C,
    int64_t n_threads) noexcept:
    cdef int64_t q_dim = p.n_head * p.head_dim, kv_dim = p.n_kv_head * p.head_dim
    w.q = <float *>take(base, at, 4 * C * q_dim)
    w.q_gate = <float *>take(base, at, 8 * C * p.gated)
    w.k = <float *>take(base, at, 4 * C * kv_dim)
    w.v = <float *>take(base, at, 4 * C * kv_dim)
    w.q8 = <int8_t *>take(base, at, C * q_dim)
    w.qs = <float *>take(base, at, 4 * C * p.n_head)
    w.out = <float *>take(base, at, 4 * C * q_dim)
    w.cs = <float *>take(base, at, 4 * C * p.n_rotation * p.half)
    w.sn = <float *>take(base, at, 4 * C * p.n_rotation * p.half)
    w.state = <float *>take(base, at, 4 * n_threads * thread_state_floats(p.n_head // p.n_kv_head, p.head_dim))


cdef void place_delta(
    delta_scratch *w, unsigned char *base, int64_t *at, const scratch_widths *p, int64_t C,
    int64_t n_threads) noexcept:
    w.qkv = <float *>take(base, at, 4 * C * p.channels)
    w.z = <float *>take(base, at, 4 * C * p.inner)
    w.alpha = <float *>take(base, at, 4 * C * p.n_v)
    w.beta = <float *>take(base, at, 4 * C * p.n_v)
    w.out = <float *>take(base, at, 4 * C * p.inner)
    w.work = <float *>take(base, at, 4 * n_threads * delta_work(p.dk, p.dv) if p.n_v else 0)


cdef void place_dense(
    dense_scratch *w, unsigned char *base, int64_t *at, const scratch_widths *p, int64_t C) noexcept:
    w.gate = <float *>take(base, at, 4 * C * p.ffn)
    w.up = <float *>take(base, at, 4 * C * p.ffn)


cdef void place_experts(
    experts_scratch *w, unsigned char *base, int64_t *at, const scratch_widths *p, int64_t C) noexcept:
    cdef int64_t P = C * p.n_used, k = max(p.hidden, p.expert_ffn)
    cdef int64_t k_pad = (k + TERNARY_BLOCK - 1) // TERNARY_BLOCK * TERNARY_BLOCK
    w.score = <float *>take(base, at, 4 * C * p.n_expert)
    w.chosen = <int32_t *>take(base, at, 4 * P)
    w.weight = <float *>take(base, at, 4 * P)
    w.first = <int64_t *>take(base, at, 8 * (p.n_expert + 1))
    w.token = <int32_t *>take(base, at, 4 * P)
    w.share = <float *>take(base, at, 4 * P)
    w.x8 = <int8_t *>take(base, at, P * k_pad)
    w.s = <float *>take(base, at, 4 * P * (k_pad // p.group))
    w.sum = <int32_t *>take(base, at, 4 * P * (k_pad // p.group))
    w.gate = <float *>take(base, at, 4 * P * p.expert_ffn)
    w.up = <float *>take(base, at, 4 * P * p.expert_ffn)
    w.out = <float *>take(base, at, 4 * C * p.hidden)


cdef inline void *take(unsigned char *base, int64_t *at, int64_t n) noexcept:
    cdef int64_t start = at[0]
    at[0] = start + (n + 63) // 64 * 64
    return NULL if base == NULL else base + start


cdef scratch_widths widths_of(config, int64_t chunk, int64_t n_threads):
    cdef scratch_widths p
    cdef int64_t rows
    cdef set rotations = set()
    p.hidden, p.n_head, p.n_kv_head, p.head_dim = config.hidden, config.n_head, config.n_kv_head, config.head_dim
    p.block = p.half = p.ffn = p.n_expert = p.n_used = p.expert_ffn = p.gated = 0
    for layer in config.layers:
        part = layer.feed_forward
        if part.kind == "experts":
            p.n_expert, p.n_used = max(p.n_expert, <int64_t>part.n_expert), max(p.n_used, <int64_t>part.n_used)
            p.expert_ffn = max(p.expert_ffn, <int64_t>part.ffn)
        else:
            p.ffn = max(p.ffn, <int64_t>part.ffn)
        p.block = p.hidden if layer.post_norm else p.block
    for mixer in config.attention:
        rotations.add(mixer.rotation)
        p.half = max(p.half, <int64_t>mixer.rotation.dim // 2)
        p.gated = p.n_head * p.head_dim if mixer.gated else p.gated
    p.n_rotation = len(rotations)
    p.group = config.activation_group or TERNARY_BLOCK
    p.channels = p.inner = p.n_v = p.dk = p.dv = 0
    for mixer in config.recurrent[:1]:
        p.channels, p.inner, p.n_v, p.dk, p.dv = (
            mixer.channels, mixer.inner, mixer.n_v_head, mixer.head_dim_k, mixer.head_dim_v)
    p.wide = max(p.hidden, p.n_head * p.head_dim, p.ffn, p.expert_ffn, p.inner)
    p.turned = p.wide if config.rotated else 0
    # a thread's share of the rows of a stage, in whole cache lines; project_groups needs a token and
    # two numbers for each 128 of its values
    rows = max(
        p.hidden, p.ffn, p.expert_ffn, p.gated + (p.n_head + 2 * p.n_kv_head) * p.head_dim,
        p.channels + p.inner + 2 * p.n_v) // n_threads + 16
    p.acc_ints = max(
        accumulators(chunk, rows), (p.wide // TERNARY_BLOCK + 1) * (TERNARY_BLOCK // 4 + 2) // 16 * 16 + 16)
    return p


def bytes_for(config, int n_threads, int64_t chunk=128):
    """Bytes of the working memory of a transformer, computed before it exists."""
    cdef scratch unplaced
    cdef scratch_widths widths = widths_of(config, chunk, n_threads)
    return place(&unplaced, NULL, &widths, chunk, n_threads)
