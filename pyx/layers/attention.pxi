"""attention: softmax attention directly over KV pages; the query heads of a KV head share each load.

Work is divided into (KV head) x (chunk of 8 pages) with boundaries at fixed absolute positions.  Each chunk gives a
partial result (m, l, o) by online softmax (Milakov & Gimelshein, arXiv 1805.02867), and partial results are combined in
ascending order.  So decode on many threads and prefill on one, in chunks or token by token, do the same arithmetic in
the same order.

Tokens are processed one page at a time, in turns: a query sees its own page as floats and every page before it sealed,
however many tokens the step has.  The segments of a step take their turns side by side, each over its own cache.
"""

cdef enum:
    QUERY_TILE = 8          # tokens whose queries share the load of a page in prefill
    SHARED_FLOATS = 3       # tokens from which on a page of F16 is first made one of F32 for all of them

# The tokens of a step that go to one cache, at its positions pos0, pos0 + 1, ...
cdef struct segment:
    pages *kv               # its cache
    recurrence *delta       # the states of its gated delta layers, NULL if there are none
    int64_t first           # its first token among those of the step
    int64_t n_token
    int64_t pos0            # position of that token
    float *parts            # [n_kv_head][max_chunks][partial_floats]  partial results, if it is one token
    int64_t max_chunks      # most chunks of a KV head

# The tokens of a step in one layer, one segment after the other, shared by the team of threads.
cdef struct attention_plan:
    const kernels *kernel
    team *team              # all threads of the step
    const segment *segments # [n_segment], of different caches
    int64_t n_segment
    int64_t n_token         # of all segments
    int64_t n_head, n_kv_head, head_dim
    const float *q          # [n_token][n_head][head_dim], rotated, times 1/sqrt(head_dim)
    const int8_t *q8        # [n_token][n_head][head_dim]  q as int8, for quantised pages
    const float *qs         # [n_token][n_head]  scales of q8
    const float *k          # [n_token][n_kv_head][head_dim], rotated
    const float *v          # [n_token][n_kv_head][head_dim]
    float *out              # [n_token][n_head][head_dim]
    float *state            # [n_thread][thread_state_floats]  working memory


cdef bint all_single(const attention_plan *p) noexcept nogil:
    """Every segment is one token: number n of the step goes to cache n."""
    return p.n_segment == p.n_token


cdef void attend(const attention_plan *p, int64_t layer, int tid, int n_thread) noexcept nogil:
    """Append, attend and seal: every thread of a team calls it.  It needs those (token, KV head) pairs ready that are
    its share where all segments are single tokens, all pairs otherwise; p.out is ready for all on return.
    """
    cdef int64_t i, last = 0, turn
    # Few pages are one run each head: the thread that appends to a head also does all that is to be done with it.
    cdef bint alone = all_single(p)
    for i in range(p.n_segment):
        alone &= p.segments[i].pos0 < CHUNK_PAGES * KV_PAGE
        last = max(last, turns(&p.segments[i]) - 1)
    for turn in range(last + 1):
        append(p, layer, turn, tid, n_thread)
        if not alone:
            team_barrier(p.team, n_thread)
        if alone:
            attend_own(p, layer, tid, n_thread)
        else:
            attend_shared(p, layer, turn, tid, n_thread)
        team_barrier(p.team, n_thread)
        # The thread that appended to a head does all that follows, so no barrier is needed before the next page.
        seal_pages(p, layer, turn, tid, n_thread)


cdef inline int64_t turns(const segment *s) noexcept nogil:
    """Number of pages that its tokens are written to; each is one turn."""
    return (s.pos0 + s.n_token - 1) // KV_PAGE - s.pos0 // KV_PAGE + 1


cdef inline int64_t tokens_of(const segment *s, int64_t turn, int64_t *first) noexcept nogil:
    """Number of its tokens that go to the page of this turn, and the first of them; 0 after its last turn."""
    cdef int64_t page = s.pos0 // KV_PAGE + turn
    first[0] = max(<int64_t>0, page * KV_PAGE - s.pos0)
    return max(<int64_t>0, min(s.n_token, (page + 1) * KV_PAGE - s.pos0) - first[0])


cdef void append(const attention_plan *p, int64_t layer, int64_t turn, int tid, int n_thread) noexcept nogil:
    """Write the tokens of this turn into the pages of this thread's heads.

    These are about the heads that it reads in decode, so that a page is first touched by its reader.
    """
    cdef int64_t item, head, t, first, n, offset, D = p.head_dim, H = p.n_kv_head
    cdef const segment *s
    cdef uint8_t *data      # a page that is written to
    for item in range(share(p.n_segment * H, 1, tid, n_thread), share(p.n_segment * H, 1, tid + 1, n_thread)):
        s, head = &p.segments[item // H], item % H
        n = tokens_of(s, turn, &first)
        if n == 0:
            continue
        data = writable_page(s.kv, &s.kv.streams[layer * H + head], (s.pos0 + first) // KV_PAGE)
        for t in range(first, first + n):
            offset = ((s.first + t) * H + head) * D
            store_token(
                p.kernel, &s.kv.unsealed, data, (s.pos0 + t) % KV_PAGE, p.k + offset, p.v + offset)


cdef void seal_pages(const attention_plan *p, int64_t layer, int64_t turn, int tid, int n_thread) noexcept nogil:
    """After all queries of this turn: seal the page that is full."""
    cdef int64_t item, head, first, n, pos, H = p.n_kv_head
    cdef const segment *s
    cdef stream *of
    for item in range(share(p.n_segment * H, 1, tid, n_thread), share(p.n_segment * H, 1, tid + 1, n_thread)):
        s, head = &p.segments[item // H], item % H
        n = tokens_of(s, turn, &first)
        if n == 0:
            continue
        of, pos = &s.kv.streams[layer * H + head], s.pos0 + first
        if s.kv.quantised and pos // KV_PAGE >= of.sink_pages and (pos + n) % KV_PAGE == 0:
            seal_newest(p.kernel, s.kv, of)


cdef void attend_own(const attention_plan *p, int64_t layer, int tid, int n_thread) noexcept nogil:
    """For one token each and few pages: a thread answers the queries of the heads that it has appended to."""
    cdef int64_t item, H = p.n_kv_head
    for item in range(share(p.n_segment * H, 1, tid, n_thread), share(p.n_segment * H, 1, tid + 1, n_thread)):
        attend_tile(p, &p.segments[item // H], layer, item % H, 0, 1, tid)


# A walk over work that threads share out by weight: each takes the items whose middle lies in its part of the whole.
cdef struct walk:
    int64_t at, total
    int tid, n_thread


cdef inline bint mine(walk *w, int64_t weight) noexcept nogil:
    """The next item, of this weight, belongs to this thread."""
    cdef int64_t middle = (2 * w.at + weight) * w.n_thread
    w.at += weight
    return 2 * w.total * w.tid <= middle < 2 * w.total * (w.tid + 1)


cdef void attend_shared(const attention_plan *p, int64_t layer, int64_t turn, int tid, int n_thread) noexcept nogil:
    """Divide the work of all segments among the threads: single tokens by (KV head x chunk), whose partial results are
    combined in order afterwards; others by (KV head x tile of tokens), each over all its chunks.
    """
    cdef int64_t D = p.head_dim, H = p.n_kv_head, size = partial_floats(p.n_head // H, D)
    cdef int64_t i, item, head, chunk, first, n, token, width
    cdef bint single = False
    cdef const segment *s
    cdef const stream *of
    cdef float *scratch = p.state + tid * thread_state_floats(p.n_head // H, D) + 2 * QUERY_TILE * size
    cdef walk w
    w.at, w.total, w.tid, w.n_thread = 0, 0, tid, n_thread
    for i in range(p.n_segment):
        n = tokens_of(&p.segments[i], turn, &first)
        for head in range(H if n else 0):
            w.total += n * p.segments[i].kv.streams[layer * H + head].n_run
    for i in range(p.n_segment):
        s = &p.segments[i]
        n = tokens_of(s, turn, &first)
        single |= n > 0 and s.n_token == 1
        for head in range(H if n else 0):
            of = &s.kv.streams[layer * H + head]
            if s.n_token == 1:
                for chunk in range(of.n_run):
                    if mine(&w, 1):
                        attend_chunk(
                            p, s, layer, head, chunk, 0, 1, s.parts + (head * s.max_chunks + chunk) * size, scratch)
            else:
                token = first
                while token < first + n:
                    width = min(<int64_t>QUERY_TILE, first + n - token)
                    if mine(&w, width * of.n_run):
                        attend_tile(p, s, layer, head, token, width, tid)
                    token += width
    if not single:
        return
    team_barrier(p.team, n_thread)
    for item in range(share(p.n_segment * H, 1, tid, n_thread), share(p.n_segment * H, 1, tid + 1, n_thread)):
        if p.segments[item // H].n_token == 1 and turn == 0:
            fold(p, &p.segments[item // H], layer, item % H, tid)


cdef void fold(const attention_plan *p, const segment *s, int64_t layer, int64_t head, int tid) noexcept nogil:
    """Combine the partial results of a single token's chunks, in order."""
    cdef int64_t D = p.head_dim, group = p.n_head // p.n_kv_head, size = partial_floats(group, D), chunk
    cdef float *state = p.state + tid * thread_state_floats(group, D)   # [size]
    reset_state(state, group, D)
    for chunk in range(s.kv.streams[layer * p.n_kv_head + head].n_run):
        merge(state, s.parts + (head * s.max_chunks + chunk) * size, group, D)
    finish(state, group, D, p.out + (s.first * p.n_head + head * group) * D)


cdef void attend_tile(
    const attention_plan *p, const segment *s, int64_t layer, int64_t head, int64_t token, int64_t width,
    int tid) noexcept nogil:
    """One KV head for `width` tokens of one page from `token` on, which share the loads of pages."""
    cdef int64_t D = p.head_dim, group = p.n_head // p.n_kv_head, size = partial_floats(group, D), i, chunk
    cdef float *state = p.state + tid * thread_state_floats(group, D)   # [width][size]
    cdef float *part = state + QUERY_TILE * size                        # [width][size]  of one chunk
    for i in range(width):
        reset_state(state + i * size, group, D)
    for chunk in range(s.kv.streams[layer * p.n_kv_head + head].n_run):
        attend_chunk(p, s, layer, head, chunk, token, width, part, part + QUERY_TILE * size)
        for i in range(width):
            merge(state + i * size, part + i * size, group, D)
    for i in range(width):
        finish(state + i * size, group, D, p.out + ((s.first + token + i) * p.n_head + head * group) * D)


cdef void attend_chunk(
    const attention_plan *p, const segment *s, int64_t layer, int64_t head, int64_t chunk, int64_t token, int64_t n,
    float *partial, float *scratch) noexcept nogil:
    """One chunk of one KV head for n tokens of one page, from `token` on, into partial [n][partial_floats].

    scratch: [page_scratch], then a page of F32.
    """
    cdef int64_t D = p.head_dim, group = p.n_head // p.n_kv_head, size = partial_floats(group, D)
    cdef int64_t pos = s.pos0 + token, i, j, query
    cdef const pages *kv = s.kv
    cdef const stream *of = &kv.streams[layer * p.n_kv_head + head]
    cdef uint32_t valid
    cdef const void *data       # the page
    cdef const void *next       # the page after it, which is fetched meanwhile
    cdef float *state           # [size]  of one token
    cdef const page_format *format
    cdef page_format floats
    cdef float *unpacked = scratch + page_scratch(D, group)  # [2 * KV_PAGE * D]
    cdef bint shared
    for i in range(n):
        reset_state(partial + i * size, group, D)
    for j in range(of.run[chunk], of.run[chunk + 1]):
        data = page_at(kv.pool, of.id[j])
        next = page_at(kv.pool, of.id[j + 1]) if j + 1 < of.n_page else data
        format = &kv.sealed if is_ring(kv.pool, of.id[j]) else &kv.unsealed
        shared = n >= SHARED_FLOATS and format.k_type == F16 and format.v_type == F16
        for i in range(n):
            valid = attended(kv, of, of.number[j], pos + i)
            if valid == 0:
                continue
            if shared:
                page_as_floats(p.kernel, format, data, &floats, unpacked)
                data = next = unpacked
                format, shared = &floats, False
            state = partial + i * size
            query = (s.first + token + i) * p.n_head + head * group
            attend_page(
                p.kernel, format, data, next, group, valid, p.q + query * D, p.q8 + query * D, p.qs + query,
                state, state + group, state + 2 * group, scratch)


cdef class Workspace:
    """Buffers of attention besides the pages: partial results."""

    cdef Arena arena        # parts of every segment
    cdef Arena batch        # what `room` returns

    cdef aim(self, segment *segments, int64_t n, int64_t n_head):
        """Point segments [n] to memory for their parts; it grows to the largest size seen."""
        cdef int64_t i, at = 0
        cdef segment *s
        cdef float *base
        for i in range(n):
            s = &segments[i]
            # sinks and ring begin anywhere in a chunk
            s.max_chunks = s.kv.max_pages // CHUNK_PAGES + 3
            at += floats_of(s, n_head)
        if self.arena is None or <int64_t>self.arena.nbytes < 4 * at:
            self.arena = Arena(4 * at)
        base = <float *>self.arena.data
        for i in range(n):
            s = &segments[i]
            s.parts = base
            base += floats_of(s, n_head)

    cdef void *room(self, int64_t nbytes) except NULL:
        """nbytes of memory for the batch, the same from call to call unless it must grow."""
        if self.batch is None or <int64_t>self.batch.nbytes < nbytes:
            self.batch = Arena(nbytes)
        return self.batch.data


cdef int64_t floats_of(const segment *s, int64_t n_head) noexcept nogil:
    """Floats of its partial results, in whole cache lines."""
    cdef int64_t H = s.kv.n_kv_head
    return (H * s.max_chunks * partial_floats(n_head // H, s.kv.head_dim) + 15) // 16 * 16


cdef int64_t partial_floats(int64_t group, int64_t head_dim) noexcept nogil:
    """Floats of one partial result of group query heads, which share a KV head: m [group] (largest score), l [group]
    (sum of exp(score - m)), o [group][head_dim] (sum of exp(score - m) * value).
    """
    return group * (2 + head_dim)


cdef int64_t thread_state_floats(int64_t group, int64_t head_dim) noexcept nogil:
    """Floats of working memory per thread: state [QUERY_TILE] and part [QUERY_TILE] partial results, page_scratch, then
    a page of F32.
    """
    return 2 * QUERY_TILE * partial_floats(group, head_dim) + page_scratch(head_dim, group) + 2 * KV_PAGE * head_dim


cdef void reset_state(float *state, int64_t group, int64_t head_dim) noexcept nogil:
    """state [partial_floats] before any page: m = -inf, l = 0, o = 0."""
    cdef int64_t i
    for i in range(group):
        state[i] = -INFINITY
    for i in range(group, partial_floats(group, head_dim)):
        state[i] = 0


cdef void merge(float *state, const float *partial, int64_t group, int64_t head_dim) noexcept nogil:
    """Add the partial result of the next chunk to the state, both [partial_floats]."""
    cdef int64_t g, d
    cdef float m, a, b
    cdef float *o           # [head_dim]
    cdef const float *part  # [head_dim]
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
    """Divide by the softmax sum: state [partial_floats] -> out [group][head_dim], the heads of one token."""
    cdef int64_t g, d
    cdef float scale
    for g in range(group):
        scale = 1 / state[group + g]
        for d in range(head_dim):
            out[g * head_dim + d] = state[2 * group + g * head_dim + d] * scale


cdef rotated(const float[::1] x, int64_t head_dim):
    """A copy of x [n][head_dim] with each head rotated (Hadamard), for a cache with rotated keys."""
    cdef float[::1] copy = array.array("f", memoryview(x).tobytes())
    cdef int64_t i
    for i in range(0, copy.shape[0], head_dim):
        rotate_hadamard(&copy[i], head_dim)
    return copy.base


def attention(KVCache kv not None, int64_t layer, q, k, v, int n_threads=1, bint advance=True,
              Workspace workspace=None):
    """Append keys and values of one layer and attend to them: one stage of a step, for tests and tools.

    q: float32 [n_token][n_head][head_dim] flat, already rotated and multiplied by 1/sqrt(head_dim); k, v: float32
    [n_token][n_kv_head][head_dim] flat.  Returns array("f") with the shape of q.  With ``advance`` the cache counts the
    tokens (set it once per batch, in the last layer). workspace: buffers that calls share, where time is measured.
    Raises ValueError if sizes do not fit, MemoryError at the limit of the pool.
    """
    cdef const float[::1] query = q, key = k, value = v
    cdef int64_t D = kv.p.head_dim, H = kv.p.n_kv_head, n, n_head, i
    cdef attention_plan p
    cdef segment one
    cdef team here
    cdef int8_t *q8     # [n][n_head][head_dim]
    cdef float *qs      # [n][n_head]
    n = key.shape[0] // (H * D)
    if n < 1 or key.shape[0] != n * H * D or value.shape[0] != key.shape[0] or query.shape[0] % (n * H * D):
        raise ValueError(f"{query.shape[0]} queries, {key.shape[0]} keys, {value.shape[0]} values do not fit the cache")
    if not 1 <= n_threads <= 1024:
        raise ValueError(f"{n_threads} threads are out of range")
    if not 0 <= layer < kv.p.n_layer or n > kv.room:
        raise ValueError(f"layer {layer} or {n} tokens do not fit the cache")
    memset(&here, 0, sizeof(here))
    p.team = &here
    if kv.p.hadamard:
        query, key = rotated(query, D), rotated(key, D)
    kv.prepare(n, 0)
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
    one.kv, one.first, one.n_token, one.pos0 = &kv.p, 0, n, kv.n_tokens
    workspace.aim(&one, 1, n_head)
    p.segments, p.n_segment, p.n_token, p.n_head, p.n_kv_head, p.head_dim = &one, 1, n, n_head, H, D
    p.q, p.q8, p.qs, p.k, p.v, p.out = &query[0], q8, qs, &key[0], &value[0], &out[0]
    n_threads = claim(n_threads)
    with nogil, parallel(num_threads=n_threads):
        attend(&p, layer, threadid(), omp_get_num_threads())
    if advance:
        kv.advance(n)
    return out.base
