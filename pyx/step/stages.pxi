"""stages: what the stages of every kind of layer share: rounding, rows of projections, adding to the residual stream.

Every thread takes a fixed share of rows, tokens or KV heads.  (Giving portions of rows to threads as they become free
was no faster, on an idle or a loaded machine: benchmarks/log#portions.)
"""

cdef enum:
    FLOAT_LINE = 16     # floats per cache line: threads never write the same line

# How the input of a projection becomes codes: 8 bits everywhere (b1.58), or by its place in the layer (a4.8); in models
# with groups (p.group) 8 bits for each group of values, whatever is asked for.
cdef enum act_quant:
    INT8, INT4, INT8_HALF

# Shared by the threads of one step.
cdef struct step_plan:
    const kernels *kernel
    team team
    stage_clock *clocks     # [n_threads], or NULL
    scratch w
    int64_t n_token         # of all segments
    int64_t hidden
    int64_t acc_ints        # integer accumulators of all threads, divided among those that OpenMP gave
    float eps, inner_eps    # of the norms of layers, and of single projections
    float embedding_scale   # factor of embedding rows
    bint a48
    int group               # values of an activation that share a scale: 32, 64 or 128; 0: all do
    attention_plan attention
    const rotation *rotations   # [n_rotation] those of the layers, each once
    int64_t n_rotation
    int64_t half            # most pairs that one of them rotates
    float *queries          # [attention layers][n_head][head_dim] of the last token, or NULL
    int64_t basis           # of embedding rows, as of a matrix; 0: none
    const float *signs
    const float *output_norm    # [hidden]
    int64_t n_answer        # number of requested logits


cdef inline int32_t *acc_of(step_plan *p, int tid, int n_thread) noexcept nogil:
    """A thread's integer accumulators, [acc_ints / n_thread]."""
    return p.w.acc + p.acc_ints // n_thread // 16 * 16 * tid


cdef inline stage_clock *clock_of(step_plan *p, int tid) noexcept nogil:
    return NULL if p.clocks == NULL else p.clocks + tid


cdef inline void done(step_plan *p, stage which, int tid, int n_thread) noexcept nogil:
    """The end of a stage: the next one begins when all threads are here."""
    lap(clock_of(p, tid), which)
    team_barrier(&p.team, n_thread)
    lap(clock_of(p, tid), WAIT)


cdef inline int64_t padded(const step_plan *p, int64_t n) noexcept nogil:
    """n values in whole blocks, or groups."""
    cdef int64_t unit = p.group if p.group else TERNARY_BLOCK
    return (n + unit - 1) // unit * unit


cdef inline int64_t unit_of(const step_plan *p) noexcept nogil:
    """Number of rows that a thread processes at a time: whole panels, if matrices may consist of them."""
    return PANEL_ROWS if p.group else FLOAT_LINE

cdef extern from "kernels.h" nogil:
    float quantize_i4(const float *x, int64_t n, int8_t *q, int64_t n_pad, int32_t *sum)
    void keep_larger_half(int8_t *q, int64_t n, int32_t *sum)


cdef void quantise(
    step_plan *p, const matrix *w, const float *x, const float *norm, const float *inner, int64_t n, act_quant kind,
    int64_t row) noexcept nogil:
    """[Norm, the projection's own norm (both [n]), the basis of w and] quantise one token x [n] into row `row` of w.x8,
    rows padded(n) apart; keeps the floats in w.x, and in w.turned."""
    cdef int64_t at, pad = padded(p, n)
    if norm != NULL:
        p.kernel.rmsnorm(x, norm, p.eps, n, p.w.x + row * n)
        x = p.w.x + row * n
    if inner != NULL:
        p.kernel.rmsnorm(x, inner, p.inner_eps, n, p.w.x + row * n)
        x = p.w.x + row * n
    if w.basis and p.group and w.basis % p.group == 0:  # a block at a time, while it is in the first-level cache
        at = 0
        while at < n:
            p.kernel.change_basis(
                x + at, w.signs + at if w.signs != NULL else NULL, NULL, w.basis, w.basis, p.w.turned + row * n + at)
            p.kernel.quantize_groups(
                p.w.turned + row * n + at, w.basis, p.group, p.w.x8 + row * pad + at,
                p.w.s + (row * pad + at) // p.group, p.w.sum + (row * pad + at) // p.group)
            at += w.basis
        return
    if w.basis:
        p.kernel.change_basis(x, w.signs, NULL, n, w.basis, p.w.turned + row * n)
        x = p.w.turned + row * n
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
    step_plan *p, const matrix *w, const float *x, const float *norm, const float *inner, int64_t n, act_quant kind,
    int tid, int n_thread) noexcept nogil:
    """Stage: x [n_token][n] as the input of w and other projections, through the norms [n] that are given.

    A single token is quantised by every thread for itself, in a row of its own: that takes no longer than one thread
    alone, and nobody has to wait.
    """
    cdef int64_t t, row = tid if p.n_token == 1 else 0, pad = padded(p, n), n_scale = pad // p.group if p.group else 1
    cdef activations a
    if p.n_token == 1:
        quantise(p, w, x, norm, inner, n, kind, row)
    else:
        for t in range(share(p.n_token, 1, tid, n_thread), share(p.n_token, 1, tid + 1, n_thread)):
            quantise(p, w, x + t * n, norm, inner, n, kind, t)
    if p.n_token == 1:
        lap(clock_of(p, tid), NORM)
    else:
        done(p, NORM, tid, n_thread)
    a.n_token = p.n_token
    a.x8 = p.w.x8 + row * pad
    a.ld_x8 = pad
    a.group = p.group
    a.s = p.w.s + row * n_scale
    a.sum = p.w.sum + row * n_scale
    a.plain = x if norm == NULL and inner == NULL else p.w.x + row * n
    a.x = p.w.turned + row * n if w.basis else a.plain
    a.ld_x = n
    return a


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
    cdef activations a = quantised(p, w, p.w.h, norm, inner, p.hidden, INT4 if p.a48 else INT8, tid, n_thread)
    biased_rows(
        p, w, bias, &a, share(w.n_row, unit_of(p), tid, n_thread), share(w.n_row, unit_of(p), tid + 1, n_thread), acc,
        out)
    done(p, which, tid, n_thread)


cdef void add_rows(
    step_plan *p, const matrix *w, const activations *a, const float *norm, stage which, int32_t *acc, int tid,
    int n_thread) noexcept nogil:
    """Stage: a projection, through the norm [hidden] after it where there is one, added to h [n_token][hidden]."""
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
