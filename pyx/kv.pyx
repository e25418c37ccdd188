"""kv: the KV pages of one session: append, seal, ring, sinks, window, crop, dump, restore, fork.

A page holds 32 tokens of one KV head, keys and values adjacent; layouts are in kernels.h.  Token ``pos`` lives in page
``pos // 32``.  The first pages hold the sinks and are never quantised; the others go round a ring.  With a quantised
type the page being written (the open page) is half floats, and is quantised exactly once, when it is full and every
query inside it has been answered ("sealed").  Keys are stored rotated to their absolute position and never touched
again, so a query at ``pos`` sees the same bytes however the tokens arrived: one by one or in chunks.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memset

from pyx.cpu cimport KV_PAGE
from pyx.memory cimport Arena
from pyx.page cimport (
    element_type, is_quantised, open_format, page_format, page_format_init, parse_types, type_name)
from pyx.page import page_types


cdef int formats(str kv_type, int64_t head_dim, page_format *sealed, page_format *unsealed) except -1:
    """The page formats of a KV type.  Raises ValueError for a type or a head_dim there is not."""
    cdef element_type k_type, v_type
    parse_types(kv_type, &k_type, &v_type)
    page_format_init(sealed, k_type, v_type, head_dim)
    open_format(unsealed, sealed)
    return 0


cdef uint8_t *locate(
    const pages *p, int64_t layer, int64_t head, int64_t page, int64_t open_page,
    const page_format **format) noexcept nogil:
    cdef int64_t stream = layer * p.n_kv_head + head
    format[0] = &p.unsealed
    if page < p.sink_pages:
        return p.sink + (stream * p.sink_pages + page) * p.unsealed.bytes
    if p.quantised:
        if page == open_page:
            return p.open + stream * p.unsealed.bytes
    format[0] = &p.sealed
    return p.ring + (stream * p.ring_pages + (page - p.sink_pages) % p.ring_pages) * p.sealed.bytes


cdef uint32_t attended(const pages *p, int64_t page, int64_t pos) noexcept nogil:
    cdef int64_t start = page * KV_PAGE
    cdef uint32_t mask = below(pos + 1 - start)
    return mask & (below(p.sinks - start) | ~below(pos - p.window + 1 - start))


cdef inline uint32_t below(int64_t n) noexcept nogil:
    """The lowest n bits, n clamped to 0..32."""
    if n <= 0:
        return 0
    return 0xFFFFFFFFu if n >= 32 else (<uint32_t>1 << n) - 1


cdef int64_t first_page(const pages *p, int64_t pos) noexcept nogil:
    cdef int64_t oldest = pos - p.window + 1
    return max(oldest // KV_PAGE if oldest > 0 else 0, p.sink_pages)


cdef class KVCache:
    """Keys and values of one session.

    n_ctx: tokens it can hold; with ``window`` > 0 a conversation may go on for ever, token t attending
    {0 .. sinks-1} and {t-window+1 .. t} exactly.  kv_type: as page.page_types() has them; quantised
    types are those of sealed pages (see module).

    Raises ValueError for shapes or types out of range, MemoryError when the system refuses.
    """

    def __cinit__(
        self, int64_t n_layer, int64_t n_kv_head, int64_t head_dim, int64_t n_ctx, str kv_type="f16",
        int64_t window=0, int64_t sinks=0):
        cdef int64_t streams, sink_bytes, ring_bytes
        layout = KVCache._layout(n_layer, n_kv_head, head_dim, n_ctx, kv_type, window, sinks)
        memset(&self.p, 0, sizeof(pages))
        self.n_ctx, self.kv_type, self.windowed = n_ctx, page_types(kv_type), window > 0
        self.p.n_layer, self.p.n_kv_head, self.p.head_dim = n_layer, n_kv_head, head_dim
        self.p.window = window if window else n_ctx
        self.p.sinks = sinks
        formats(kv_type, head_dim, &self.p.sealed, &self.p.unsealed)
        self.p.quantised = is_quantised(&self.p.sealed)
        self.p.sink_pages, self.p.ring_pages = layout["sink_pages"], layout["ring_pages"]
        streams = n_layer * n_kv_head
        sink_bytes = streams * self.p.sink_pages * self.p.unsealed.bytes
        ring_bytes = streams * self.p.ring_pages * self.p.sealed.bytes
        self.arena = Arena(layout["nbytes"], huge=layout["nbytes"] >= (8 << 20))
        self.p.sink = self.arena.data
        self.p.ring = self.arena.data + sink_bytes
        self.p.open = self.arena.data + sink_bytes + ring_bytes if self.p.quantised else NULL

    @staticmethod
    def _layout(
        int64_t n_layer, int64_t n_kv_head, int64_t head_dim, int64_t n_ctx, str kv_type, int64_t window,
        int64_t sinks):
        """Page counts and bytes of a plan: {"sink_pages", "ring_pages", "nbytes"}."""
        cdef int64_t sink_pages, ring_pages, streams
        cdef page_format sealed, unsealed
        formats(kv_type, head_dim, &sealed, &unsealed)
        if not (0 < n_layer <= 4096 and 0 < n_kv_head <= 4096):
            raise ValueError(f"{n_layer} layers of {n_kv_head} KV heads of {head_dim} are out of range")
        if not 0 < n_ctx <= 1 << 30 or not 0 <= window <= 1 << 30 or not 0 <= sinks <= 1 << 20:
            raise ValueError(f"context {n_ctx}, window {window}, sinks {sinks} are out of range")
        sink_pages = (sinks + KV_PAGE - 1) // KV_PAGE
        if window:
            # a window of W touches at most ceil(W/32) + 1 pages at a time
            ring_pages = (window + KV_PAGE - 1) // KV_PAGE + 1
        else:
            ring_pages = max(1, (n_ctx + KV_PAGE - 1) // KV_PAGE - sink_pages)
        streams = n_layer * n_kv_head
        nbytes = streams * (sink_pages * unsealed.bytes + ring_pages * sealed.bytes)
        if is_quantised(&sealed):
            nbytes += streams * unsealed.bytes  # the open page
        return {"sink_pages": sink_pages, "ring_pages": ring_pages, "nbytes": nbytes}

    @staticmethod
    def bytes_for(
        int64_t n_layer, int64_t n_kv_head, int64_t head_dim, int64_t n_ctx, str kv_type="f16", int64_t window=0,
        int64_t sinks=0):
        """Exactly the bytes a cache of this plan allocates."""
        return KVCache._layout(n_layer, n_kv_head, head_dim, n_ctx, kv_type, window, sinks)["nbytes"]

    cdef int64_t advance(self, int64_t n) except -1:
        """n more tokens have been appended."""
        self.n_tokens += n
        last_page = (self.n_tokens - 1) // KV_PAGE
        self.oldest = max(self.oldest, last_page - self.p.ring_pages + 1, self.p.sink_pages)
        return self.n_tokens

    def crop(self, int64_t n):
        """Drop the tail so that at most n tokens stay; returns how many did.

        A sealed page cannot be reopened without loss, so a quantised cache keeps whole pages; and when the ring has
        overwritten tokens that position n would attend, nothing stays.  The caller evaluates the rest again: the
        result is bit for bit that of a run that never went further.
        """
        cdef int64_t kept = max(<int64_t>0, min(n, self.n_tokens))
        cdef int64_t page = kept // KV_PAGE
        if kept == self.n_tokens:
            return kept
        open_page = self.n_tokens // KV_PAGE
        if self.p.quantised and page >= self.p.sink_pages and page != open_page:
            kept = page * KV_PAGE
        if kept and first_page(&self.p, kept) < self.oldest and self.oldest > self.p.sink_pages:
            kept = 0
        self.n_tokens = kept
        if kept == 0:
            self.oldest = 0
        return kept

    def reset(self):
        """Forget everything; the pages stay allocated."""
        self.n_tokens = self.oldest = 0

    @property
    def counters(self):
        """(n_tokens, oldest): with the pages of ``dump`` all that a cache of the same plan needs to go on."""
        return self.n_tokens, self.oldest

    def dump(self):
        """The pages in use, as read-only views, in an order that depends on plan and counters alone.

        Per layer and KV head: sink pages, pages of the ring from the oldest on, the open page.  The views are the cache
        itself: to be read before its next change.
        """
        return [piece.toreadonly() for piece in self._pieces(self.n_tokens, self.oldest)]

    def dump_bytes(self, int64_t n_tokens, int64_t oldest):
        """Bytes of the dump of a cache of this plan in that state.  Raises ValueError for a state it cannot be in."""
        cdef int64_t last = (n_tokens - 1) // KV_PAGE if n_tokens > 0 else 0
        room = 1 << 60 if self.windowed else self.n_ctx
        good = 0 <= n_tokens <= room
        if good and n_tokens:
            good = oldest >= max(self.p.sink_pages, last - self.p.ring_pages + 1) and (
                oldest == self.p.sink_pages or oldest <= first_page(&self.p, n_tokens))
        elif good:
            good = oldest == 0
        if not good:
            raise ValueError(f"no cache of this plan holds {n_tokens} tokens from page {oldest} on")
        return sum(len(piece) for piece in self._pieces(n_tokens, oldest))

    def restore(self, int64_t n_tokens, int64_t oldest, fill):
        """Take over a dump: ``fill(view)`` writes the next ``len(view)`` bytes of it into each writable view.

        Raises ValueError for counters that cannot be, before anything is written; when ``fill`` raises, the cache is
        empty afterwards.  Page bytes are not judged: any bytes are safe to attend to, though not sensible.
        """
        self.dump_bytes(n_tokens, oldest)
        self.reset()
        for piece in self._pieces(n_tokens, oldest):
            fill(piece)
        self.n_tokens, self.oldest = n_tokens, oldest

    def fork(self):
        """A second cache in the same state; the pages are copied, so both take their full memory from then on."""
        other = KVCache(
            self.p.n_layer, self.p.n_kv_head, self.p.head_dim, self.n_ctx, self.kv_type, self.window, self.p.sinks)
        pieces = iter(self.dump())

        def fill(view):
            view[:] = next(pieces)

        other.restore(self.n_tokens, self.oldest, fill)
        return other

    def _pieces(self, int64_t n_tokens, int64_t oldest):
        """Writable views of the pages that a cache in that (possible) state has in use; see ``dump``."""
        cdef int64_t streams = self.p.n_layer * self.p.n_kv_head, begun = (n_tokens + KV_PAGE - 1) // KV_PAGE
        cdef int64_t sink_n = min(begun, self.p.sink_pages), first = max(oldest, self.p.sink_pages)
        cdef bint has_open = self.p.quantised and n_tokens % KV_PAGE and begun > self.p.sink_pages
        cdef int64_t ring_n = max(<int64_t>0, begun - has_open - first)
        cdef int64_t slot = (first - self.p.sink_pages) % self.p.ring_pages
        cdef int64_t straight = min(ring_n, self.p.ring_pages - slot), stream, start
        cdef int64_t ring_at = self.p.ring - self.arena.data
        cdef int64_t open_at = self.p.open - self.arena.data if has_open else 0
        view = self.arena.view
        for stream in range(streams):
            if sink_n:
                start = stream * self.p.sink_pages * self.p.unsealed.bytes
                yield view[start : start + sink_n * self.p.unsealed.bytes]
            start = ring_at + (stream * self.p.ring_pages + slot) * self.p.sealed.bytes
            if straight:
                yield view[start : start + straight * self.p.sealed.bytes]
            if ring_n > straight:  # round the end of the ring
                start = ring_at + stream * self.p.ring_pages * self.p.sealed.bytes
                yield view[start : start + (ring_n - straight) * self.p.sealed.bytes]
            if has_open:
                start = open_at + stream * self.p.unsealed.bytes
                yield view[start : start + self.p.unsealed.bytes]

    @property
    def nbytes(self):
        return self.arena.nbytes

    @property
    def window(self):
        """Tokens attended behind the sinks, 0 when everything is kept."""
        return self.p.window if self.windowed else 0

    @property
    def sinks(self):
        return self.p.sinks

    @property
    def room(self):
        """Tokens that still can be appended."""
        return (1 << 62) if self.windowed else self.n_ctx - self.n_tokens

    @property
    def evicted(self):
        """Tokens seen that the next query no longer attends."""
        return max(<int64_t>0, self.n_tokens + 1 - self.p.window - self.p.sinks) if self.windowed else 0

    def page(self, int64_t layer, int64_t head, int64_t page):
        """(bytes, type) of one page, for tests and tools.  Raises IndexError for a page that is not held."""
        cdef const page_format *format
        cdef int64_t open_page = self.n_tokens // KV_PAGE
        if not (0 <= layer < self.p.n_layer and 0 <= head < self.p.n_kv_head and 0 <= page * KV_PAGE < self.n_tokens):
            raise IndexError(f"page {page} of head {head} in layer {layer}")
        if page >= self.p.sink_pages and page < self.oldest:
            raise IndexError(f"page {page} has left the ring")
        where = locate(&self.p, layer, head, page, open_page, &format)
        return (<const char *>where)[: format.bytes], type_name(format.k_type, format.v_type)
