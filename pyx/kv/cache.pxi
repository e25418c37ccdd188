"""cache: the KV cache of one session: its plan, its block tables, crop, fork, dump and restore.

A page holds 32 tokens of one KV head, keys and values adjacent (page); token ``pos`` belongs to page ``pos // 32``.
policy decides which pages a head holds, pool where they are.  Keys are stored rotated to their absolute
position and never change.  With a quantised type, the page being written (the open page) and the sinks are half floats,
and a page is quantised exactly once, when it is full and every query inside it has been answered ("sealed").  So a
query at ``pos`` sees the same bytes however the tokens arrived: one by one or in chunks.
"""


@cython.no_gc  # no part of a cycle; and __dealloc__ needs the pool as it was
cdef class KVCache:
    """Keys and values of one session.

    n_layer: layers with attention; others have no pages, and these are numbered among themselves.

    n_ctx: number of tokens it can hold.  With ``window`` > 0 a conversation can continue without end: token t attends
    to {0 .. sinks-1} and {t-window+1 .. t} exactly. kv_type: see page.page_types(); a quantised type is that of sealed
    pages.

    budgets: tokens that each head keeps, including sinks, [n_layer][n_kv_head]; a head that keeps no more than the
    sinks keeps the latest tokens instead.  Memory is taken for each head's own budget. policy: of
    budget.POLICIES. spare: additional pages per head, so that ``crop`` can go back that far after old tokens were
    dropped. windows: of the model itself, the number of latest tokens that each layer sees at most, 0 for all; such
    layers keep no sinks. pool: the pool of its pages, shared with other caches of the same plan; None: a pool of its
    own. recurrent: (layers, key heads, value heads, dk, dv) of the gated delta layers of a model, whose states the
    cache holds as well, and ``snapshots`` earlier ones to which `crop` goes back. spill: (folder, bytes) of a file for
    the pages that are dropped, for ``crop``.

    Raises ValueError for impossible shapes, types and plans, MemoryError if the system refuses memory.
    """

    def __cinit__(
        self, int64_t n_layer, int64_t n_kv_head, int64_t head_dim, int64_t n_ctx, str kv_type="f16",
        int64_t window=0, int64_t sinks=0, *, budgets=None, str policy="recent", int64_t spare=0,
        windows=None, recurrent=None, int64_t snapshots=0, PagePool pool=None, spill=None):
        cdef int64_t i, at = 0, n_float = 0, n_ring = 0, entries, streams = n_layer * n_kv_head
        cdef stream *s
        cdef int32_t *cell
        memset(&self.p, 0, sizeof(pages))
        self.p.slab = -1
        self.plan = dict(n_ctx=n_ctx, kv_type=kv_type, window=window, sinks=sinks, budgets=budgets, policy=policy,
                         spare=spare, windows=windows)
        self.windows = windows
        shape = shapes(n_layer, n_kv_head, head_dim, **self.plan)
        self.plan |= dict(recurrent=recurrent, snapshots=snapshots)
        self.n_ctx, self.kv_type, self.endless = n_ctx, page_types(kv_type), window > 0
        self.policy = policy
        self.p.n_layer, self.p.n_kv_head, self.p.head_dim = n_layer, n_kv_head, head_dim
        formats(kv_type, head_dim, &self.p.sealed, &self.p.unsealed)
        self.p.quantised, self.p.quarter = is_quantised(&self.p.sealed), policy == "quarter"
        # it spreads outliers over a head: few dimensions of a token share a scale there, and codes are coarse
        self.p.hadamard = self.p.sealed.k_type == INT4

        entries = sum(pinned + ring + self.p.quantised for _, _, pinned, ring in shape)
        # streams, then number, id, run of all
        self.block_tables = Arena(streams * sizeof(stream) + 12 * entries + 4 * streams)
        self.p.streams = <stream *>self.block_tables.data
        cell = <int32_t *>(self.block_tables.data + streams * sizeof(stream))
        for i, (seen, pinned_tokens, pinned, ring) in enumerate(shape):
            s = &self.p.streams[i]
            s.window, s.sinks, s.sink_pages, s.ring_pages = seen, pinned_tokens, pinned, ring
            s.float_first, s.ring_first = n_float, n_ring
            n_float += pinned + self.p.quantised
            n_ring += ring
            s.number, s.id, s.run = cell + at, cell + entries + at, cell + 2 * entries + at + i
            at += block_table_size(&self.p, s)
            self.p.max_pages = max(self.p.max_pages, block_table_size(&self.p, s))
        for i in range(streams):
            self.p.streams[i].ring_first += n_float
        self.pool = PagePool(huge=True) if pool is None else pool
        if recurrent is not None:
            self.recurrent = Recurrence(recurrent, snapshots, self.pool)
        self.p.pool = &self.pool.s
        self.p.slab = self.pool.admit(n_float, n_ring, self.p.unsealed.bytes, self.p.sealed.bytes)
        if spill is not None:
            self.spill = Spill(*spill, streams, self.p.sealed.bytes)
            self.p.spilled = &self.spill.s
            self.spills_from = KV_PAGE * min(pinned + ring for _, _, pinned, ring in shape)

    def __dealloc__(self):
        if self.block_tables is not None and self.p.slab >= 0:  # none: the arguments were refused
            self._forget(0)
            self.pool.leave(self.p.slab)

    @staticmethod
    def bytes_for(*args, recurrent=None, snapshots=0, **plan):
        """The exact number of bytes of pages and states that a cache of this plan has room for; arguments of the class,
        without pool.
        """
        states = 0 if recurrent is None else recurrent_bytes(recurrent, snapshots)
        return bytes_for(*args, **plan) + states

    cdef int64_t prepare(self, int64_t n, int64_t others) except -1:
        """Make room for n more tokens.  Raises MemoryError at the limit of the pool."""
        if self.pool.limit is not None:
            others += self._wanted(n)
            if self.recurrent is not None:
                others += self.recurrent.wanted(self.n_tokens, n)
                while self.pool.used + others > self.pool.limit and self.recurrent.give_up():
                    pass
            if self.pool.used + others > self.pool.limit:
                raise MemoryError(
                    f"{self.pool.used / 1e6:.1f} MB of KV pages are in use, {self.pool.limit / 1e6:.1f} MB allowed")
            if self.pool.touched > self.pool.used and self.pool.touched + others > self.pool.limit:
                self.pool.trim()
        if self.spill is not None and self.spill.s.fd < 0 and self.n_tokens + n > self.spills_from:
            self.spill.open()
        if self.recurrent is not None:
            self.recurrent.prepare(self.n_tokens, n)
        return others

    def _wanted(self, int64_t n):
        """Bytes of pages that n more tokens may take, minus those that are returned for them."""
        cdef int64_t i, j, floats, ring, new, shared, S, before = self.n_tokens, after = self.n_tokens + n
        cdef bint is_open = before % KV_PAGE > 0, q = self.p.quantised
        cdef stream *s
        cdef int64_t wanted = 0
        for i in range(self.p.n_layer * self.p.n_kv_head):
            s = &self.p.streams[i]
            S = s.sink_pages
            floats = min(pages_of(after), S) - min(pages_of(before), S)
            floats += q and pages_of(after) > S and not (is_open and pages_of(before) > S)
            if is_open and references(self.p.pool, s.id[s.n_page - 1]) > 1:  # written to, so copied
                wanted += self.p.unsealed.bytes
            if q:
                new = max(after // KV_PAGE, S) - max(before // KV_PAGE, S)
            else:
                new = max(pages_of(after), S) - max(pages_of(before), S)
            ring = s.n_page - min(<int64_t>s.n_page, S) - (q and is_open and pages_of(before) > S)
            shared = 0
            for j in range(S, S + ring):  # to drop a page that another cache holds frees nothing
                shared += references(self.p.pool, s.id[j]) > 1
            new = min(new, s.ring_pages - ring + shared)
            wanted += floats * self.p.unsealed.bytes + max(<int64_t>0, new) * self.p.sealed.bytes
        return wanted

    cdef int64_t advance(self, int64_t n) except -1:
        """Count n more tokens that were appended."""
        if self.recurrent is not None:
            self.recurrent.advance(self.n_tokens, n)
        self.n_tokens += n
        self.most = max(self.most, self.n_tokens)
        return self.n_tokens

    cdef void _forget(self, int64_t first):
        """Return all pages from number `first` on."""
        cdef int64_t i
        for i in range(self.p.n_layer * self.p.n_kv_head):
            forget(&self.p, &self.p.streams[i], first)

    def crop(self, int64_t n):
        """Remove tokens from the end so that at most n stay.  Returns how many stay.

        A sealed page cannot be reopened without loss, so a quantised cache keeps whole pages.  If pages have been
        dropped that position n would attend to, and the spill file does not have them, nothing stays.  The caller
        evaluates the rest again: the result is bit for bit that of a run that never went further.

        With gated delta layers it goes back to the latest of their states that lies before.
        """
        cdef int64_t kept = max(<int64_t>0, min(n, self.n_tokens)), wanted
        if self.recurrent is None or kept == self.n_tokens:
            return self._crop_pages(kept)
        while True:  # pages and states may each be able to keep less than the other
            wanted = self.recurrent.reachable(self.n_tokens, kept)
            kept = self._crop_pages(wanted)
            if kept == wanted:
                break
        self.recurrent.crop(kept)
        return kept

    def _crop_pages(self, int64_t kept):
        cdef int64_t i, page = kept // KV_PAGE, room = 1 << 62
        cdef stream *s
        if kept == self.n_tokens:
            return kept
        for i in range(self.p.n_layer * self.p.n_kv_head):
            s = &self.p.streams[i]
            if self.p.quantised and s.sink_pages <= page < self.n_tokens // KV_PAGE:
                kept = min(kept, page * KV_PAGE)
        self._forget(pages_of(kept))
        if self.pool.limit is not None:
            room = self.pool.limit - self.pool.used
        if not reach(&self.p, kept, &self.most, room):
            self._forget(0)
            kept = 0
        self.n_tokens = kept
        if kept == 0:
            self.most = 0
        return kept

    def reset(self):
        """Drop all tokens; the pages are free, their memory stays allocated."""
        if self.recurrent is not None:
            self.recurrent.crop(0)
        self._forget(0)
        self.n_tokens = self.most = 0

    def fork(self):
        """A second cache in the same state.  Pages are shared; the one being written is copied at the next token."""
        cdef KVCache other = KVCache(
            self.p.n_layer, self.p.n_kv_head, self.p.head_dim, pool=self.pool,
            spill=None if self.spill is None else (self.spill.folder, self.spill.max_bytes), **self.plan)
        cdef int64_t i, j
        cdef stream *s
        cdef stream *copy
        for i in range(self.p.n_layer * self.p.n_kv_head):
            s, copy = &self.p.streams[i], &other.p.streams[i]
            for j in range(s.n_page):
                share_page(self.p.pool, s.id[j])
            copy.n_page, copy.n_run = s.n_page, s.n_run
        i = self.p.n_layer * self.p.n_kv_head * sizeof(stream)
        memcpy(other.block_tables.data + i, self.block_tables.data + i, self.block_tables.nbytes - i)
        other.n_tokens, other.most = self.n_tokens, self.most
        if self.recurrent is not None:
            other.recurrent.share(self.recurrent)
        return other

    # ---- to a file and back -----------------------------------------------------------------------------------------

    @property
    def counters(self):
        """(n_tokens, most): number of tokens held, and the largest number since the cache was empty.

        With ``states`` and the bytes of ``dump``, this is everything that a cache of the same plan needs to continue.
        """
        return self.n_tokens, self.most

    @property
    def states(self):
        """[[tokens, kept]] of the states of gated delta layers that it holds; empty if there are none."""
        return [] if self.recurrent is None else [list(each) for each in self.recurrent.bases]

    def mark(self):
        """Keep the states of now as a snapshot that `crop` can go back to; nothing without gated delta layers."""
        if self.recurrent is not None:
            self.recurrent.mark(self.n_tokens)

    def dump(self):
        """The pages held, as read-only views, in an order that depends only on plan and counters.

        Per layer and KV head: sink pages, pages of the ring from the oldest on, the open page.  The views are the
        memory of the cache: read them before it changes.
        """
        states = [] if self.recurrent is None else self.recurrent.pieces()
        return [piece.toreadonly() for piece in (*self._pieces(), *states)]

    def dump_bytes(self, int64_t n_tokens, int64_t most, states=()):
        """Bytes of the dump of a cache of this plan in that state.  Raises ValueError for an impossible state."""
        cdef int64_t i, nbytes = 0
        cdef stream *s
        # page numbers are 32 bits
        good = 0 <= n_tokens <= most <= (((<int64_t>1 << 36) - 1) if self.endless else self.n_ctx)
        good = good and (n_tokens or not most)
        for i in range(self.p.n_layer * self.p.n_kv_head):
            s = &self.p.streams[i]
            sunk, first, last, is_open = self._held(i, n_tokens, most)
            good = good and (
                not s.ring_pages or first == s.sink_pages or first <= first_page(&self.p, s, n_tokens))
            nbytes += (sunk + is_open) * self.p.unsealed.bytes + (last - first) * self.p.sealed.bytes
        if not good:
            raise ValueError(f"no cache of this plan holds {n_tokens} tokens of {most}")
        if self.recurrent is not None:
            nbytes += self.recurrent.dump_bytes(n_tokens, states)
        elif states:
            raise ValueError("no cache of this plan has states")
        return nbytes

    def restore(self, int64_t n_tokens, int64_t most, fill, states=()):
        """Load a dump: ``fill(view)`` writes the next ``len(view)`` bytes of it into each writable view.

        Raises ValueError for impossible counters, before anything is written.  If ``fill`` raises, the cache is empty
        afterwards.  The bytes of pages are not checked: any bytes are safe to attend to, though not meaningful.
        """
        self.dump_bytes(n_tokens, most, states)
        self.reset()
        try:
            for i in range(self.p.n_layer * self.p.n_kv_head):
                self._hold(i, n_tokens, most)
            for piece in self._pieces():
                fill(piece)
            if self.recurrent is not None:
                self.recurrent.hold(states)
                for piece in self.recurrent.pieces():
                    fill(piece)
        except BaseException:
            self.reset()
            raise
        self.n_tokens, self.most = n_tokens, most

    def _held(self, int64_t i, int64_t n_tokens, int64_t most):
        """The pages that head i holds in that state: number of sink pages, first and last of the ring, whether one is
        open.
        """
        cdef stream *s = &self.p.streams[i]
        cdef int64_t begun = pages_of(n_tokens), done = n_tokens // KV_PAGE if self.p.quantised else begun, first
        first = max(s.sink_pages, (most // KV_PAGE if self.p.quantised else pages_of(most)) - s.ring_pages)
        return min(begun, s.sink_pages), first, max(done, first), begun > max(done, s.sink_pages)

    def _hold(self, int64_t i, int64_t n_tokens, int64_t most):
        """Hold the pages of that state."""
        cdef int64_t sunk, first, last, j, n
        cdef bint is_open
        sunk, first, last, is_open = self._held(i, n_tokens, most)
        n = sunk + last - first
        for j in range(n + is_open):
            hold(&self.p, &self.p.streams[i], <int32_t>(j if j < sunk else first + j - sunk), sunk <= j < n)

    def _pieces(self):
        """Writable views of everything held; adjacent pages share a view."""
        cdef int64_t i, j, start, last, size
        cdef stream *s
        for i in range(self.p.n_layer * self.p.n_kv_head):
            s = &self.p.streams[i]
            start = 0
            while start < s.n_page:
                last = start
                while last + 1 < s.n_page and s.id[last + 1] == s.id[last] + 1 and (
                        is_ring(self.p.pool, s.id[last]) == is_ring(self.p.pool, s.id[last + 1])):
                    last += 1
                yield self.pool.view(s.id[start], last + 1 - start)
                start = last + 1

    # ---- what it has ------------------------------------------------------------------------------------------------

    @property
    def nbytes(self):
        """Bytes of pages that this cache alone has room for."""
        return self.bytes_for(self.p.n_layer, self.p.n_kv_head, self.p.head_dim, **self.plan)

    @property
    def extra_bytes(self):
        """Bytes that this cache takes at most without its pages: its tables, and what the first and the last of each
        head's pages leave unused of the system's pages.
        """
        ends = 2 * self.p.n_layer * self.p.n_kv_head * os.sysconf("SC_PAGE_SIZE")
        return self.block_tables.nbytes + 4 * self.p.pool.n_place + ends

    @property
    def window(self):
        """Number of tokens attended to after the sinks, 0 if everything is kept."""
        return self.plan["window"]

    @property
    def sinks(self):
        return self.plan["sinks"]

    @property
    def room(self):
        """Number of tokens that can still be appended."""
        return (1 << 62) if self.endless else self.n_ctx - self.n_tokens

    @property
    def evicted(self):
        """Number of tokens read that the next query no longer attends to, in the head that attends to most; none comes
        after the last token of a context that ends.
        """
        cdef int64_t i, n = self.n_tokens - (self.room == 0), least = n
        for i in range(self.p.n_layer * self.p.n_kv_head):
            least = min(least, unseen(&self.p, &self.p.streams[i], n))
        return least

    @property
    def stats(self):
        """Its contents now: tokens, evicted, pages, bytes, sealed and shared pages, mean tokens attended to per head.
        """
        cdef int64_t i, j, n = self.p.n_layer * self.p.n_kv_head, ring = 0, all_pages = 0, shared = 0, lost = 0
        cdef stream *s
        for i in range(n):
            s = &self.p.streams[i]
            lost += unseen(&self.p, s, self.n_tokens)
            all_pages += s.n_page
            for j in range(s.n_page):
                ring += is_ring(self.p.pool, s.id[j])
                shared += references(self.p.pool, s.id[j]) > 1
        return {
            "tokens": self.n_tokens,
            "evicted": self.evicted,
            "attended": self.n_tokens - lost / n,
            "pages": all_pages,
            "bytes": ring * self.p.sealed.bytes + (all_pages - ring) * self.p.unsealed.bytes + (
                0 if self.recurrent is None else self.recurrent.nbytes),
            "sealed": ring if self.p.quantised else 0,
            "shared": shared,
        }

    def held(self, int64_t layer, int64_t head):
        """Numbers of the pages that a head holds.  Raises IndexError."""
        cdef stream *s = self._stream(layer, head)
        return [s.number[i] for i in range(s.n_page)]

    def page(self, int64_t layer, int64_t head, int64_t page):
        """(bytes, type) of one page, for tests and tools.  Raises IndexError for a page that it does not hold."""
        cdef stream *s = self._stream(layer, head)
        cdef const page_format *format
        held = self.held(layer, head)
        if page not in held:
            raise IndexError(f"page {page} of head {head} in layer {layer} is not held")
        id = s.id[<int64_t>held.index(page)]
        format = &self.p.sealed if is_ring(self.p.pool, id) else &self.p.unsealed
        return bytes(self.pool.view(id, 1)), type_name(format.k_type, format.v_type)

    cdef stream *_stream(self, int64_t layer, int64_t head) except NULL:
        if not (0 <= layer < self.p.n_layer and 0 <= head < self.p.n_kv_head):
            raise IndexError(f"head {head} in layer {layer}")
        return &self.p.streams[layer * self.p.n_kv_head + head]
