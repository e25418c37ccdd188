"""policy: which pages each KV head holds, which of their tokens a query sees, and when one is dropped for a new one.

A KV head holds its sink pages (pinned, floats), a ring of pages after them, and the page being written.  Policies:

recent   the query at position t sees {0 .. sinks-1} and {t-window+1 .. t}, exactly; the oldest page of the ring is
         dropped.  The sinks are those of StreamingLLM (arXiv 2309.17453), at their positions in the text.
quarter  the window is a quarter of what was read and at most ``window``: the max_keep = min(128, seq_len // 4) of a
         published guide, for comparison.  It drops the beginning of a prompt while reading it.

This file does not use element types; no other file uses policies.
"""

cdef extern from "<sched.h>" nogil:
    int sched_yield()


cdef inline uint32_t below(int64_t n) noexcept nogil:
    """A mask of the lowest n bits, with n clamped to 0..32."""
    if n <= 0:
        return 0
    return 0xFFFFFFFFu if n >= 32 else (<uint32_t>1 << n) - 1


cdef inline int64_t oldest_seen(const pages *kv, const stream *s, int64_t pos) noexcept nogil:
    """First position of the window; negative if the window is longer than the text."""
    return pos + 1 - (min(s.window, max(<int64_t>1, (pos + 1) // 4)) if kv.quarter else s.window)


cdef uint32_t attended(const pages *kv, const stream *s, int64_t page, int64_t pos) noexcept nogil:
    cdef int64_t start = page * KV_PAGE
    return below(pos + 1 - start) & (below(s.sinks - start) | ~below(oldest_seen(kv, s, pos) - start))


cdef int64_t first_page(const pages *kv, const stream *s, int64_t pos) noexcept nogil:
    """First page (after the sink pages) that the query at pos sees."""
    return max(oldest_seen(kv, s, pos) // KV_PAGE if oldest_seen(kv, s, pos) > 0 else 0, s.sink_pages)


cdef int64_t unseen(const pages *kv, const stream *s, int64_t n) noexcept nogil:
    """Tokens among the n read that the next query does not see."""
    return max(<int64_t>0, oldest_seen(kv, s, n) - s.sinks)


cdef int64_t block_table_size(const pages *kv, const stream *s) noexcept nogil:
    """Room for the block table of one head, in entries."""
    return s.sink_pages + s.ring_pages + kv.quantised


cdef uint8_t *writable_page(pages *kv, stream *s, int64_t page) noexcept nogil:
    cdef int32_t last = s.n_page - 1, copy
    if last < 0 or s.number[last] != page:
        if not kv.quantised and s.n_page == s.sink_pages + s.ring_pages:
            drop_oldest(kv, s)
        hold(kv, s, <int32_t>page, not kv.quantised and page >= s.sink_pages)
        return page_at(kv.pool, s.id[s.n_page - 1])
    while references(kv.pool, s.id[last]) > 1:  # the other caches may let go of it meanwhile
        copy = take_like(kv, s, <int32_t>page, is_ring(kv.pool, s.id[last]))
        if copy >= 0:
            memcpy(page_at(kv.pool, copy), page_at(kv.pool, s.id[last]), kv.unsealed.bytes)
            release_page(kv.pool, s.id[last])
            s.id[last] = copy
            break
        sched_yield()
    return page_at(kv.pool, s.id[last])


cdef void seal_newest(const kernels *kernel, pages *kv, stream *s) noexcept nogil:
    cdef int32_t open_id = s.id[s.n_page - 1], number = s.number[s.n_page - 1]
    if s.n_page - 1 == s.sink_pages + s.ring_pages and s.ring_pages:
        drop_oldest(kv, s)
    s.n_page -= 1
    if s.ring_pages:
        hold(kv, s, number, True)
        seal_page(
            kernel, &kv.unsealed, page_at(kv.pool, open_id), &kv.sealed, page_at(kv.pool, s.id[s.n_page - 1]))
    else:
        find_runs(s)
    release_page(kv.pool, open_id)


cdef int32_t take_like(pages *kv, stream *s, int32_t number, bint ring) noexcept nogil:
    """A free page for that page number, -1 if there is none at the moment."""
    cdef int64_t own = kv.slab
    if ring:
        return take_page(kv.pool, own, s.ring_first, s.ring_pages, (number - s.sink_pages) % s.ring_pages)
    return take_page(kv.pool, own, s.float_first + min(<int64_t>number, s.sink_pages), 1, 0)


cdef int32_t surely_take(pages *kv, stream *s, int32_t number, bint ring) noexcept nogil:
    """A free page.  There is one, since every cache brings as many as it may hold; at most, another thread has it for a
    moment (PagePool._give_back, or a cache that returns it).
    """
    cdef int32_t id = take_like(kv, s, number, ring)
    while id < 0:
        sched_yield()
        id = take_like(kv, s, number, ring)
    return id


cdef void hold(pages *kv, stream *s, int32_t number, bint ring) noexcept nogil:
    """Add a page after those held, of the ring or of floats."""
    s.id[s.n_page] = surely_take(kv, s, number, ring)
    s.number[s.n_page] = number
    s.n_page += 1
    find_runs(s)


cdef void find_runs(stream *s) noexcept nogil:
    """Divide the pages into work items that depend only on the tokens read so far."""
    cdef int32_t i
    s.n_run = 0
    for i in range(s.n_page):
        if i == 0 or s.number[i] // CHUNK_PAGES != s.number[i - 1] // CHUNK_PAGES:
            s.run[s.n_run] = i
            s.n_run += 1
    s.run[s.n_run] = s.n_page


cdef void drop_oldest(pages *kv, stream *s) noexcept nogil:
    """Drop the oldest page of the ring."""
    cdef int64_t S = s.sink_pages, later = s.n_page - S - 1
    if kv.spilled != NULL:
        write_page(kv.spilled, s - kv.streams, s.number[S], page_at(kv.pool, s.id[S]))
    release_page(kv.pool, s.id[S])
    memmove(s.id + S, s.id + S + 1, later * sizeof(int32_t))
    memmove(s.number + S, s.number + S + 1, later * sizeof(int32_t))
    s.n_page -= 1


cdef void forget(pages *kv, stream *s, int64_t first) noexcept nogil:
    """Return all pages from number `first` on."""
    while s.n_page and s.number[s.n_page - 1] >= first:
        s.n_page -= 1
        release_page(kv.pool, s.id[s.n_page])
    if kv.spilled != NULL:
        outdate(kv.spilled, s - kv.streams, first)
    find_runs(s)


cdef bint reach(pages *kv, int64_t kept, int64_t *most, int64_t room) noexcept nogil:
    """After `forget`: make every head hold what the query at position `kept` sees and, if pages must be read back, as
    much of the ring as possible; False if something is lost, or takes more than `room` bytes.  most: tokens there were
    at most, from which the pages held follow.
    """
    # A run that came to `newest` pages and went back holds in every head what its ring held then.  The fewer pages, the
    # more of the beginning is there: as few as the oldest page that can be had of each head allows.
    cdef int64_t done = kept // KV_PAGE if kv.quantised else (kept + KV_PAGE - 1) // KV_PAGE
    cdef int64_t i, number, oldest, newest = done, n = kv.n_layer * kv.n_kv_head
    cdef bint lacking = False
    cdef stream *s
    for i in range(n):
        s = &kv.streams[i]
        lacking |= oldest_page(s, done) > first_page(kv, s, kept)
        newest = max(newest, came_to(s, oldest_page(s, done)))
    if lacking:
        if kv.spilled == NULL:
            return False
        newest = done
        for i in range(n):
            s = &kv.streams[i]
            newest = max(newest, came_to(s, reaches(kv.spilled, i, oldest_page(s, done))))
        for i in range(n):
            s = &kv.streams[i]
            oldest = max(s.sink_pages, newest - s.ring_pages)
            room -= max(<int64_t>0, oldest_page(s, done) - oldest) * kv.sealed.bytes
            if oldest > first_page(kv, s, kept) or room < 0:
                return False
        for i in range(n):
            s = &kv.streams[i]
            oldest = max(s.sink_pages, newest - s.ring_pages)
            for number in range(oldest_page(s, done) - 1, oldest - 1, -1):
                if not read_back(kv.spilled, i, number, in_front(kv, s, <int32_t>number)):
                    return False
            outdate(kv.spilled, i, oldest)
    most[0] = max(kept, min(most[0], newest * KV_PAGE))
    return True


cdef int64_t came_to(const stream *s, int64_t oldest) noexcept nogil:
    """The smallest number of pages of a text whose ring begins at page `oldest`."""
    return oldest + s.ring_pages if oldest > s.sink_pages else 0


cdef int64_t oldest_page(const stream *s, int64_t done) noexcept nogil:
    """The first page held after the sink pages; if there is none, the page after the `done` pages."""
    return s.number[s.sink_pages] if s.n_page > s.sink_pages else max(done, s.sink_pages)


cdef uint8_t *in_front(pages *kv, stream *s, int32_t number) noexcept nogil:
    """Add a page at the front of the ring."""
    cdef int64_t S = s.sink_pages, later = s.n_page - S
    cdef int32_t id = surely_take(kv, s, number, True)
    memmove(s.id + S + 1, s.id + S, later * sizeof(int32_t))
    memmove(s.number + S + 1, s.number + S, later * sizeof(int32_t))
    s.id[S], s.number[S] = id, number
    s.n_page += 1
    find_runs(s)
    return page_at(kv.pool, id)
