"""layer: the stages of one layer of the model, done by a team of threads with barriers between them.

    rmsnorm -> int8 (one scale per token) -> q, k, v in one pass [+ bias] -> [norm of each head] -> rope
    -> per page of the chunk: append -> attention -> seal
    -> [sub-norm] -> int8 -> o [-> post-norm] -> residual
    -> rmsnorm -> int8 -> gate, up in one pass -> act(gate) * up -> [sub-norm] -> int8 -> down [-> post-norm]
    -> residual

If each projection has its own norm before it (input_norms), their inputs are made one after the other.

Every thread takes a fixed share of rows, tokens or KV heads.  (Giving portions of rows to threads as they become free
was no faster, on an idle or a loaded machine: benchmarks/SPEED.md.)
"""

from libc.math cimport sqrt
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.string cimport memcpy

from pyx.attention cimport all_single, attend, segment, share
from pyx.cpu cimport PANEL_ROWS, TERNARY_BLOCK
from pyx.page cimport rotate_hadamard
from pyx.projection cimport activations, matrix, project
from pyx.rotary cimport rotate_head
from pyx.team cimport ATTEND, DOWN, GATE_UP, NORM, OUT, QKV, ROPE, WAIT, lap, stage, stage_clock, team_barrier

cdef extern from "kernels.h" nogil:
    float quantize_i4(const float *x, int64_t n, int8_t *q, int64_t n_pad, int32_t *sum)
    void keep_larger_half(int8_t *q, int64_t n, int32_t *sum)

# How the input of a projection becomes codes: 8 bits everywhere (b1.58), or by its place in the layer (a4.8); in models
# with groups (p.group) 8 bits for each group of values, whatever is asked for.
cdef enum act_quant:
    INT8, INT4, INT8_HALF


cdef inline int64_t padded(const step_plan *p, int64_t n) noexcept nogil:
    """n values in whole blocks, or groups."""
    cdef int64_t unit = p.group if p.group else TERNARY_BLOCK
    return (n + unit - 1) // unit * unit


cdef void quantise(
    step_plan *p, const float *x, const float *norm, const float *inner, int64_t n, act_quant kind,
    int64_t row) noexcept nogil:
    """[Norm, the projection's own norm (both [n]) and] quantise one token x [n] into row `row` of w.x8, rows
    padded(n) apart; keeps the floats in w.x."""
    cdef int64_t pad = padded(p, n)
    if norm != NULL:
        p.kernel.rmsnorm(x, norm, p.eps, n, p.w.x + row * n)
        x = p.w.x + row * n
    if inner != NULL:
        p.kernel.rmsnorm(x, inner, p.inner_eps, n, p.w.x + row * n)
        x = p.w.x + row * n
    if p.group:
        p.kernel.quantize_groups(
            x, n, p.group, p.w.x8 + row * pad, p.w.s + row * (pad // p.group), p.w.sum + row * (pad // p.group))
        return
    if kind == INT4:
        p.w.s[row] = quantize_i4(x, n, p.w.x8 + row * pad, pad, p.w.sum + row)
        return
    p.w.s[row] = p.kernel.quantize_i8(x, n, p.w.x8 + row * pad, pad, p.w.sum + row)
    if kind == INT8_HALF:
        keep_larger_half(p.w.x8 + row * pad, n, p.w.sum + row)


cdef activations quantised(
    step_plan *p, const float *x, const float *norm, const float *inner, int64_t n, act_quant kind, int tid,
    int n_thread) noexcept nogil:
    """Stage: x [n_token][n] as the input of projections, through the norms [n] that are given.

    A single token is quantised by every thread for itself, in a row of its own: that takes no longer than one thread
    alone, and nobody has to wait.
    """
    cdef int64_t t, row = tid if p.n_token == 1 else 0, pad = padded(p, n), n_scale = pad // p.group if p.group else 1
    cdef activations a
    if p.n_token == 1:
        quantise(p, x, norm, inner, n, kind, row)
    else:
        for t in range(share(p.n_token, 1, tid, n_thread), share(p.n_token, 1, tid + 1, n_thread)):
            quantise(p, x + t * n, norm, inner, n, kind, t)
        team_barrier(&p.team, n_thread)
    lap(clock_of(p, tid), NORM)
    a.n_token = p.n_token
    a.x8 = p.w.x8 + row * pad
    a.ld_x8 = pad
    a.group = p.group
    a.s = p.w.s + row * n_scale
    a.sum = p.w.sum + row * n_scale
    a.x = x if norm == NULL and inner == NULL else p.w.x + row * n
    a.ld_x = n
    return a


cdef inline int64_t unit_of(const step_plan *p) noexcept nogil:
    """Number of rows that a thread processes at a time: whole panels, if matrices may consist of them."""
    return PANEL_ROWS if p.group else FLOAT_LINE


cdef void rows_of(
    step_plan *p, const matrix *w, const activations *a, int64_t start, int64_t stop, bint accumulate,
    int32_t *acc, float *out) noexcept nogil:
    """out [n_token][n_row] (+)= w a for rows [start, stop), clamped to the matrix; so fused matrices are cut from one
    range of rows."""
    start = max(start, <int64_t>0)
    stop = min(stop, w.n_row)
    if start < stop:
        project(p.kernel, w, a, start, stop, accumulate, acc, out, w.n_row)


cdef void biased_rows(
    step_plan *p, const matrix *w, const float *bias, const activations *a, int64_t start, int64_t stop, int32_t *acc,
    float *out) noexcept nogil:
    """rows_of, plus the bias [n_row] of each row where there is one."""
    cdef int64_t t, row
    rows_of(p, w, a, start, stop, False, acc, out)
    if bias == NULL:
        return
    for t in range(a.n_token):
        for row in range(max(start, <int64_t>0), min(stop, w.n_row)):
            out[t * w.n_row + row] += bias[row]


cdef void rows_apart(
    step_plan *p, const matrix *w, const float *bias, const float *norm, const float *inner, stage which, int32_t *acc,
    float *out, int tid, int n_thread) noexcept nogil:
    """Stage: a projection of h that has a norm of its own in front of it, into out [n_token][n_row]."""
    cdef activations a = quantised(p, p.w.h, norm, inner, p.hidden, INT4 if p.a48 else INT8, tid, n_thread)
    biased_rows(
        p, w, bias, &a, share(w.n_row, unit_of(p), tid, n_thread), share(w.n_row, unit_of(p), tid + 1, n_thread), acc,
        out)
    done(p, which, tid, n_thread)


cdef inline void turn(
    step_plan *p, float *x, const float *norm, const float *cs, const float *sn) noexcept nogil:
    """Rotate a head x [head_dim] in place by cs, sn [half], with its norm [head_dim] before or after that if it has
    one."""
    if norm != NULL and not p.norm_rotated:
        p.kernel.rmsnorm(x, norm, p.eps, p.head_dim, x)
    rotate_head(p.kernel, &p.rotary, x, cs, sn)
    if norm != NULL and p.norm_rotated:
        p.kernel.rmsnorm(x, norm, p.eps, p.head_dim, x)


cdef void rotate(step_plan *p, int64_t index, int tid, int n_thread) noexcept nogil:
    """Stage: norms of the heads, rotary embedding of q and k, the factor 1/sqrt(head_dim), int8 queries, the queries
    for the sinks; divided by token and KV head.
    """
    cdef const layer *w = &p.layers[index]
    cdef int64_t item, t, head, h, D = p.head_dim, H = p.n_kv_head, group = p.n_head // H, half = p.rotary.half
    cdef const segment *of = p.attention.segments
    cdef float *x           # [D] a query head
    cdef float *sinks       # [D] the same for the sinks
    cdef const float *cs    # [half], of the token
    cdef const float *sn    # [half]
    cdef const float *cosines = p.w.cs_near if w.near else p.w.cs   # [n_token][half]
    cdef const float *sines = p.w.sn_near if w.near else p.w.sn     # [n_token][half]
    for item in range(share(p.n_token * H, 1, tid, n_thread), share(p.n_token * H, 1, tid + 1, n_thread)):
        t, head = item // H, item % H
        while t >= of.first + of.n_token:
            of += 1
        cs, sn = cosines + t * half, sines + t * half
        turn(p, p.w.k + item * D, w.k_norm, cs, sn)
        if of.kv.hadamard:
            rotate_hadamard(p.w.k + item * D, D)
        for h in range(t * p.n_head + head * group, t * p.n_head + (head + 1) * group):
            x = p.w.q + h * D
            if of.kv.restart:  # the query stands right behind the window, wherever the text has got to
                sinks = p.w.q_sink + h * D
                memcpy(sinks, x, D * sizeof(float))
                turn(
                    p, sinks, w.q_norm, of.kv.sink_cos + (index * H + head) * (D // 2),
                    of.kv.sink_sin + (index * H + head) * (D // 2))
                scale_head(sinks, D, of.kv.hadamard)
            turn(p, x, w.q_norm, cs, sn)
            scale_head(x, D, of.kv.hadamard)
            if of.kv.sealed.integer_k:
                p.w.qs[h] = p.kernel.quantize_q(x, D, p.w.q8 + h * D)
            if p.queries != NULL and t == p.n_token - 1:
                memcpy(p.queries + ((index - t) * p.n_head + h) * D, x, D * sizeof(float))


cdef inline void scale_head(float *x, int64_t head_dim, bint hadamard) noexcept nogil:
    """The last step of a query x [head_dim]: the factor 1/sqrt(head_dim), and the rotation that its keys have."""
    cdef float factor = <float>(1.0 / sqrt(<double>head_dim))
    cdef int64_t i
    for i in range(head_dim):
        x[i] *= factor
    if hadamard:
        rotate_hadamard(x, head_dim)


cdef inline stage_clock *clock_of(step_plan *p, int tid) noexcept nogil:
    return NULL if p.clocks == NULL else p.clocks + tid


cdef inline void done(step_plan *p, stage which, int tid, int n_thread) noexcept nogil:
    """The end of a stage: the next one begins when all threads are here."""
    lap(clock_of(p, tid), which)
    team_barrier(&p.team, n_thread)
    lap(clock_of(p, tid), WAIT)


cdef void add_rows(
    step_plan *p, const matrix *w, const activations *a, const float *norm, stage which, int32_t *acc, int tid,
    int n_thread) noexcept nogil:
    """Stage: a projection, through the norm [hidden] behind it where there is one, added to h [n_token][hidden]."""
    cdef int64_t t, i, start = share(p.hidden, unit_of(p), tid, n_thread)
    cdef int64_t stop = share(p.hidden, unit_of(p), tid + 1, n_thread)
    cdef float *block   # [hidden], of one token
    cdef float *h       # [hidden]
    rows_of(p, w, a, start, stop, norm == NULL, acc, p.w.h if norm == NULL else p.w.block)
    done(p, which, tid, n_thread)
    if norm == NULL:
        return
    for t in range(share(p.n_token, 1, tid, n_thread), share(p.n_token, 1, tid + 1, n_thread)):
        block, h = p.w.block + t * p.hidden, p.w.h + t * p.hidden
        p.kernel.rmsnorm(block, norm, p.eps, p.hidden, block)
        for i in range(p.hidden):
            h[i] += block[i]
    done(p, NORM, tid, n_thread)


cdef void project_qkv(step_plan *p, const layer *w, int32_t *acc, int tid, int n_thread) noexcept nogil:
    """Stage: q, k and v of the same input."""
    cdef int64_t q_dim = p.n_head * p.head_dim, kv_dim = p.n_kv_head * p.head_dim, group = p.n_head // p.n_kv_head
    cdef int64_t start, stop
    cdef activations a = quantised(
        p, p.w.h, w.attn_norm, NULL, p.hidden, INT4 if p.a48 else INT8, tid, n_thread)
    if p.n_token == 1 and p.n_kv_head % n_thread == 0:  # as many heads for each, from their rows to their attention
        start, stop = kv_dim // n_thread * tid, kv_dim // n_thread * (tid + 1)
        biased_rows(p, w.q, w.q_bias, &a, start * group, stop * group, acc, p.w.q)
        biased_rows(p, w.k, w.k_bias, &a, start, stop, acc, p.w.k)
        biased_rows(p, w.v, w.v_bias, &a, start, stop, acc, p.w.v)
        lap(clock_of(p, tid), QKV)
    else:
        start = share(q_dim + 2 * kv_dim, unit_of(p), tid, n_thread)
        stop = share(q_dim + 2 * kv_dim, unit_of(p), tid + 1, n_thread)
        biased_rows(p, w.q, w.q_bias, &a, start, stop, acc, p.w.q)
        biased_rows(p, w.k, w.k_bias, &a, start - q_dim, stop - q_dim, acc, p.w.k)
        biased_rows(p, w.v, w.v_bias, &a, start - q_dim - kv_dim, stop - q_dim - kv_dim, acc, p.w.v)
        done(p, QKV, tid, n_thread)


cdef void run_layer(step_plan *p, int64_t index, int tid, int n_thread) noexcept nogil:
    cdef const layer *w = &p.layers[index]
    cdef int32_t *acc = p.w.acc + p.acc_ints // n_thread // 16 * 16 * tid   # [acc_ints / n_thread]
    cdef int64_t q_dim = p.n_head * p.head_dim
    cdef int64_t start, stop
    cdef activations a

    if w.inner.q != NULL:
        rows_apart(p, w.q, w.q_bias, w.attn_norm, w.inner.q, QKV, acc, p.w.q, tid, n_thread)
        rows_apart(p, w.k, w.k_bias, w.attn_norm, w.inner.k, QKV, acc, p.w.k, tid, n_thread)
        rows_apart(p, w.v, w.v_bias, w.attn_norm, w.inner.v, QKV, acc, p.w.v, tid, n_thread)
    else:
        project_qkv(p, w, acc, tid, n_thread)
    rotate(p, index, tid, n_thread)
    if not all_single(&p.attention):  # a single token's keys are appended by the thread that has rotated them
        team_barrier(&p.team, n_thread)
    lap(clock_of(p, tid), ROPE)
    attend(&p.attention, index, tid, n_thread)
    lap(clock_of(p, tid), ATTEND)

    a = quantised(p, p.w.attn, w.attn_sub_norm, w.inner.o, q_dim, INT8_HALF if p.a48 else INT8, tid, n_thread)
    add_rows(p, w.o, &a, w.post_attn_norm, OUT, acc, tid, n_thread)

    if w.inner.gate != NULL:
        rows_apart(p, w.gate, NULL, w.ffn_norm, w.inner.gate, GATE_UP, acc, p.w.gate, tid, n_thread)
    a = quantised(
        p, p.w.h, w.ffn_norm, w.inner.up, p.hidden, INT4 if p.a48 else INT8, tid, n_thread)
    start = share(p.ffn, unit_of(p), tid, n_thread)
    stop = share(p.ffn, unit_of(p), tid + 1, n_thread)
    if w.inner.gate == NULL:
        rows_of(p, w.gate, &a, start, stop, False, acc, p.w.gate)
    rows_of(p, w.up, &a, start, stop, False, acc, p.w.up)
    activate(p, start, stop - start)  # the same rows of both, so no barrier in between
    done(p, GATE_UP, tid, n_thread)

    a = quantised(p, p.w.gate, w.ffn_sub_norm, w.inner.down, p.ffn, INT8, tid, n_thread)
    add_rows(p, w.down, &a, w.post_ffn_norm, DOWN, acc, tid, n_thread)


cdef inline void activate(step_plan *p, int64_t start, int64_t n) noexcept nogil:
    """gate = act(gate) * up, n columns from start."""
    cdef int64_t t
    cdef float *gate    # [n], of one token
    for t in range(p.n_token):
        gate = p.w.gate + t * p.ffn + start
        p.gate(gate, p.w.up + t * p.ffn + start, n, gate)
