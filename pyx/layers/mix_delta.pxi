"""mix_delta: the stages of a mixer with the gated delta rule (Gated DeltaNet, arXiv 2412.06464), as in Qwen3.5.

    rmsnorm -> q, k, v, z (int8), alpha, beta (floats) in one pass
    -> per key head and chunk of 32 tokens: convolution of 4, SiLU -> q, k of fixed length -> per value head: delta rule
       -> rmsnorm of the head * SiLU(z)
    -> int8 -> out [-> post-norm] -> residual

A key head with its value heads is one item of work, from its channels to its answers: no barrier in between.
"""

cdef struct delta_mixer:
    int64_t row             # its number among the mixers of its kind: the states of a session that are its own
    int64_t n_k, n_v, dk, dv
    bint tiled              # value head v belongs to key head v % n_k, else to v // (n_v / n_k)
    bint grouped_out        # columns of `out` are ordered as if they were not tiled
    const float *norm       # [hidden]
    const float *taps       # of each head's channels [CONV_TAPS][dk or dv]: query heads, key heads, value heads
    const float *a          # [n_v] ln g = a * softplus(alpha + dt)
    const float *dt         # [n_v]
    const float *out_norm   # [dv]
    const float *q_length   # [dk] norms that make lengths of 1/sqrt(dk)
    const float *k_length   # [dk] and of 1
    const matrix *qkv       # [channels][hidden]
    const matrix *z         # [inner][hidden]
    const matrix *alpha     # [n_v][hidden] floats, as beta
    const matrix *beta      # [n_v][hidden]
    const matrix *out       # [hidden][inner]

cdef float LENGTH_EPS = 1e-6    # under the root of a length: that of the models' makers
cdef dict LENGTHS = {}          # dk -> Arena with q_length and k_length, for all models


cdef const float *lengths(int64_t dk) except NULL:
    """Weights [2][dk] with which rmsnorm gives lengths: x / sqrt(sum x^2 + eps) is the rmsnorm of x with eps / dk and
    the weights 1 / sqrt(dk)."""
    cdef Arena arena = LENGTHS.get(dk)
    cdef int64_t i
    if arena is None:
        arena = LENGTHS[dk] = Arena(8 * dk)
        for i in range(dk):
            (<float *>arena.data)[i] = <float>(1.0 / dk)
            (<float *>arena.data)[dk + i] = <float>(1.0 / sqrt(<double>dk))
    return <const float *>arena.data


cdef fill_delta(delta_mixer *w, mixer, LayerTensors given, int64_t hidden):
    """Everything but row, from the tensors of a layer; mixer: an edge.layers.Delta."""
    w.n_k, w.n_v, w.dk, w.dv = mixer.n_k_head, mixer.n_v_head, mixer.head_dim_k, mixer.head_dim_v
    w.tiled, w.grouped_out = mixer.tiled, mixer.grouped_out
    w.norm = given.vector("attn_norm", hidden)
    w.a, w.dt = given.vector("ssm_a", w.n_v), given.vector("ssm_dt_bias", w.n_v)
    w.out_norm = given.vector("ssm_norm", w.dv)
    w.taps = turned_taps(w, given, mixer.channels)
    w.qkv = given.matrix("attn_qkv", mixer.channels, hidden)
    w.z = given.matrix("attn_gate", mixer.inner, hidden)
    w.alpha = given.matrix("ssm_alpha", w.n_v, hidden)
    w.beta = given.matrix("ssm_beta", w.n_v, hidden)
    w.out = given.matrix("ssm_out", hidden, mixer.inner)
    if w.alpha.dense == NULL or w.beta.dense == NULL:
        raise ValueError(f"{given.prefix}: ssm_alpha and ssm_beta are not floats")
    w.q_length = lengths(w.dk)
    w.k_length = w.q_length + w.dk


cdef const float *turned_taps(delta_mixer *w, LayerTensors given, int64_t channels) except NULL:
    """ssm_conv1d [channels][CONV_TAPS], turned within the channels of each head."""
    cdef TernaryMatrix stored = given.given["ssm_conv1d"]
    cdef Arena turned = Arena(4 * channels * CONV_TAPS)
    cdef float *to = <float *>turned.data
    cdef int64_t head, n, first = 0, i, tap
    if stored.m.n_row != channels or stored.m.k != CONV_TAPS or stored.m.dense == NULL:
        raise ValueError(f"{given.prefix}.ssm_conv1d is not {channels} x {CONV_TAPS} floats")
    for head in range(2 * w.n_k + w.n_v):
        n = w.dk if head < 2 * w.n_k else w.dv
        for tap in range(CONV_TAPS):
            for i in range(n):
                to[first * CONV_TAPS + tap * n + i] = stored.m.dense[(first + i) * CONV_TAPS + tap]
        first += n
    given.owners.append(turned)
    return to


cdef void project_all(step_plan *p, const delta_mixer *w, int32_t *acc, int tid, int n_thread) noexcept nogil:
    """Stage: q, k, v, z, alpha and beta of the same input; the last two of floats in the usual basis."""
    cdef delta_scratch *s = &p.w.delta
    cdef activations a = quantised(p, w.qkv, p.w.h, w.norm, NULL, p.hidden, INT8, tid, n_thread)
    cdef activations plain = a
    cdef int64_t n = w.qkv.n_row + w.z.n_row + 2 * w.n_v
    cdef int64_t start = share(n, unit_of(p), tid, n_thread), stop = share(n, unit_of(p), tid + 1, n_thread)
    plain.x = a.plain
    rows_of(p, w.qkv, &a, start, stop, False, acc, s.qkv)
    n = w.qkv.n_row
    rows_of(p, w.z, &a, start - n, stop - n, False, acc, s.z)
    n += w.z.n_row
    rows_of(p, w.alpha, &plain, start - n, stop - n, False, acc, s.alpha)
    n += w.n_v
    rows_of(p, w.beta, &plain, start - n, stop - n, False, acc, s.beta)
    done(p, QKV, tid, n_thread)


cdef void convolve(
    step_plan *p, const delta_mixer *w, const recurrence *r, const float *tail, int64_t token, int64_t first,
    int64_t n, int64_t channel, int64_t width, float *out) noexcept nogil:
    """Channels [channel, channel + width) of n tokens, number `token` and following of the step, which stand at place
    first of the open chunk: kept there, convolved with the inputs before them, and through SiLU, out [n][width].

    tail: the last inputs before the chunk [CONV_TAPS - 1][channels].
    """
    cdef float *inputs = open_inputs(r, w.row) + channel    # [DELTA_CHUNK][channels]
    cdef int64_t t, tap, at, channels = r.shape.channels
    cdef const float *x[4]
    for t in range(first, first + n):
        memcpy(
            inputs + t * channels, p.w.delta.qkv + (token + t - first) * channels + channel, width * sizeof(float))
        for tap in range(CONV_TAPS):
            at = t + tap - (CONV_TAPS - 1)
            x[tap] = inputs + at * channels if at >= 0 else tail + (at + CONV_TAPS - 1) * channels + channel
        p.kernel.conv_silu(x, w.taps + channel * CONV_TAPS, width, out + (t - first) * width)


cdef inline int64_t value_head(const delta_mixer *w, int64_t key_head, int64_t i) noexcept nogil:
    """The value head number i of a key head."""
    return key_head + i * w.n_k if w.tiled else key_head * (w.n_v // w.n_k) + i


cdef void seal(
    step_plan *p, const delta_mixer *w, const recurrence *r, int64_t head, const float *state,
    float *to) noexcept nogil:
    """The states after the full chunk of a key head, and the last inputs of its channels."""
    cdef int64_t i, v, n = w.dk * w.dv, channels = r.shape.channels, tap
    cdef const float *inputs = open_inputs(r, w.row) + (DELTA_CHUNK - CONV_TAPS + 1) * channels
    cdef float *tail = to + w.n_v * n
    for i in range(w.n_v // w.n_k):
        v = value_head(w, head, i)
        p.kernel.delta_seal(
            state + v * n, w.dk, w.dv, open_keys(r, w.row) + head * DELTA_CHUNK * w.dk,
            open_decays(r, w.row) + v * DELTA_CHUNK, open_added(r, w.row) + v * DELTA_CHUNK * w.dv, to + v * n)
    for tap in range(CONV_TAPS - 1):
        v = tap * channels + head * w.dk
        memcpy(tail + v, inputs + v, w.dk * sizeof(float))
        memcpy(tail + v + w.n_k * w.dk, inputs + v + w.n_k * w.dk, w.dk * sizeof(float))
        for i in range(w.n_v // w.n_k):
            v = tap * channels + 2 * w.n_k * w.dk + value_head(w, head, i) * w.dv
            memcpy(tail + v, inputs + v, w.dv * sizeof(float))


cdef void forget_and_store(
    step_plan *p, const delta_mixer *w, double *c, int64_t v, int64_t token, int64_t first, int64_t n,
    float *beta) noexcept nogil:
    """c [DELTA_CHUNK] and beta [n] of a value head.  ln g in double, then rounded, so that it is the same
    everywhere."""
    cdef int64_t t, at
    cdef double x
    for t in range(n):
        at = (token + t) * w.n_v + v
        x = p.w.delta.alpha[at] + w.dt[v]
        x = <float>(w.a[v] * (x if x > 40 else log1p(exp(x))))
        c[first + t] = x + (c[first + t - 1] if first + t > 0 else 0.0)
        beta[t] = 1.0 / (1.0 + kernel_expf(-p.w.delta.beta[at]))


cdef void answer_head(
    step_plan *p, const delta_mixer *w, const segment *of, int64_t head, float *work) noexcept nogil:
    """A key head and its value heads for all tokens of a segment, chunk by chunk."""
    cdef const recurrence *r = of.delta
    cdef const float *state = r.state + w.row * r.shape.state_floats
    cdef float *to          # the states that are made next
    cdef float *q = work                            # [DELTA_CHUNK][dk]
    cdef float *values = q + DELTA_CHUNK * w.dk     # [DELTA_CHUNK][dv]
    cdef float *beta = values + DELTA_CHUNK * w.dv  # [DELTA_CHUNK]
    cdef float *key = beta + DELTA_CHUNK            # [dk]
    cdef float *k = open_keys(r, w.row) + head * DELTA_CHUNK * w.dk     # [DELTA_CHUNK][dk]
    cdef double *c          # [DELTA_CHUNK]
    cdef float *out         # [dv] of a token and value head
    cdef const float *tail
    cdef int64_t gone = 0, made = 0, base = r.base, first, n, t, i, v, column, token, inner = w.n_v * w.dv
    while gone < of.n_token:
        first = of.pos0 + gone - base
        if first == DELTA_CHUNK:
            to = (r.even if made % 2 == 0 else r.odd) + w.row * r.shape.state_floats
            seal(p, w, r, head, state, to)
            state = to
            made, base, first = made + 1, base + DELTA_CHUNK, 0
        n, token = min(DELTA_CHUNK - first, of.n_token - gone), of.first + gone
        tail = state + w.n_v * w.dk * w.dv
        convolve(p, w, r, tail, token, first, n, head * w.dk, w.dk, q)
        for t in range(n):
            p.kernel.rmsnorm(q + t * w.dk, w.q_length, LENGTH_EPS / w.dk, w.dk, q + t * w.dk)
        convolve(p, w, r, tail, token, first, n, (w.n_k + head) * w.dk, w.dk, k + first * w.dk)
        for t in range(first, first + n):
            p.kernel.rmsnorm(k + t * w.dk, w.k_length, LENGTH_EPS / w.dk, w.dk, k + t * w.dk)
        for i in range(w.n_v // w.n_k):
            v = value_head(w, head, i)
            convolve(p, w, r, tail, token, first, n, 2 * w.n_k * w.dk + v * w.dv, w.dv, values)
            c = open_decays(r, w.row) + v * DELTA_CHUNK
            forget_and_store(p, w, c, v, token, first, n, beta)
            column = (head * (w.n_v // w.n_k) + i if w.grouped_out else v) * w.dv
            out = p.w.delta.out + token * inner + column
            p.kernel.delta_chunk(
                state + v * w.dk * w.dv, w.dk, w.dv, first, n, k, c, q, w.dk, values, w.dv, beta, 1,
                open_added(r, w.row) + v * DELTA_CHUNK * w.dv, out, inner)
            for t in range(n):
                p.kernel.rmsnorm(out + t * inner, w.out_norm, p.eps, w.dv, out + t * inner)
                p.kernel.gate_silu(
                    p.w.delta.z + (token + t) * inner + v * w.dv, out + t * inner, w.dv, out + t * inner)
        gone += n


cdef void mix_delta(
    step_plan *p, const delta_mixer *w, const float *post_norm, int tid, int n_thread) noexcept nogil:
    """The mixer for the tokens of the step, added to p.w.h through the norm post_norm [hidden] where there is one:
    every thread of a team calls it.  Ends with a barrier.
    """
    cdef int32_t *acc = acc_of(p, tid, n_thread)
    cdef int64_t item, n = p.attention.n_segment * w.n_k
    cdef activations a
    project_all(p, w, acc, tid, n_thread)
    for item in range(share(n, 1, tid, n_thread), share(n, 1, tid + 1, n_thread)):
        answer_head(
            p, w, &p.attention.segments[item // w.n_k], item % w.n_k, p.w.delta.work + tid * delta_work(w.dk, w.dv))
    done(p, ATTEND, tid, n_thread)
    a = quantised(p, w.out, p.w.delta.out, NULL, NULL, w.n_v * w.dv, INT8, tid, n_thread)
    add_rows(p, w.out, &a, post_norm, OUT, acc, tid, n_thread)
