"""feed_dense: the stages of a dense feed-forward part.

    rmsnorm -> int8 (one scale per token) -> gate, up in one pass -> act(gate) * up -> [sub-norm] -> int8 -> down
    [-> post-norm] -> residual

If each projection has its own norm before it (inner), their inputs are made one after the other.
"""

# Norms before single projections, each as wide as the projection's input, or NULL.
cdef struct dense_norms:
    const float *gate
    const float *up
    const float *down

# The activation of the gate.
cdef enum activation:
    RELU2, SILU, GELU

cdef struct dense_part:
    int64_t ffn             # its width
    activation act
    const float *norm       # [hidden]
    const float *sub_norm   # [ffn] or NULL
    dense_norms inner       # gate and up both or none
    const matrix *gate      # [ffn][hidden]
    const matrix *up        # [ffn][hidden]
    const matrix *down      # [hidden][ffn]

# out [n] = act(gate [n]) * up [n]
ctypedef void (*gate_kernel)(const float *gate, const float *up, int64_t n, float *out) noexcept nogil

cdef dict ACTIVATIONS = {"relu2": RELU2, "silu": SILU, "gelu": GELU}


cdef fill_dense(dense_part *w, part, LayerTensors given, int64_t hidden):
    """From the tensors of a layer; part: an edge.layers.Dense."""
    w.ffn, w.act = part.ffn, ACTIVATIONS[part.activation]
    w.norm = given.vector("ffn_norm", hidden)
    w.sub_norm = given.optional("ffn_sub_norm", w.ffn)
    w.inner.gate = given.optional("ffn_gate_norm_in", hidden)
    w.inner.up = given.optional("ffn_up_norm_in", hidden)
    w.inner.down = given.optional("ffn_down_norm_in", w.ffn)
    if (w.inner.gate == NULL) != (w.inner.up == NULL):
        raise ValueError(f"{given.prefix}: gate and up have a norm of their own, or none of them")
    w.gate = given.matrix("ffn_gate", w.ffn, hidden)
    w.up = given.matrix("ffn_up", w.ffn, hidden)
    w.down = given.matrix("ffn_down", hidden, w.ffn)


cdef void feed_dense(step_plan *p, const dense_part *w, const float *post_norm, int tid, int n_thread) noexcept nogil:
    """The feed-forward part for the tokens of the step, added to p.w.h through the norm post_norm [hidden] where there
    is one: every thread of a team calls it.  Ends with a barrier.
    """
    cdef int32_t *acc = acc_of(p, tid, n_thread)
    cdef int64_t start = share(w.ffn, unit_of(p), tid, n_thread), stop = share(w.ffn, unit_of(p), tid + 1, n_thread)
    cdef dense_scratch *s = &p.w.dense
    cdef activations a
    if w.inner.gate != NULL:
        rows_apart(p, w.gate, NULL, w.norm, w.inner.gate, GATE_UP, acc, s.gate, tid, n_thread)
    a = quantised(p, w.up, p.w.h, w.norm, w.inner.up, p.hidden, INT4 if p.a48 else INT8, tid, n_thread)
    if w.inner.gate == NULL:
        rows_of(p, w.gate, &a, start, stop, False, acc, s.gate)
    rows_of(p, w.up, &a, start, stop, False, acc, s.up)
    activate(p, w, start, stop - start)  # the same rows of both, so no barrier in between
    done(p, GATE_UP, tid, n_thread)
    a = quantised(p, w.down, s.gate, w.sub_norm, w.inner.down, w.ffn, INT8, tid, n_thread)
    add_rows(p, w.down, &a, post_norm, DOWN, acc, tid, n_thread)


cdef inline void activate(step_plan *p, const dense_part *w, int64_t start, int64_t n) noexcept nogil:
    """gate = act(gate) * up, n columns from start."""
    cdef gate_kernel act = p.kernel.gate_relu2
    cdef int64_t t
    cdef float *gate    # [n], of one token
    if w.act != RELU2:
        act = p.kernel.gate_silu if w.act == SILU else p.kernel.gate_gelu
    for t in range(p.n_token):
        gate = p.w.dense.gate + t * w.ffn + start
        act(gate, p.w.dense.up + t * w.ffn + start, n, gate)
