"""attention: softmax attention straight over KV pages, the query heads of a KV head sharing each load.

Work is cut into (KV head) x (chunk of 8 pages) with boundaries at fixed absolute positions; each chunk gives a partial
(m, l, o) by online softmax (Milakov & Gimelshein, arXiv 1805.02867) and partials are folded in ascending order.  So
decode spread over threads, prefill on one, chunked or token by token, all do the same arithmetic in the same order.

Tokens are taken one page at a time: a query sees its own page as floats and every page before it sealed, however many
tokens the batch has.
"""

import array

from cython.parallel cimport parallel, threadid
from libc.math cimport INFINITY
from libc.stdint cimport int8_t, int64_t, uint8_t, uint32_t

from pyx.cpu cimport KV_PAGE, active, kernels
from pyx.kv cimport KVCache, attended, first_page, locate, pages
from pyx.memory cimport Arena
from pyx.page cimport attend_page, page_format, page_scratch, seal_page, store_token

cdef extern from "numbers.h" nogil:
    float kernel_expf(float x)

cdef extern from "barrier.h" nogil:
    void team_barrier()


cdef void attend(const attention_plan *p, int64_t layer, int tid, int n_thread) noexcept nogil:
    cdef int64_t first = 0, n, pos, page, D = p.kv.head_dim
    while first < p.n_token:
        pos = p.pos0 + first
        page = pos // KV_PAGE
        n = min(p.n_token - first, (page + 1) * KV_PAGE - pos)
        append(p, layer, first, n, tid, n_thread)
        team_barrier()
        if p.n_token == 1:
            attend_one(p, layer, tid, n_thread)
        else:
            attend_tiles(p, layer, first, n, tid, n_thread)
        team_barrier()
        # The thread that appended a head seals it, so no barrier is needed before it appends the next page.
        if p.kv.quantised and page >= p.kv.sink_pages and (pos + n) % KV_PAGE == 0:
            seal(p, layer, page, tid, n_thread)
        first += n


cdef void append(
    const attention_plan *p, int64_t layer, int64_t first, int64_t n, int tid, int n_thread) noexcept nogil:
    """Write n tokens from `first` on, all in one page, into the pages of this thread's heads."""
    cdef int64_t head, t, offset, D = p.kv.head_dim, H = p.kv.n_kv_head, page = (p.pos0 + first) // KV_PAGE
    cdef uint8_t *data
    cdef const page_format *format
    for head in range(share(H, 1, tid, n_thread), share(H, 1, tid + 1, n_thread)):
        data = locate(p.kv, layer, head, page, page, &format)
        for t in range(first, first + n):
            offset = (t * H + head) * D
            store_token(p.kernel, format, data, (p.pos0 + t) % KV_PAGE, p.k + offset, p.v + offset)


cdef void seal(const attention_plan *p, int64_t layer, int64_t page, int tid, int n_thread) noexcept nogil:
    """Quantise the open page of this thread's heads, once, into its place in the ring."""
    cdef int64_t head, H = p.kv.n_kv_head
    cdef const page_format *unsealed
    cdef const page_format *sealed
    cdef uint8_t *source
    cdef uint8_t *target
    for head in range(share(H, 1, tid, n_thread), share(H, 1, tid + 1, n_thread)):
        source = locate(p.kv, layer, head, page, page, &unsealed)
        target = locate(p.kv, layer, head, page, -1, &sealed)
        seal_page(p.kernel, unsealed, source, sealed, target)


cdef void attend_one(const attention_plan *p, int64_t layer, int tid, int n_thread) noexcept nogil:
    """Decode: (KV head x chunk) items over the threads, then each head's partials folded in order."""
    cdef int64_t D = p.kv.head_dim, H = p.kv.n_kv_head, group = p.n_head // H, size = partial_floats(group, D)
    cdef int64_t chunks = n_chunk(p.kv, p.pos0), item, head, chunk
    cdef float *state = p.state + tid * thread_state_floats(group, D)
    cdef float *scratch = state + 2 * QUERY_TILE * size
    for item in range(share(H * chunks, 1, tid, n_thread), share(H * chunks, 1, tid + 1, n_thread)):
        head, chunk = item // chunks, item % chunks
        attend_chunk(p, layer, head, chunk, 0, 1, p.parts + (head * p.max_chunks + chunk) * size, scratch)
    team_barrier()
    for head in range(share(H, 1, tid, n_thread), share(H, 1, tid + 1, n_thread)):
        reset_state(state, group, D)
        for chunk in range(chunks):
            merge(state, p.parts + (head * p.max_chunks + chunk) * size, group, D)
        finish(state, group, D, p.out + head * group * D)


cdef void attend_tiles(
    const attention_plan *p, int64_t layer, int64_t first, int64_t n, int tid, int n_thread) noexcept nogil:
    """Prefill: (KV head x tile of tokens) items, each walking all its chunks; a tile's tokens share page loads."""
    cdef int64_t D = p.kv.head_dim, H = p.kv.n_kv_head, group = p.n_head // H, size = partial_floats(group, D)
    cdef int64_t tiles = (n + QUERY_TILE - 1) // QUERY_TILE, item, head, token, width, i, chunk
    cdef float *state = p.state + tid * thread_state_floats(group, D)
    cdef float *part = state + QUERY_TILE * size
    for item in range(share(H * tiles, 1, tid, n_thread), share(H * tiles, 1, tid + 1, n_thread)):
        head = item // tiles
        token = first + item % tiles * QUERY_TILE
        width = min(<int64_t>QUERY_TILE, first + n - token)
        for i in range(width):
            reset_state(state + i * size, group, D)
        for chunk in range(n_chunk(p.kv, p.pos0 + token)):
            attend_chunk(p, layer, head, chunk, token, width, part, part + QUERY_TILE * size)
            for i in range(width):
                merge(state + i * size, part + i * size, group, D)
        for i in range(width):
            finish(state + i * size, group, D, p.out + ((token + i) * p.n_head + head * group) * D)


cdef void attend_chunk(
    const attention_plan *p, int64_t layer, int64_t head, int64_t chunk, int64_t token, int64_t n, float *partial,
    float *scratch) noexcept nogil:
    """One chunk of one KV head for n tokens of one page, from `token` on, into partial [n][partial_floats].

    All n tokens enumerate chunks as the first of them does: it sees the oldest page; later ones see it masked.
    """
    cdef int64_t D = p.kv.head_dim, group = p.n_head // p.kv.n_kv_head, size = partial_floats(group, D)
    cdef int64_t pos = p.pos0 + token, open_page = pos // KV_PAGE, oldest = first_page(p.kv, pos)
    cdef int64_t before = sink_chunks(p.kv, pos), page, i, query
    cdef uint32_t valid
    cdef uint8_t *data
    cdef const void *next
    cdef float *state
    cdef const page_format *format
    if chunk >= before:
        chunk += oldest // CHUNK_PAGES - before
    for i in range(n):
        reset_state(partial + i * size, group, D)
    for page in range(chunk * CHUNK_PAGES, min((chunk + 1) * CHUNK_PAGES, open_page + 1)):
        if p.kv.sink_pages <= page < oldest:
            continue
        data = locate(p.kv, layer, head, page, open_page, &format)
        # where the next page of this head lies, in most cases
        next = data + format.bytes if page < open_page else data
        for i in range(n):
            valid = attended(p.kv, page, pos + i)
            if valid == 0:
                continue
            state = partial + i * size
            query = (token + i) * p.n_head + head * group
            attend_page(
                p.kernel, format, data, next, group, valid, p.q + query * D, p.q8 + query * D, p.qs + query,
                state, state + group, state + 2 * group, scratch)


cdef inline int64_t sink_chunks(const pages *kv, int64_t pos) noexcept nogil:
    """Chunks that hold sink pages and lie wholly before the window's first chunk."""
    return min((kv.sink_pages + CHUNK_PAGES - 1) // CHUNK_PAGES, first_page(kv, pos) // CHUNK_PAGES)


cdef inline int64_t n_chunk(const pages *kv, int64_t pos) noexcept nogil:
    """Number of chunks the query at pos attends."""
    cdef int64_t first = first_page(kv, pos) // CHUNK_PAGES, last = pos // KV_PAGE // CHUNK_PAGES
    return sink_chunks(kv, pos) + max(last - first + 1, <int64_t>0)


cdef int64_t chunk_bound(const pages *kv) noexcept nogil:
    return (kv.ring_pages + CHUNK_PAGES - 1) // CHUNK_PAGES + (kv.sink_pages + CHUNK_PAGES - 1) // CHUNK_PAGES + 1


cdef int64_t partial_floats(int64_t group, int64_t head_dim) noexcept nogil:
    return group * (2 + head_dim)


cdef int64_t thread_state_floats(int64_t group, int64_t head_dim) noexcept nogil:
    return 2 * QUERY_TILE * partial_floats(group, head_dim) + page_scratch(head_dim, group)


cdef void reset_state(float *state, int64_t group, int64_t head_dim) noexcept nogil:
    """Nothing attended yet: m = -inf, l = 0, o = 0."""
    cdef int64_t i
    for i in range(group):
        state[i] = -INFINITY
    for i in range(group, partial_floats(group, head_dim)):
        state[i] = 0


cdef void merge(float *state, const float *partial, int64_t group, int64_t head_dim) noexcept nogil:
    """Fold the partial of the next chunk into the state."""
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
    """Divide by the softmax sum: the heads of one token."""
    cdef int64_t g, d
    cdef float scale
    for g in range(group):
        scale = 1 / state[group + g]
        for d in range(head_dim):
            out[g * head_dim + d] = state[2 * group + g * head_dim + d] * scale


def attention(KVCache kv not None, int64_t layer, q, k, v, int n_threads=1, bint advance=True):
    """Append keys and values of one layer and attend to them: the stage of a step, alone, for tests and tools.

    q: float32 [n_token][n_head][head_dim] flat, times 1/sqrt(head_dim) and rotated already; k, v: float32
    [n_token][n_kv_head][head_dim] flat.  Returns array("f") shaped as q.  With ``advance`` the cache counts the tokens
    (give it once per batch, in the last layer).  Raises ValueError when sizes do not fit.
    """
    cdef const float[::1] query = q, key = k, value = v
    cdef int64_t D = kv.p.head_dim, H = kv.p.n_kv_head, n, n_head, i, chunks = chunk_bound(&kv.p), group
    cdef attention_plan p
    cdef Arena q8, qs, state, parts
    n = key.shape[0] // (H * D)
    if n < 1 or key.shape[0] != n * H * D or value.shape[0] != key.shape[0] or query.shape[0] % (n * H * D):
        raise ValueError(f"{query.shape[0]} queries, {key.shape[0]} keys, {value.shape[0]} values do not fit the cache")
    if not 0 <= layer < kv.p.n_layer or n > kv.room:
        raise ValueError(f"layer {layer} or {n} tokens do not fit the cache")
    n_head = query.shape[0] // (n * D)
    group = n_head // H
    q8, qs = Arena(n * n_head * D), Arena(4 * n * n_head)
    state = Arena(4 * n_threads * thread_state_floats(group, D))
    parts = Arena(4 * H * chunks * partial_floats(group, D))
    cdef float[::1] out = array.array("f", bytes(4 * query.shape[0]))
    p.kernel = active()
    for i in range(n * n_head):
        (<float *>qs.data)[i] = p.kernel.quantize_q(&query[i * D], D, <int8_t *>q8.data + i * D)
    p.kv, p.n_token, p.pos0, p.n_head, p.max_chunks = &kv.p, n, kv.n_tokens, n_head, chunks
    p.q, p.q8, p.qs, p.k, p.v = &query[0], <int8_t *>q8.data, <float *>qs.data, &key[0], &value[0]
    p.out, p.state, p.parts = &out[0], <float *>state.data, <float *>parts.data
    with nogil, parallel(num_threads=n_threads):
        attend(&p, layer, threadid(), n_threads)
    if advance:
        kv.advance(n)
    return out.base
