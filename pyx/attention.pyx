"""attention: softmax attention straight over KV pages, the query heads of a KV head sharing each load.

Work is cut into (KV head) x (chunk of 8 pages) with boundaries at fixed absolute positions; each chunk gives a partial
(m, l, o) by online softmax (Milakov & Gimelshein, arXiv 1805.02867) and partials are folded in ascending order.  So
decode spread over threads, prefill on one, chunked or token by token, all do the same arithmetic in the same order.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int8_t, int64_t, uint8_t, uint32_t

from pyx.cpu cimport KV_PAGE, kernels
from pyx.kv cimport PAGE_F16, PAGE_F32, PAGE_INT8, attended, first_page, locate, page_kind, pages

cdef extern from "kernels.h" nogil:
    void attend_f32(
        const void *, int64_t, int64_t, uint32_t, const float *, float *, float *, float *)
    void store_f32(void *, int64_t, int64_t, const float *, const float *)

cdef extern from "numbers.h" nogil:
    float kernel_expf(float x)


cdef void store(
    const kernels *kernel, page_kind kind, uint8_t *page, int64_t head_dim, int64_t slot,
    const float *k, const float *v) noexcept nogil:
    if kind == PAGE_F32:
        store_f32(page, head_dim, slot, k, v)
    else:
        kernel.store_f16(page, head_dim, slot, k, v)


cdef inline int64_t sink_chunks(const pages *p, int64_t pos) noexcept nogil:
    """Chunks that hold sink pages and lie wholly before the window's first chunk."""
    return min((p.sink_pages + CHUNK_PAGES - 1) // CHUNK_PAGES, first_page(p, pos) // CHUNK_PAGES)


cdef int64_t n_chunk(const pages *p, int64_t pos) noexcept nogil:
    cdef int64_t first = first_page(p, pos) // CHUNK_PAGES, last = pos // KV_PAGE // CHUNK_PAGES
    return sink_chunks(p, pos) + max(last - first + 1, <int64_t>0)


cdef int64_t partial_floats(int64_t group, int64_t head_dim) noexcept nogil:
    return group * (2 + head_dim)


cdef void reset_state(float *state, int64_t group, int64_t head_dim) noexcept nogil:
    cdef int64_t i
    for i in range(group):
        state[i] = -INFINITY
    for i in range(group, partial_floats(group, head_dim)):
        state[i] = 0


cdef void attend_chunk(
    const kernels *kernel, const pages *p, const queries *q, int64_t layer, int64_t head, int64_t chunk,
    int64_t token0, int64_t n, float *partial) noexcept nogil:
    cdef int64_t D = p.head_dim, group = q.n_head // p.n_kv_head, size = partial_floats(group, D)
    # All n tokens enumerate chunks as the first of them does: it sees the oldest page; later ones see it masked.
    cdef int64_t pos = q.pos0 + token0
    cdef int64_t open_page = (q.pos0 + q.n_token - 1) // KV_PAGE
    cdef int64_t before = sink_chunks(p, pos), page, last, i, offset
    cdef uint32_t valid
    cdef uint8_t *data
    cdef float *state
    cdef page_kind kind
    if chunk >= before:
        chunk += first_page(p, pos) // CHUNK_PAGES - before
    for i in range(n):
        reset_state(partial + i * size, group, D)
    last = min((chunk + 1) * CHUNK_PAGES - 1, open_page)
    for page in range(chunk * CHUNK_PAGES, last + 1):
        if p.sink_pages <= page < first_page(p, pos):
            continue
        data = locate(p, layer, head, page, open_page, &kind)
        for i in range(n):
            valid = attended(p, page, pos + i)
            if valid == 0:
                continue
            state = partial + i * size
            offset = ((token0 + i) * q.n_head + head * group) * D
            if kind == PAGE_INT8:
                kernel.attend_i8(
                    data, D, group, valid, q.q8 + offset, q.qs + (token0 + i) * q.n_head + head * group,
                    state, state + group, state + 2 * group)
            elif kind == PAGE_F16:
                kernel.attend_f16(data, D, group, valid, q.q + offset, state, state + group, state + 2 * group)
            else:
                attend_f32(data, D, group, valid, q.q + offset, state, state + group, state + 2 * group)


cdef void merge(float *state, const float *partial, int64_t group, int64_t head_dim) noexcept nogil:
    cdef int64_t g, d
    cdef float m, a, b
    cdef float *o
    cdef const float *part
    for g in range(group):
        if partial[group + g] == 0:
            continue  # nothing attended in that chunk: must not touch the state
        m = max(state[g], partial[g])
        a = kernel_expf(state[g] - m) if state[group + g] != 0 else 0
        b = kernel_expf(partial[g] - m)
        o = state + 2 * group + g * head_dim
        part = partial + 2 * group + g * head_dim
        for d in range(head_dim):
            o[d] = o[d] * a + part[d] * b
        state[group + g] = state[group + g] * a + partial[group + g] * b
        state[g] = m


cdef void finish(const float *state, int64_t group, int64_t head_dim, float *out) noexcept nogil:
    cdef int64_t g, d
    cdef float scale
    for g in range(group):
        scale = 1 / state[group + g]
        for d in range(head_dim):
            out[g * head_dim + d] = state[2 * group + g * head_dim + d] * scale
