# recurrent: the states of one session's gated delta layers.
from libc.stdint cimport int64_t

from pyx.machine.cpu cimport DELTA_CHUNK
from pyx.machine.memory cimport Arena
from pyx.kv.pool cimport PagePool

# Of all gated delta layers of a model; their convolutions have CONV_TAPS taps.
cdef struct delta_shape:
    int64_t n_layer
    int64_t n_k, n_v        # key heads (as many query heads) and value heads
    int64_t dk, dv          # dimensions of each
    int64_t channels        # of the convolution: queries, keys, values
    int64_t state_floats    # of a layer: states [n_v][dv/16][dk][16], last inputs [CONV_TAPS - 1][channels]
    int64_t open_floats     # of a layer, in the order of the functions below

# What a step reads and writes.  A chunk of DELTA_CHUNK tokens is open: the state in front of it is not written, and
# what its tokens add is kept with it; when the token behind the chunk comes, a new state is made of both.
cdef struct recurrence:
    delta_shape shape
    int64_t base            # tokens in front of the open chunk, a multiple of DELTA_CHUNK
    const float *state      # [n_layer][state_floats] in front of the open chunk
    float *even             # [n_layer][state_floats] where the first, third, .. state that a step makes is written
    float *odd              # and the second, fourth, ..
    float *open             # [n_layer][open_floats]

# Of a layer's open chunk: inputs of the convolution [DELTA_CHUNK][channels]
cdef inline float *open_inputs(const recurrence *r, int64_t layer) noexcept nogil:
    return r.open + layer * r.shape.open_floats

# keys [n_k][DELTA_CHUNK][dk]
cdef inline float *open_keys(const recurrence *r, int64_t layer) noexcept nogil:
    return open_inputs(r, layer) + DELTA_CHUNK * r.shape.channels

# what tokens add [n_v][dv/16][DELTA_CHUNK][16]
cdef inline float *open_added(const recurrence *r, int64_t layer) noexcept nogil:
    return open_keys(r, layer) + DELTA_CHUNK * r.shape.n_k * r.shape.dk

# sums of the logarithms of g [n_v][DELTA_CHUNK]
cdef inline double *open_decays(const recurrence *r, int64_t layer) noexcept nogil:
    return <double *>(open_added(r, layer) + DELTA_CHUNK * r.shape.n_v * r.shape.dv)

# Memory that counts in the pool of the session's pages.
cdef class Slab(Arena):
    cdef PagePool pool
    cdef int64_t users      # snapshots that hold it

cdef class Snapshot:
    cdef Slab slab          # [n_layer][state_floats]
    cdef readonly int64_t base  # tokens that it stands behind
    cdef readonly bint kept     # not dropped before those that are not

cdef class Recurrence:
    cdef recurrence r
    cdef list snapshots     # of ascending base; the last is the one in front of the open chunk
    cdef Slab open          # [n_layer][open_floats]
    cdef PagePool pool
    cdef object coming      # snapshots that the step at hand makes: [even, odd], or None
    cdef int64_t most       # snapshots other than the latest two
    # Number of states that n more tokens behind n_tokens make.
    cdef int64_t sealed(self, int64_t n_tokens, int64_t n) noexcept
    # Before a step with n more tokens.
    cdef prepare(self, int64_t n_tokens, int64_t n)
    # After it.
    cdef advance(self, int64_t n_tokens, int64_t n)
    # The largest number of tokens, at most n of n_tokens, to which it can go back.
    cdef int64_t reachable(self, int64_t n_tokens, int64_t n) noexcept
    cdef crop(self, int64_t n)
    cdef mark(self, int64_t n_tokens)
    # Bytes of states that a step with n more tokens takes at most, without those that it gives up.
    cdef int64_t wanted(self, int64_t n_tokens, int64_t n) noexcept
    # Drop a snapshot; False if there is none to drop.
    cdef bint give_up(self)
    # Take over the state of another one of the same shape.
    cdef share(self, Recurrence other)
    cdef Slab _slab(self)
    cdef Slab _unused(self)
    cdef _latest(self)
    cdef _tidy(self)
