"""mix_attention: the stages of a mixer with attention.

    rmsnorm -> int8 (one scale per token) -> q, k, v in one pass [+ bias] -> [norm of each head] -> rope
    -> per page of the chunk: append -> attention -> seal [-> * sigmoid(gate)]
    -> [sub-norm] -> int8 -> o [-> post-norm] -> residual

If each projection has its own norm before it (inner), their inputs are made one after the other.
"""

# Norms before single projections, each as wide as the projection's input, or NULL.
cdef struct attention_norms:
    const float *q
    const float *k
    const float *v
    const float *o

cdef struct attention_mixer:
    int64_t row             # its number among the mixers with attention: the streams of a KV cache that are its own
    int64_t rotation        # number of its rotation in the step plan
    bint gated              # after the rows of q of each head come those of its output gate
    bint norm_rotated       # q_norm and k_norm come after the rotation, not before it
    const float *norm       # [hidden]
    const float *sub_norm   # [q_dim] or NULL
    const float *q_norm     # [head_dim] or NULL: of each query head
    const float *k_norm     # [head_dim] or NULL: of each key head
    const float *q_bias     # [q_dim] or NULL
    const float *k_bias     # [kv_dim] or NULL
    const float *v_bias     # [kv_dim] or NULL
    attention_norms inner   # q, k, v all or none
    const matrix *q         # [q_dim][hidden], gated [n_head][2][head_dim][hidden]
    const matrix *k         # [kv_dim][hidden]
    const matrix *v         # [kv_dim][hidden]
    const matrix *o         # [hidden][q_dim]


cdef fill_attention(attention_mixer *w, mixer, LayerTensors given, int64_t hidden):
    """From the tensors of a layer.  mixer: an edge.layers.Attention."""
    cdef int64_t q_dim = mixer.q_dim, kv_dim = mixer.kv_dim, head_dim = mixer.head_dim
    w.gated = mixer.gated
    w.norm_rotated = mixer.qk_norm == "after"
    w.norm = given.vector("attn_norm", hidden)
    w.sub_norm = given.optional("attn_sub_norm", q_dim)
    w.q_norm = given.optional("attn_q_norm", head_dim)
    w.k_norm = given.optional("attn_k_norm", head_dim)
    w.q_bias = given.optional("attn_q_bias", q_dim)
    w.k_bias = given.optional("attn_k_bias", kv_dim)
    w.v_bias = given.optional("attn_v_bias", kv_dim)
    w.inner.q = given.optional("attn_q_norm_in", hidden)
    w.inner.k = given.optional("attn_k_norm_in", hidden)
    w.inner.v = given.optional("attn_v_norm_in", hidden)
    w.inner.o = given.optional("attn_output_norm_in", q_dim)
    if (w.inner.q == NULL) != (w.inner.k == NULL) or (w.inner.q == NULL) != (w.inner.v == NULL):
        raise ValueError(f"{given.prefix}: q, k and v have a norm of their own, or none of them")
    w.q = given.matrix("attn_q", q_dim * (2 if w.gated else 1), hidden)
    w.k = given.matrix("attn_k", kv_dim, hidden)
    w.v = given.matrix("attn_v", kv_dim, hidden)
    w.o = given.matrix("attn_output", hidden, q_dim)


cdef inline void turn(
    step_plan *p, const attention_mixer *w, float *x, const float *norm, const float *cs,
    const float *sn) noexcept nogil:
    """Rotate a head x [head_dim] in place by cs, sn [half], with its norm [head_dim] before or after that if it has
    one."""
    if norm != NULL and not w.norm_rotated:
        p.kernel.rmsnorm(x, norm, p.eps, p.attention.head_dim, x)
    rotate_head(p.kernel, &p.rotations[w.rotation], x, cs, sn)
    if norm != NULL and w.norm_rotated:
        p.kernel.rmsnorm(x, norm, p.eps, p.attention.head_dim, x)


cdef void rotate(step_plan *p, const attention_mixer *w, int tid, int n_thread) noexcept nogil:
    """Stage: norms of the heads, rotary embedding of q and k, the factor 1/sqrt(head_dim), int8 queries; divided by
    token and KV head.
    """
    cdef int64_t item, t, head, h, D = p.attention.head_dim, H = p.attention.n_kv_head, n_head = p.attention.n_head
    cdef int64_t group = n_head // H
    cdef const segment *of = p.attention.segments
    cdef attention_scratch *s = &p.w.attention
    cdef float *x           # [D] a query head
    cdef const float *cs    # [half], of the token
    cdef const float *sn    # [half]
    for item in range(share(p.n_token * H, 1, tid, n_thread), share(p.n_token * H, 1, tid + 1, n_thread)):
        t, head = item // H, item % H
        while t >= of.first + of.n_token:
            of += 1
        cs = s.cs + (t * p.n_rotation + w.rotation) * p.half
        sn = s.sn + (t * p.n_rotation + w.rotation) * p.half
        turn(p, w, s.k + item * D, w.k_norm, cs, sn)
        if of.kv.hadamard:
            rotate_hadamard(s.k + item * D, D)
        for h in range(t * n_head + head * group, t * n_head + (head + 1) * group):
            x = s.q + h * D
            if w.gated:
                memcpy(x, s.q_gate + 2 * h * D, D * sizeof(float))
            turn(p, w, x, w.q_norm, cs, sn)
            scale_head(x, D, of.kv.hadamard)
            if of.kv.sealed.integer_k:
                s.qs[h] = p.kernel.quantize_q(x, D, s.q8 + h * D)
            if p.queries != NULL and t == p.n_token - 1:
                memcpy(p.queries + ((w.row - t) * n_head + h) * D, x, D * sizeof(float))


cdef inline void scale_head(float *x, int64_t head_dim, bint hadamard) noexcept nogil:
    """The last step of a query x [head_dim]: the factor 1/sqrt(head_dim), and the rotation that its keys have."""
    cdef float factor = <float>(1.0 / sqrt(<double>head_dim))
    cdef int64_t i
    for i in range(head_dim):
        x[i] *= factor
    if hadamard:
        rotate_hadamard(x, head_dim)


cdef void project_qkv(step_plan *p, const attention_mixer *w, int32_t *acc, int tid, int n_thread) noexcept nogil:
    """Stage: q, k and v of the same input."""
    cdef int64_t n_kv_head = p.attention.n_kv_head
    cdef int64_t q_dim = w.q.n_row, kv_dim = n_kv_head * p.attention.head_dim
    cdef int64_t start, stop
    cdef attention_scratch *s = &p.w.attention
    cdef float *q = s.q_gate if w.gated else s.q
    cdef activations a = quantised(p, w.q, p.w.h, w.norm, NULL, p.hidden, INT4 if p.a48 else INT8, tid, n_thread)
    if p.n_token == 1 and n_kv_head % n_thread == 0:  # as many heads for each, from their rows to their attention
        start, stop = kv_dim // n_thread * tid, kv_dim // n_thread * (tid + 1)
        biased_rows(p, w.q, w.q_bias, &a, start * (q_dim // kv_dim), stop * (q_dim // kv_dim), acc, q)
        biased_rows(p, w.k, w.k_bias, &a, start, stop, acc, s.k)
        biased_rows(p, w.v, w.v_bias, &a, start, stop, acc, s.v)
        lap(clock_of(p, tid), QKV)
    else:
        start = share(q_dim + 2 * kv_dim, unit_of(p), tid, n_thread)
        stop = share(q_dim + 2 * kv_dim, unit_of(p), tid + 1, n_thread)
        biased_rows(p, w.q, w.q_bias, &a, start, stop, acc, q)
        biased_rows(p, w.k, w.k_bias, &a, start - q_dim, stop - q_dim, acc, s.k)
        biased_rows(p, w.v, w.v_bias, &a, start - q_dim - kv_dim, stop - q_dim - kv_dim, acc, s.v)
        done(p, QKV, tid, n_thread)


cdef const float *gated(step_plan *p, int tid, int n_thread) noexcept nogil:
    """The output of the heads through their gates, [n_token][q_dim]: this thread's share of the tokens, as `quantised`
    divides them; a single token by every thread for itself."""
    cdef int64_t t, h, row, D = p.attention.head_dim, n_head = p.attention.n_head
    cdef bint single = p.n_token == 1
    cdef attention_scratch *s = &p.w.attention
    for t in range(0 if single else share(p.n_token, 1, tid, n_thread),
                   1 if single else share(p.n_token, 1, tid + 1, n_thread)):
        row = (tid if single else t) * n_head
        for h in range(n_head):
            p.kernel.gate_sigmoid(
                s.q_gate + (2 * (t * n_head + h) + 1) * D, s.out + (t * n_head + h) * D, D, p.w.x + (row + h) * D)
    return p.w.x + (tid * n_head * D if single else 0)


cdef void mix_attention(
    step_plan *p, const attention_mixer *w, const float *post_norm, int tid, int n_thread) noexcept nogil:
    """The mixer for the tokens of the step, added to p.w.h through the norm post_norm [hidden] where there is one:
    every thread of a team calls it.  Ends with a barrier.
    """
    cdef int32_t *acc = acc_of(p, tid, n_thread)
    cdef attention_scratch *s = &p.w.attention
    cdef activations a
    if w.inner.q != NULL:
        rows_apart(p, w.q, w.q_bias, w.norm, w.inner.q, QKV, acc, s.q_gate if w.gated else s.q, tid, n_thread)
        rows_apart(p, w.k, w.k_bias, w.norm, w.inner.k, QKV, acc, s.k, tid, n_thread)
        rows_apart(p, w.v, w.v_bias, w.norm, w.inner.v, QKV, acc, s.v, tid, n_thread)
    else:
        project_qkv(p, w, acc, tid, n_thread)
    rotate(p, w, tid, n_thread)
    if not all_single(&p.attention):  # a single token's keys are appended by the thread that has rotated them
        team_barrier(&p.team, n_thread)
    lap(clock_of(p, tid), ROPE)
    attend(&p.attention, w.row, tid, n_thread)
    lap(clock_of(p, tid), ATTEND)
    a = quantised(
        p, w.o, gated(p, tid, n_thread) if w.gated else s.out, w.sub_norm, w.inner.o,
        p.attention.n_head * p.attention.head_dim, INT8_HALF if p.a48 else INT8, tid, n_thread)
    add_rows(p, w.o, &a, post_norm, OUT, acc, tid, n_thread)
