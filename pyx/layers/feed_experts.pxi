"""feed_experts: the stages of a mixture of experts.

    rmsnorm -> scores of all experts (F32 router) -> the best n_used of each token, softmax
    -> int8, gathered by expert -> gate, up in one pass -> [clamp] -> act(gate) * up -> int8 -> down -> times its weight
    -> residual

A pair is a token and one of its experts.  Pairs are ordered by expert, then by token: the matrices of an expert are
read once for all its tokens.  What the experts of a token give is added to the residual stream in ascending order of
experts, so the sums have the same bits however tokens come together.
"""

# The matrices of all experts are stacked: those of expert e begin at row e * ffn (down: e * hidden).
cdef struct experts_part:
    int64_t n_expert
    int64_t n_used          # experts of a token
    int64_t ffn             # the width of one expert
    bint renormalise        # the weights of a token's experts are divided by their sum
    float clamp             # gate is at most this, up within +- this; 0: no bound
    const float *norm       # [hidden]
    const matrix *router    # [n_expert][hidden], of floats
    const matrix *gate      # [n_expert * ffn][hidden]
    const matrix *up        # [n_expert * ffn][hidden]
    const matrix *down      # [n_expert * hidden][ffn]
    residency *pages        # of the experts in the file's map, if not all of them may be in memory; else NULL
    int64_t index           # number of the layer among those with experts


cdef fill_experts(experts_part *w, part, LayerTensors given, int64_t hidden):
    """From the tensors of a layer; part: an edge.layers.Experts."""
    w.n_expert, w.n_used, w.ffn = part.n_expert, part.n_used, part.ffn
    w.renormalise, w.clamp = part.renormalise, part.clamp
    w.norm = given.vector("ffn_norm", hidden)
    w.router = given.matrix("ffn_gate_inp", w.n_expert, hidden)
    w.gate = given.matrix("ffn_gate_exps", w.n_expert * w.ffn, hidden)
    w.up = given.matrix("ffn_up_exps", w.n_expert * w.ffn, hidden)
    w.down = given.matrix("ffn_down_exps", w.n_expert * hidden, w.ffn)
    if w.router.dense == NULL:
        raise ValueError(f"{given.prefix}.ffn_gate_inp does not consist of floats")


cdef void feed_experts(step_plan *p, const experts_part *w, int tid, int n_thread) noexcept nogil:
    """The experts for the tokens of the step, added to p.w.h: every thread of a team calls it.  Ends with a barrier."""
    cdef experts_scratch *s = &p.w.experts
    cdef int32_t *acc = acc_of(p, tid, n_thread)
    cdef int64_t e, i, first, n
    cdef int64_t n_pair = p.n_token * w.n_used
    cdef int64_t start = share(w.ffn, unit_of(p), tid, n_thread), stop = share(w.ffn, unit_of(p), tid + 1, n_thread)
    cdef int64_t row0 = share(p.hidden, unit_of(p), tid, n_thread)
    cdef int64_t row1 = share(p.hidden, unit_of(p), tid + 1, n_thread)
    cdef activations a = quantised(p, w.gate, p.w.h, w.norm, NULL, p.hidden, INT8, tid, n_thread)
    route(p, w, &a, tid, n_thread)
    done(p, ROUTE, tid, n_thread)
    for i in range(share(p.n_token, 1, tid, n_thread), share(p.n_token, 1, tid + 1, n_thread)):
        choose(w, s.score + i * w.n_expert, s.chosen + i * w.n_used, s.weight + i * w.n_used)
    done(p, ROUTE, tid, n_thread)
    if tid == 0:
        order(p, w)
    done(p, ROUTE, tid, n_thread)
    if p.n_token > 1:
        gather(p, &a, n_pair, tid, n_thread)
        done(p, NORM, tid, n_thread)
    for e in range(w.n_expert):
        first, n = s.first[e], s.first[e + 1] - s.first[e]
        if n > 0 and start < stop:
            rows_of_expert(p, w.gate, e, w.ffn, &a, first, n, p.hidden, start, stop, acc, s.gate + first * w.ffn)
            rows_of_expert(p, w.up, e, w.ffn, &a, first, n, p.hidden, start, stop, acc, s.up + first * w.ffn)
            for i in range(first, first + n):  # the same rows of both, so no barrier in between
                activate_pair(p, w, s.gate + i * w.ffn + start, s.up + i * w.ffn + start, stop - start)
    done(p, GATE_UP, tid, n_thread)
    quantise_pairs(p, w, n_pair, tid, n_thread)
    done(p, NORM, tid, n_thread)
    a = inner_of(p, w)
    for e in range(w.n_expert):
        first, n = s.first[e], s.first[e + 1] - s.first[e]
        if n > 0 and row0 < row1:
            rows_of_expert(p, w.down, e, p.hidden, &a, first, n, w.ffn, row0, row1, acc, s.out)
            for i in range(n):
                add_row(p.w.h + s.token[first + i] * p.hidden + row0, s.out + i * p.hidden + row0, s.share[first + i],
                    row1 - row0)
    done(p, DOWN, tid, n_thread)


cdef void route(step_plan *p, const experts_part *w, const activations *a, int tid, int n_thread) noexcept nogil:
    """Scores of this thread's experts for all tokens."""
    cdef int64_t t, start = share(w.n_expert, FLOAT_LINE, tid, n_thread)
    cdef int64_t stop = share(w.n_expert, FLOAT_LINE, tid + 1, n_thread)
    if start < stop:
        for t in range(p.n_token):
            p.kernel.head_f32(
                w.router.dense + start * p.hidden, stop - start, p.hidden, a.plain + t * a.ld_x,
                p.w.experts.score + t * w.n_expert + start)


cdef void choose(const experts_part *w, float *score, int32_t *chosen, float *weight) noexcept nogil:
    """The n_used experts of the highest scores (of equal ones the first), ascending, with their softmax weights.

    score [n_expert] becomes exp(score - highest).  Whatever the scores are, the experts are different and in range.
    """
    cdef int64_t e, i, at, n = 0
    cdef float most, total = 0
    for e in range(w.n_expert):  # the best so far, descending
        at = n
        while at > 0 and score[e] > score[chosen[at - 1]]:
            at -= 1
        if at == w.n_used:
            continue
        n = min(n + 1, w.n_used)
        for i in range(n - 1, at, -1):
            chosen[i] = chosen[i - 1]
        chosen[at] = <int32_t>e
    most = score[chosen[0]]
    for e in range(w.n_expert):
        score[e] = kernel_expf(score[e] - most)
    for i in range(1, w.n_used):  # by insertion
        e, at = chosen[i], i
        while at > 0 and chosen[at - 1] > e:
            chosen[at] = chosen[at - 1]
            at -= 1
        chosen[at] = <int32_t>e
    if w.renormalise:
        for i in range(w.n_used):
            total += score[chosen[i]]
    else:
        for e in range(w.n_expert):
            total += score[e]
    for i in range(w.n_used):
        weight[i] = score[chosen[i]] / total


cdef void order(step_plan *p, const experts_part *w) noexcept nogil:
    """Sort the pairs by expert, then by token; ask for the experts' bytes."""
    cdef experts_scratch *s = &p.w.experts
    cdef int64_t t, i, e, at, n = 0
    for e in range(w.n_expert + 1):
        s.first[e] = 0
    for i in range(p.n_token * w.n_used):
        s.first[s.chosen[i] + 1] += 1
    for e in range(w.n_expert):
        s.first[e + 1] += s.first[e]
    for t in range(p.n_token):
        for i in range(w.n_used):
            e = s.chosen[t * w.n_used + i]
            at = s.first[e]
            s.token[at], s.share[at] = <int32_t>t, s.weight[t * w.n_used + i]
            s.first[e] += 1
    for e in range(w.n_expert, 0, -1):  # each is the end of its expert by now
        s.first[e] = s.first[e - 1]
    s.first[0] = 0
    if w.pages != NULL:
        bring(w.pages, w.index, s.first)


cdef void gather(step_plan *p, const activations *a, int64_t n_pair, int tid, int n_thread) noexcept nogil:
    """Copies of the rounded inputs of this thread's pairs."""
    cdef experts_scratch *s = &p.w.experts
    cdef int64_t i, t, each = a.ld_x8 // a.group if a.group else 1
    for i in range(share(n_pair, 1, tid, n_thread), share(n_pair, 1, tid + 1, n_thread)):
        t = s.token[i]
        memcpy(s.x8 + i * a.ld_x8, a.x8 + t * a.ld_x8, a.ld_x8)
        memcpy(s.s + i * each, a.s + t * each, 4 * each)
        memcpy(s.sum + i * each, a.sum + t * each, 4 * each)


cdef void quantise_pairs(step_plan *p, const experts_part *w, int64_t n_pair, int tid, int n_thread) noexcept nogil:
    """The inputs of down, which take the places of gathered ones."""
    cdef experts_scratch *s = &p.w.experts
    cdef int64_t i, pad = padded(p, w.ffn), each = pad // p.group if p.group else 1
    for i in range(share(n_pair, 1, tid, n_thread), share(n_pair, 1, tid + 1, n_thread)):
        if p.group:
            p.kernel.quantize_groups(
                s.gate + i * w.ffn, w.ffn, p.group, s.x8 + i * pad, s.s + i * each, s.sum + i * each)
        else:
            s.s[i] = p.kernel.quantize_i8(s.gate + i * w.ffn, w.ffn, s.x8 + i * pad, pad, s.sum + i)


cdef activations inner_of(step_plan *p, const experts_part *w) noexcept nogil:
    """The inputs of down of all pairs."""
    cdef activations a
    a.n_token, a.group = p.n_token * w.n_used, p.group
    a.x8, a.s, a.sum = p.w.experts.x8, p.w.experts.s, p.w.experts.sum
    a.ld_x8 = padded(p, w.ffn)
    a.x = a.plain = p.w.experts.gate
    a.ld_x = w.ffn
    return a


cdef inline matrix expert_of(const matrix *w, int64_t e, int64_t n_row) noexcept nogil:
    """The matrix [n_row][k] of expert e; in panels n_row is a multiple of PANEL_ROWS."""
    cdef matrix one = w[0]
    cdef int64_t row = e * n_row
    one.n_row = n_row
    if w.dense != NULL:
        one.dense = w.dense + row * w.k
        return one
    one.codes = w.codes + row * w.n_block * (w.group_bytes * w.n_plane if w.group_bytes else TERNARY_BLOCK_BYTES)
    if w.scale != NULL:
        one.scale = w.scale + row * w.scale_step
    return one


cdef void rows_of_expert(
    step_plan *p, const matrix *w, int64_t e, int64_t n_row, const activations *a, int64_t first, int64_t n, int64_t k,
    int64_t row0, int64_t row1, int32_t *acc, float *out) noexcept nogil:
    """out [n][n_row] = rows [row0, row1) of expert e's matrix [n_row][k] times the inputs of pairs first .. first + n.

    a: of pairs, or, with k the width of the residual stream, of tokens: then s.x8 has copies, if there are several.
    """
    cdef matrix one = expert_of(w, e, n_row)
    cdef activations of = a[0]
    cdef experts_scratch *s = &p.w.experts
    cdef int64_t i, each = a.ld_x8 // a.group if a.group else 1
    cdef bint tokens = a.x != s.gate
    if one.dense != NULL:  # floats are not gathered: token by token they take no longer
        of.n_token = 1
        for i in range(n):
            of.x = a.x + (s.token[first + i] if tokens else first + i) * a.ld_x
            project(p.kernel, &one, &of, row0, row1, False, acc, out + i * n_row, n_row)
        return
    of.n_token = n
    if not tokens or p.n_token > 1:
        of.x8, of.s, of.sum = s.x8 + first * a.ld_x8, s.s + first * each, s.sum + first * each
    project(p.kernel, &one, &of, row0, row1, False, acc, out, n_row)


cdef inline void activate_pair(
    step_plan *p, const experts_part *w, float *gate, float *up, int64_t n) noexcept nogil:
    """gate [n] = silu(gate) * up, both clamped if the model does so."""
    cdef int64_t i
    cdef float bound = w.clamp
    if bound > 0:
        for i in range(n):
            gate[i] = min(gate[i], bound)
            up[i] = max(-bound, min(up[i], bound))
    p.kernel.gate_silu(gate, up, n, gate)


cdef inline void add_row(float *h, const float *y, float weight, int64_t n) noexcept nogil:
    """h [n] += weight * y."""
    cdef int64_t i
    for i in range(n):
        h[i] += weight * y[i]
