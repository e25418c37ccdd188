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
from libc.string cimport memset
from openmp cimport omp_get_num_threads

from pyx.cpu cimport KV_PAGE, active, kernels
from pyx.kv cimport KVCache
from pyx.memory cimport Arena
from pyx.page cimport attend_page, page_format, page_scratch, rotate_hadamard, store_token
from pyx.policy cimport (
    CHUNK_PAGES, attended, pages, seal_newest, sinks_of, stream, weigh, writable_page)
from pyx.pool cimport is_ring, page_at
from pyx.team cimport team, team_barrier

cdef extern from "numbers.h" nogil:
    float kernel_expf(float x)


cdef void attend(const attention_plan *p, int64_t layer, int tid, int n_thread) noexcept nogil:
    cdef int64_t first = 0, n, pos, page
    # Few pages are one run each head: the thread that appends to a head also does all that is to be done with it.
    cdef bint alone = p.n_token == 1 and p.pos0 < CHUNK_PAGES * KV_PAGE
    while first < p.n_token:
        pos = p.pos0 + first
        page = pos // KV_PAGE
        n = min(p.n_token - first, (page + 1) * KV_PAGE - pos)
        append(p, layer, first, n, tid, n_thread)
        if not alone:
            team_barrier(p.team, n_thread)
        if p.n_token == 1:
            attend_one(p, layer, alone, tid, n_thread)
        else:
            attend_tiles(p, layer, first, n, tid, n_thread)
        team_barrier(p.team, n_thread)
        # The thread that appended to a head does all that follows, so no barrier is needed before the next page.
        settle(p, layer, first, n, tid, n_thread)
        first += n


cdef void append(
    const attention_plan *p, int64_t layer, int64_t first, int64_t n, int tid, int n_thread) noexcept nogil:
    """Write n tokens from `first` on, all in one page, into the pages of this thread's heads.

    These are about the heads it reads in decode, so pages are first touched by their reader.
    """
    cdef int64_t head, t, offset, D = p.kv.head_dim, H = p.kv.n_kv_head
    cdef uint8_t *data
    for head in range(share(H, 1, tid, n_thread), share(H, 1, tid + 1, n_thread)):
        data = writable_page(p.kv, &p.kv.streams[layer * H + head], (p.pos0 + first) // KV_PAGE)
        for t in range(first, first + n):
            offset = (t * H + head) * D
            store_token(
                p.kernel, &p.kv.unsealed, data, (p.pos0 + t) % KV_PAGE, p.k + offset, p.v + offset)


cdef void settle(
    const attention_plan *p, int64_t layer, int64_t first, int64_t n, int tid, int n_thread) noexcept nogil:
    """The queries of n tokens have been answered: weigh the pages they saw, seal the page that is full."""
    cdef int64_t head, t, H = p.kv.n_kv_head, pos = p.pos0 + first
    cdef stream *s
    for head in range(share(H, 1, tid, n_thread), share(H, 1, tid + 1, n_thread)):
        s = &p.kv.streams[layer * H + head]
        if p.kv.heavy:
            for t in range(n):
                weigh(s, p.mass + (head * KV_PAGE + t) * p.kv.max_pages)
        if p.kv.quantised and pos // KV_PAGE >= s.sink_pages and (pos + n) % KV_PAGE == 0:
            seal_newest(p.kernel, p.kv, s)


cdef void attend_one(const attention_plan *p, int64_t layer, bint alone, int tid, int n_thread) noexcept nogil:
    """Decode: (KV head x chunk) items over the threads, then each head's partials folded in order.  alone: a thread
    sees to the heads it has appended to."""
    cdef int64_t D = p.kv.head_dim, H = p.kv.n_kv_head, group = p.n_head // H, size = partial_floats(group, D)
    cdef int64_t items = 0, start, stop, head, chunk
    cdef const stream *s = p.kv.streams + layer * H
    cdef float *state = p.state + tid * thread_state_floats(group, D)
    cdef float *scratch = state + 2 * QUERY_TILE * size
    if alone:
        start, stop = share(H, 1, tid, n_thread), share(H, 1, tid + 1, n_thread)
        for head in range(start, stop):
            for chunk in range(s[head].n_run):
                attend_chunk(p, layer, head, chunk, 0, 0, 1, p.parts + (head * p.max_chunks + chunk) * size, scratch)
    else:
        for head in range(H):
            items += s[head].n_run
        start, stop = share(items, 1, tid, n_thread), share(items, 1, tid + 1, n_thread)
        for head in range(H):
            for chunk in range(max(start, <int64_t>0), min(stop, <int64_t>s[head].n_run)):
                attend_chunk(p, layer, head, chunk, 0, 0, 1, p.parts + (head * p.max_chunks + chunk) * size, scratch)
            start -= s[head].n_run
            stop -= s[head].n_run
        team_barrier(p.team, n_thread)
    for head in range(share(H, 1, tid, n_thread), share(H, 1, tid + 1, n_thread)):
        reset_state(state, group, D)
        for chunk in range(s[head].n_run):
            merge(state, p.parts + (head * p.max_chunks + chunk) * size, group, D)
        if p.kv.heavy:
            account(p, layer, head, 0, state)
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
        for chunk in range(p.kv.streams[layer * H + head].n_run):
            attend_chunk(p, layer, head, chunk, token - first, token, width, part, part + QUERY_TILE * size)
            for i in range(width):
                merge(state + i * size, part + i * size, group, D)
        for i in range(width):
            if p.kv.heavy:
                account(p, layer, head, token - first + i, state + i * size)
            finish(state + i * size, group, D, p.out + ((token + i) * p.n_head + head * group) * D)


cdef void attend_chunk(
    const attention_plan *p, int64_t layer, int64_t head, int64_t chunk, int64_t slot, int64_t token, int64_t n,
    float *partial, float *scratch) noexcept nogil:
    """One chunk of one KV head for n tokens of one page, from `token` on, into partial [n][partial_floats].

    slot: number of the first token among those of its page in this batch.
    """
    cdef int64_t D = p.kv.head_dim, group = p.n_head // p.kv.n_kv_head, size = partial_floats(group, D)
    cdef int64_t pos = p.pos0 + token, i, j, query
    cdef const stream *s = &p.kv.streams[layer * p.kv.n_kv_head + head]
    cdef uint32_t valid, sinks
    cdef const void *data
    cdef const void *next
    cdef float *state
    cdef const page_format *format
    for i in range(n):
        reset_state(partial + i * size, group, D)
    for j in range(s.run[chunk], s.run[chunk + 1]):
        data = page_at(p.kv.pool, s.id[j])
        next = page_at(p.kv.pool, s.id[j + 1]) if j + 1 < s.n_page else data
        format = &p.kv.sealed if is_ring(p.kv.pool, s.id[j]) else &p.kv.unsealed
        for i in range(n):
            valid = attended(p.kv, s, s.number[j], pos + i)
            if valid == 0:
                continue
            state = partial + i * size
            query = (token + i) * p.n_head + head * group
            if p.kv.heavy:
                note(p, head, slot + i, j, group, state, False)
            if p.kv.restart and pos + i >= s.sinks + s.window:
                sinks = valid & sinks_of(s, s.number[j])
                valid &= ~sinks
                if sinks:
                    attend_page(
                        p.kernel, format, data, next, group, sinks, p.q_sink + query * D, NULL, NULL, state,
                        state + group, state + 2 * group, scratch)
            if valid:
                attend_page(
                    p.kernel, format, data, next, group, valid, p.q + query * D, p.q8 + query * D, p.qs + query,
                    state, state + group, state + 2 * group, scratch)
            if p.kv.heavy:
                note(p, head, slot + i, j, group, state, True)


cdef inline float *mark(const attention_plan *p, int64_t head, int64_t slot, int64_t j, int64_t group) noexcept nogil:
    """[2][group]: running maximum behind page j, and the sum of its own probabilities against that maximum."""
    return p.marks + ((head * KV_PAGE + slot) * p.kv.max_pages + j) * 2 * group


cdef void note(
    const attention_plan *p, int64_t head, int64_t slot, int64_t j, int64_t group, const float *state,
    bint behind) noexcept nogil:
    """Before and behind page j: what it adds to the running sum."""
    cdef float *of = mark(p, head, slot, j, group)
    cdef int64_t g
    for g in range(group):
        if behind:
            of[group + g] = state[group + g] - (
                of[group + g] * kernel_expf(of[g] - state[g]) if of[group + g] != 0 else 0)
            of[g] = state[g]
        else:
            of[g], of[group + g] = state[g], state[group + g]


cdef void account(
    const attention_plan *p, int64_t layer, int64_t head, int64_t slot, const float *state) noexcept nogil:
    """mass [n_page] of one token: the share of its attention that each page got, mean over the heads of the group."""
    cdef int64_t group = p.n_head // p.kv.n_kv_head, j, g
    cdef const stream *s = &p.kv.streams[layer * p.kv.n_kv_head + head]
    cdef float *mass = p.mass + (head * KV_PAGE + slot) * p.kv.max_pages
    cdef float total
    cdef const float *of
    for j in range(s.n_page):
        of = mark(p, head, slot, j, group)
        total = 0
        for g in range(group):
            total += of[group + g] * kernel_expf(of[g] - state[g]) / state[group + g]
        mass[j] = total / group


cdef class Workspace:
    """What attention needs beside the pages: partial results, and for policy "heavy" what each page got."""

    cdef aim(self, attention_plan *p, pages *kv, int64_t n_head):
        cdef int64_t H = kv.n_kv_head, group = n_head // H
        # sinks and ring begin anywhere in a chunk
        cdef int64_t chunks = kv.max_pages // CHUNK_PAGES + 3
        cdef int64_t masses = H * KV_PAGE * kv.max_pages if kv.heavy else 0
        cdef int64_t parts = H * chunks * partial_floats(group, kv.head_dim)
        if self.arena is None or <int64_t>self.arena.nbytes < 4 * (parts + masses + 2 * group * masses):
            self.arena = Arena(4 * (parts + masses + 2 * group * masses))
        p.kv, p.n_head, p.max_chunks = kv, n_head, chunks
        p.parts = <float *>self.arena.data
        p.mass = p.parts + parts
        p.marks = p.mass + masses


    cdef void *room(self, int64_t nbytes) except NULL:
        if self.batch is None or <int64_t>self.batch.nbytes < nbytes:
            self.batch = Arena(nbytes)
        return self.batch.data


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


cdef rotated(const float[::1] x, int64_t head_dim):
    """A copy of some heads, as a cache wants them that has its keys rotated."""
    cdef float[::1] copy = array.array("f", memoryview(x).tobytes())
    cdef int64_t i
    for i in range(0, copy.shape[0], head_dim):
        rotate_hadamard(&copy[i], head_dim)
    return copy.base


def attention(KVCache kv not None, int64_t layer, q, k, v, int n_threads=1, bint advance=True, q_sink=None,
              Workspace workspace=None):
    """Append keys and values of one layer and attend to them: the stage of a step, alone, for tests and tools.

    q: float32 [n_token][n_head][head_dim] flat, times 1/sqrt(head_dim) and rotated already; k, v: float32
    [n_token][n_kv_head][head_dim] flat.  q_sink: the queries that a cache with positions "cache" puts to its sinks.
    Returns array("f") shaped as q.  With ``advance`` the cache counts the tokens (give it once per batch, in the last
    layer).  workspace: keeps what calls can share, where time is measured.  Raises ValueError when sizes do not fit,
    MemoryError when the pool's limit forbids it.
    """
    cdef const float[::1] query = q, key = k, value = v, at_sinks
    cdef int64_t D = kv.p.head_dim, H = kv.p.n_kv_head, n, n_head, i
    cdef attention_plan p
    cdef team here
    cdef int8_t *q8
    cdef float *qs
    n = key.shape[0] // (H * D)
    if n < 1 or key.shape[0] != n * H * D or value.shape[0] != key.shape[0] or query.shape[0] % (n * H * D):
        raise ValueError(f"{query.shape[0]} queries, {key.shape[0]} keys, {value.shape[0]} values do not fit the cache")
    if not 0 <= layer < kv.p.n_layer or n > kv.room:
        raise ValueError(f"layer {layer} or {n} tokens do not fit the cache")
    memset(&here, 0, sizeof(here))
    p.team, p.q_sink = &here, NULL
    if kv.p.restart:
        at_sinks = q_sink
        if at_sinks.shape[0] != query.shape[0]:
            raise ValueError(f"{at_sinks.shape[0]} queries for the sinks, {query.shape[0]} in all")
        p.q_sink = &at_sinks[0]
    if kv.p.hadamard:
        query, key = rotated(query, D), rotated(key, D)
        if kv.p.restart:
            at_sinks = rotated(at_sinks, D)
            p.q_sink = &at_sinks[0]
    kv.prepare(n)
    n_head = query.shape[0] // (n * D)
    workspace = Workspace() if workspace is None else workspace
    p.state = <float *>workspace.room(
        4 * (n_threads * thread_state_floats(n_head // H, D) + n * n_head) + n * n_head * D)
    qs = p.state + n_threads * thread_state_floats(n_head // H, D)
    q8 = <int8_t *>(qs + n * n_head)
    cdef float[::1] out = array.array("f", bytes(4 * query.shape[0]))
    p.kernel = active()
    for i in range(n * n_head):
        qs[i] = p.kernel.quantize_q(&query[i * D], D, q8 + i * D)
    workspace.aim(&p, &kv.p, n_head)
    p.n_token, p.pos0 = n, kv.n_tokens
    p.q, p.q8, p.qs, p.k, p.v, p.out = &query[0], q8, qs, &key[0], &value[0], &out[0]
    with nogil, parallel(num_threads=n_threads):
        attend(&p, layer, threadid(), omp_get_num_threads())
    if advance:
        kv.advance(n)
    return out.base
