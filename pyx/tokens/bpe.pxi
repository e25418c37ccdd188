"""bpe: byte-level byte-pair encoding over a vocabulary as its file stores it.

A vocabulary of 128 thousand tokens delays the first answer, so no Python object is made for any token: the stored texts
are read once, into their joined bytes and a hash table from bytes to tokens.

Two neighbours are joined if their bytes together are a token: those of the lowest rank first, the leftmost of equals.
The rank is the token's id, or the position of the first merge that makes it.
"""

cdef enum:
    LETTERS = 2048              # code points of two bytes of UTF-8: those of an alphabet are among them
    MOST_PROBES = 4096          # neighbours in a hash table that is half full: tens, unless it was made to be slow
    NONE = 0x7fffffff           # no rank
    SHORT = 256                 # bytes of most pieces of text; longer ones are joined without the GIL
    BLOCK = 1 << 14             # bytes of text, joins or tokens between two looks: a few milliseconds
    LONGEST = 1 << 17           # bytes of a text: tokens are words
    MOST = 1 << 30              # and of all
    ID = (1 << 25) - 1          # of a slot: the token's id + 1
    TAG = 25                    # and above: bits of the hash, so that few strangers are looked at

#: the role of a stored text: not used; bytes as they are, which `encode` does not look for; letters that stand for
#: bytes, a token that `encode` finds
SKIP, RAW, TOKEN = 0, 1, 2


cdef struct Parts:
    # A piece of text as a list of parts, at first of one byte; a part is named by its first byte.
    const uint8_t *piece    # [n]
    int64_t n
    int32_t *next           # [n] the part after it
    int32_t *before         # [n] the part before it
    int32_t *joined         # [n] rank of the part joined with the next one; NONE: they do not join
    uint64_t *heap          # [3 * n] rank << 32 | the left part: n pairs at first, and two for each that is joined
    int64_t n_heap          # pairs in it


cdef class BytePairs:
    """A vocabulary: the texts in ``stored`` from byte ``first`` on, which end at ``ends``, int64 [n], see
    :func:`text_ends`.

    roles: bytes [n], each SKIP, RAW or TOKEN. alphabet: str [256], the character that stands for each byte.  If two
    tokens are equal, the first is used.  A byte that is no token is left out, and its neighbours become neighbours.

    ``blob``: the bytes of all texts, joined; ``ends``: array("I") [n], where each ends there.  ``stranger``: the first
    text with a character outside the alphabet, or -1; with such a text nothing can be encoded.  ``ignore_merges``:
    whether a whole text that is a token is this token, although no merge makes it.  Raises ValueError for sizes that do
    not fit, and for a vocabulary that was made to be slow.
    """

    cdef readonly bytes blob
    cdef readonly object ends
    cdef readonly int64_t stranger
    cdef public bint ignore_merges
    cdef const uint8_t *data            # [end[n - 1]]  of blob
    cdef uint32_t[::1] end              # [n]  of ends
    cdef uint32_t *slots                # [mask + 1] tag and id + 1, or 0: open addressing
    cdef int32_t *rank                  # [n]
    cdef uint64_t mask                  # number of slots, a power of two, minus 1
    cdef int64_t n                      # texts
    cdef int64_t longest                # bytes of the longest token
    cdef int32_t single[256]            # byte -> id, or -1
    cdef bytes gaps                     # the bytes that are no token
    cdef int16_t byte_of[LETTERS]       # code point -> byte, or -1
    cdef Arena slot_arena, rank_arena
    cdef Arena scratch                  # for the parts of a short piece; the GIL belongs to who uses it

    def __cinit__(self, stored, int64_t first, ends, roles, str alphabet not None):
        cdef const int64_t[::1] stops = ends    # [n]
        cdef const uint8_t[::1] role = roles    # [n]
        cdef int64_t i, size, pos = 0, n = stops.shape[0]
        cdef uint64_t n_slot = 1024
        cdef Py_buffer buffer
        cdef Arena written
        if len(alphabet) != 256 or role.shape[0] != n or n > 1 << 24:
            raise ValueError(f"{n} texts, {role.shape[0]} roles, {len(alphabet)} letters do not fit")
        for i in range(LETTERS):
            self.byte_of[i] = -1
        for i, letter in enumerate(alphabet):
            self.byte_of[ord(letter)] = i
        while n_slot < <uint64_t>(2 * n):
            n_slot *= 2
        self.n, self.mask, self.stranger = n, n_slot - 1, -1
        self.slot_arena, self.rank_arena = Arena(4 * n_slot), Arena(4 * n)
        self.slots, self.rank = <uint32_t *>self.slot_arena.data, <int32_t *>self.rank_arena.data
        self.ends = array.array("I", bytes(4 * n))
        self.end = self.ends
        PyObject_GetBuffer(stored, &buffer, PyBUF_SIMPLE)
        try:
            written = Arena(bytes_of_texts(stops, first, buffer.len))  # bytes take no more than their letters
            self.data = written.data
            for i in range(n):
                size = self.read(<const uint8_t *>buffer.buf, first, stops, i, role[i], written.data + pos)
                if size < 0:
                    self.stranger, self.longest = i, 0  # from here on nothing is found
                    break
                pos += size
                self.end[i] = <uint32_t>pos
                self.rank[i] = <int32_t>i
                if role[i] == TOKEN and size:
                    self.longest = max(self.longest, size)
                    self.insert(i)
        finally:
            PyBuffer_Release(&buffer)
        self.blob = written.data[:pos]
        self.data = <const uint8_t *><const char *>self.blob
        self.find_singles()
        self.scratch = room(SHORT)

    cdef int64_t read(
        self, const uint8_t *stored, int64_t first, const int64_t[::1] stops, int64_t i, uint8_t role, uint8_t *out):
        """Write the bytes that stored text i stands for to out, which has room for as many as its letters take.

        stops: [n].  Returns the number of bytes, or -1 if a character is not in the alphabet.
        """
        cdef int64_t at = (stops[i - 1] if i else first) + 8, stop = stops[i]
        if role == RAW:
            memcpy(out, stored + at, stop - at)
            return stop - at
        return self.spell(stored + at, stored + stop, out) if role == TOKEN else 0

    cdef int64_t spell(self, const uint8_t *letter, const uint8_t *stop, uint8_t *out) noexcept:
        """Write the bytes that letters (UTF-8 [stop - letter]) stand for to out.  Returns their number, or -1 if a
        character is not in the alphabet.
        """
        cdef int64_t n = 0
        cdef uint32_t point
        while letter < stop:
            point = letter[0]
            letter += 1
            if point >= 0x80:  # two bytes or none of the alphabet
                if point & 0xe0 != 0xc0 or letter == stop or letter[0] & 0xc0 != 0x80:
                    return -1
                point = (point & 0x1f) << 6 | letter[0] & 0x3f
                letter += 1
            if self.byte_of[point] < 0:
                return -1
            out[n] = <uint8_t>self.byte_of[point]
            n += 1
        return n

    cdef insert(self, int64_t id):
        """Add a token to the hash table, unless its bytes are there.  Raises ValueError if it takes too long."""
        cdef uint32_t start = self.end[id - 1] if id else 0
        cdef int64_t size = self.end[id] - start
        cdef uint64_t hash = hash_of(self.data + start, size), slot = hash & self.mask
        cdef int64_t probes = 0
        while self.slots[slot]:
            if self.holds(slot, hash, self.data + start, size):
                return
            slot = (slot + 1) & self.mask
            probes += 1
            if probes > MOST_PROBES:
                raise ValueError("its tokens were made to be slow to find")
        self.slots[slot] = tag_of(hash) | <uint32_t>(id + 1)

    cdef inline bint holds(self, uint64_t slot, uint64_t hash, const uint8_t *piece, int64_t size) noexcept nogil:
        """This slot has the token of piece [size]."""
        cdef uint32_t id = (self.slots[slot] & ID) - 1, start
        if self.slots[slot] & ~<uint32_t>ID != tag_of(hash):
            return False
        start = self.end[id - 1] if id else 0
        return self.end[id] - start == size and memcmp(self.data + start, piece, size) == 0

    cdef int32_t find(self, const uint8_t *piece, int64_t size) noexcept nogil:
        """The token of piece [size], or -1."""
        cdef uint64_t slot, hash
        if size > self.longest:
            return -1
        hash = hash_of(piece, size)
        slot = hash & self.mask
        while self.slots[slot]:
            if self.holds(slot, hash, piece, size):
                return <int32_t>(self.slots[slot] & ID) - 1
            slot = (slot + 1) & self.mask
        return -1

    cdef find_singles(self):
        """Look up the tokens of single bytes, with which every piece starts."""
        cdef int i
        cdef uint8_t byte
        for i in range(256):
            byte = <uint8_t>i
            self.single[i] = self.find(&byte, 1)
        self.gaps = bytes([i for i in range(256) if self.single[i] < 0])

    cdef inline int32_t whole(self, const char *piece, int64_t size) noexcept:
        """The token of a piece [size] that needs no joining, or -1."""
        cdef int32_t id
        if size == 1:
            return self.single[<uint8_t>piece[0]]
        id = self.find(<const uint8_t *>piece, size) if size else -1
        return id if id >= 0 and (self.rank[id] != NONE or self.ignore_merges) else -1

    cdef bint has_gap(self, const char *piece, int64_t size) noexcept:
        """One of the bytes of piece [size] is no token."""
        cdef int64_t i
        for i in range(size):
            if self.single[<uint8_t>piece[i]] < 0:
                return True
        return False

    def rank_by(self, stored, int64_t first, ends, int64_t begin=0):
        """Rank tokens by the first of these merges that makes them; merges are stored like the texts ("left right"),
        ends: int64 [number of merges].

        Tokens that no merge makes are not used any more, except single bytes.  Returns the first merge that makes no
        token, -1 if all do.  ``begin``: go on with this merge, after one that was returned.  Raises ValueError for
        sizes that do not fit.
        """
        cdef const int64_t[::1] stops = ends
        cdef int64_t i, at, stop, blank, left, right, n = stops.shape[0]
        cdef int32_t id
        cdef Py_buffer buffer
        cdef const uint8_t *text
        cdef Arena made
        if begin < 0:
            raise ValueError(f"merge {begin}")
        if begin == 0:
            for i in range(self.n):
                self.rank[i] = NONE
        PyObject_GetBuffer(stored, &buffer, PyBUF_SIMPLE)
        try:
            bytes_of_texts(stops, first, buffer.len)
            text = <const uint8_t *>buffer.buf
            made = Arena(2 * self.longest + 2)
            for i in range(begin, n):
                at, stop = (stops[i - 1] if i else first) + 8, stops[i]
                blank = at
                while blank < stop and text[blank] != 32:
                    blank += 1
                id = -1
                if blank < stop and stop - at <= 2 * self.longest + 1:  # a letter is two bytes at most
                    left = self.spell(text + at, text + blank, made.data)
                    right = -1 if left < 0 else self.spell(text + blank + 1, text + stop, made.data + left)
                    id = self.find(made.data, left + right) if right >= 0 else -1
                if id < 0:
                    return i
                if self.rank[id] == NONE:
                    self.rank[id] = <int32_t>i
        finally:
            PyBuffer_Release(&buffer)
        return -1

    def encode(self, pieces, check=None):
        """Token ids of texts (a list of str, or of bytes) that a pattern has split: no token reaches from one text into
        the next.

        ``check``: called every few milliseconds of work, with the GIL; what it raises ends the work.  Other threads may
        encode meanwhile.
        """
        cdef list out = []
        cdef const char *piece
        cdef bytes known
        cdef Py_ssize_t size
        cdef int64_t read = 0
        cdef int32_t id
        for text in pieces:
            if isinstance(text, bytes):
                piece, size = text, len(text)
            else:
                piece = PyUnicode_AsUTF8AndSize(text, &size)
            read += size
            if read >= BLOCK and check is not None:
                read = 0
                check()
            id = self.whole(piece, size)
            if id < 0 and self.gaps and self.has_gap(piece, size):
                known = piece[:size].translate(None, self.gaps)
                piece, size = known, len(known)
                id = self.whole(piece, size)
            if id >= 0:
                out.append(id)
            elif size:
                self.join(<const uint8_t *>piece, size, out, check)
        return out

    cdef join(self, const uint8_t *piece, int64_t n, list out, check):
        """Start with the single bytes of piece [n], join neighbours as long as possible, append the tokens to out."""
        cdef int64_t i, right, pause
        cdef int32_t id
        cdef Parts parts
        cdef Arena arena
        if n >= 1 << 30:
            raise ValueError(f"a piece of text has {n} bytes, more than {(1 << 30) - 1}")
        arena = self.scratch if n <= SHORT else room(n)
        parts.piece, parts.n, parts.n_heap = piece, n, 0
        parts.heap = <uint64_t *>arena.data
        parts.next = <int32_t *>(parts.heap + 3 * n)
        parts.before = parts.next + n
        parts.joined = parts.before + n
        if n <= SHORT:
            self.begin(&parts, 0, n)
            self.go_on(&parts, 3 * n)  # as many as the heap ever gets
        else:
            for i in range(0, n, BLOCK):
                with nogil:
                    self.begin(&parts, i, min(n, i + BLOCK))
                if check is not None:
                    check()
            while parts.n_heap:
                with nogil:
                    self.go_on(&parts, BLOCK)
                if check is not None:
                    check()
        i, pause = 0, BLOCK
        while i < n:
            right = parts.next[i]
            out.append(self.single[piece[i]] if right == i + 1 else self.find(piece + i, right - i))
            i = right
            if i >= pause and check is not None:
                pause = i + BLOCK
                check()

    cdef void begin(self, Parts *parts, int64_t start, int64_t stop) noexcept nogil:
        """The parts of the bytes from start to stop, and which of them join the byte after them."""
        cdef int64_t i
        for i in range(start, min(stop + 1, parts.n)):
            parts.next[i], parts.before[i] = <int32_t>i + 1, <int32_t>i - 1
        for i in range(start, stop):
            self.consider(parts, i)

    cdef void go_on(self, Parts *parts, int64_t most) noexcept nogil:
        """Take at most this many pairs from the heap and join them; all are done when it is empty."""
        cdef int64_t left, middle, right
        cdef uint64_t top
        while parts.n_heap and most:
            most -= 1
            top = parts.heap[0]
            parts.n_heap = pop(parts.heap, parts.n_heap)
            left = <int64_t><uint32_t>top
            if parts.joined[left] != <int32_t>(top >> 32):
                continue  # one of the two has been joined to another meanwhile
            middle = parts.next[left]
            right = parts.next[middle]
            parts.next[left], parts.joined[middle] = <int32_t>right, NONE
            if right < parts.n:
                parts.before[right] = <int32_t>left
            self.consider(parts, left)
            if left:
                self.consider(parts, parts.before[left])

    cdef void consider(self, Parts *parts, int64_t left) noexcept nogil:
        """Add the pair of the part at ``left`` and the next one to the heap, if they can be joined."""
        cdef int64_t middle = parts.next[left]
        cdef int32_t id
        parts.joined[left] = NONE
        if middle == parts.n:
            return
        id = self.find(parts.piece + left, parts.next[middle] - left)
        if id >= 0 and self.rank[id] != NONE:
            parts.joined[left] = self.rank[id]
            parts.n_heap = push(parts.heap, parts.n_heap, <uint64_t>self.rank[id] << 32 | <uint64_t>left)


cdef Arena room(int64_t n):
    """Memory for the Parts of a piece of n bytes."""
    return Arena(n * (3 * 8 + 3 * 4))


cdef int64_t bytes_of_texts(const int64_t[::1] stops, int64_t first, int64_t size) except -1:
    """The number of bytes of texts, checked to lie in order in ``size`` bytes. stops: [n].  Raises ValueError."""
    cdef int64_t i, at = first, total = 0
    if first < 0:
        raise ValueError(f"the texts start at byte {first}, which is negative")
    for i in range(stops.shape[0]):
        if stops[i] > size or stops[i] - 8 < at:
            raise ValueError(f"text {i} ends at {stops[i]}, outside {at + 8} to {size}")
        if stops[i] - 8 - at > LONGEST:
            raise ValueError(f"text {i} has {stops[i] - 8 - at} bytes, more than {LONGEST}")
        total += stops[i] - 8 - at
        at = stops[i]
    if total > MOST:
        raise ValueError(f"the texts have {total} bytes, more than {MOST}")
    return total


cdef uint64_t hash_of(const uint8_t *piece, int64_t size) noexcept nogil:
    """FNV-1a of piece [size], with the upper bits mixed into those that index the hash table."""
    cdef uint64_t h = 0xcbf29ce484222325
    cdef int64_t i
    for i in range(size):
        h = (h ^ piece[i]) * <uint64_t>0x100000001b3
    return h ^ h >> 32


cdef inline uint32_t tag_of(uint64_t hash) noexcept nogil:
    """Bits of the hash that a slot stores: most other tokens are distinguished without reading their bytes."""
    return <uint32_t>(hash >> 57) << TAG


cdef int64_t push(uint64_t *heap, int64_t n, uint64_t key) noexcept nogil:
    """Add a key to heap [n], which has the smallest on top.  Returns n + 1."""
    cdef int64_t at = n, above
    while at:
        above = (at - 1) // 2
        if heap[above] <= key:
            break
        heap[at] = heap[above]
        at = above
    heap[at] = key
    return n + 1


cdef int64_t pop(uint64_t *heap, int64_t n) noexcept nogil:
    """Remove the smallest key of heap [n].  Returns n - 1."""
    cdef int64_t at = 0, below = 1
    cdef uint64_t key = heap[n - 1]
    n -= 1
    while below < n:
        if below + 1 < n and heap[below + 1] < heap[below]:
            below += 1
        if heap[below] >= key:
            break
        heap[at] = heap[below]
        at, below = below, 2 * below + 1
    heap[at] = key
    return n
