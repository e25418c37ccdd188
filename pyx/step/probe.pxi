"""probe: the attention of the last token over a cache, token by token, for measurements.

Scores are computed from the pages as in attention (page.score_page); the softmax and all sums are in double.
"""


def attention_rows(KVCache kv not None, int64_t layer, queries):
    """The attention of the last token's queries to every token read: array("d") [n_head][n_tokens] flat.

    queries: float32 [n_layer][n_head][head_dim], from Transformer.keep_queries.  Each row adds up to 1; tokens that are
    no longer in the cache have 0.  Raises ValueError for sizes that do not fit and an empty cache.
    """
    cdef const float[::1] asked = memoryview(queries).cast("B").cast("f")   # [n_layer][n_head][head_dim]
    cdef int64_t D = kv.p.head_dim, H = kv.p.n_kv_head, T = kv.n_tokens, n_head, group, head, g, i, t
    n_head = asked.shape[0] // (kv.p.n_layer * D)
    if not 0 <= layer < kv.p.n_layer or n_head * kv.p.n_layer * D != asked.shape[0] or n_head < H or n_head % H:
        raise ValueError(f"{asked.shape[0]} numbers of queries, or layer {layer}, do not fit the cache")
    if T < 1:
        raise ValueError("nothing has been read")
    group = n_head // H
    cdef double[::1] out = array.array("d", [-INFINITY]) * (n_head * T)     # [n_head][T]: scores, then shares
    cdef Arena work = Arena(4 * (group * KV_PAGE + page_scratch(D, group)) + (group * D + 4 * group))
    cdef float *scores = <float *>work.data                 # [group][KV_PAGE]
    cdef float *scratch = scores + group * KV_PAGE          # [page_scratch]
    cdef float *scales = scratch + page_scratch(D, group)   # [group]  of q8
    cdef int8_t *q8 = <int8_t *>(scales + group)            # [group][D]
    cdef const kernels *kernel = active()
    cdef const float *q                                     # [group][D]  queries of one KV head
    cdef const stream *s
    cdef const page_format *format
    cdef const void *data                                   # a page
    cdef uint32_t valid
    for head in range(H):
        s = &kv.p.streams[layer * H + head]
        q = &asked[(layer * n_head + head * group) * D]
        for g in range(group):
            scales[g] = kernel.quantize_q(q + g * D, D, q8 + g * D)
        for i in range(s.n_page):
            valid = attended(&kv.p, s, s.number[i], T - 1)
            format = &kv.p.sealed if is_ring(kv.p.pool, s.id[i]) else &kv.p.unsealed
            data = page_at(kv.p.pool, s.id[i])
            score_page(kernel, format, data, data, group, q, q8, scales, scores, scratch)
            for g in range(group):
                for t in range(min(<int64_t>KV_PAGE, T - s.number[i] * KV_PAGE)):
                    if valid >> t & 1:
                        out[(head * group + g) * T + s.number[i] * KV_PAGE + t] = scores[g * KV_PAGE + t]
    for i in range(n_head):
        softmax(&out[i * T], T)
    return out.base


cdef void softmax(double *row, int64_t n) noexcept nogil:
    """Scores [n] -> probabilities, in place; -inf becomes 0."""
    cdef int64_t i
    cdef double top = row[0], total = 0
    for i in range(n):
        top = max(top, row[i])
    for i in range(n):
        row[i] = exp(row[i] - top)
        total += row[i]
    for i in range(n):
        row[i] /= total


def attention_kept(KVCache kv not None, int64_t layer, int64_t head, row):
    """The share of an attention row [n_tokens] that falls on tokens that a KV head of this cache sees, 0 to 1.

    row: float64, the attention of the last token over a cache that has read as many tokens as this one.  Raises
    ValueError for sizes that do not fit.
    """
    cdef const double[::1] share = row  # [T]
    cdef const stream *s = &kv.p.streams[layer * kv.p.n_kv_head + head]
    cdef int64_t i, t, T = kv.n_tokens
    cdef uint32_t valid
    cdef double total = 0
    if share.shape[0] != T or not (0 <= layer < kv.p.n_layer and 0 <= head < kv.p.n_kv_head):
        raise ValueError(f"a row of {share.shape[0]}, layer {layer} or head {head} do not fit a cache of {T} tokens")
    for i in range(s.n_page):
        valid = attended(&kv.p, s, s.number[i], T - 1)
        for t in range(min(<int64_t>KV_PAGE, T - s.number[i] * KV_PAGE)):
            if valid >> t & 1:
                total += share[s.number[i] * KV_PAGE + t]
    return total
