# scratch: the working memory of a step, one allocation cut into arrays.
from libc.stdint cimport int8_t, int32_t, int64_t

from pyx.layers.attention cimport segment
from pyx.head.bit_planes cimport answer
from pyx.machine.cpu cimport DELTA_CHUNK

# The dimensions that determine the sizes: of all layers of a kind the largest.
cdef struct scratch_widths:
    int64_t hidden
    int64_t wide        # widest input of a projection
    int64_t block       # hidden, if a block has a norm after it, else 0
    int64_t acc_ints    # integer accumulators per thread
    int64_t group       # values that have a scale, at most
    int64_t n_head      # of layers with attention
    int64_t n_kv_head
    int64_t head_dim
    int64_t n_rotation  # different rotations
    int64_t half        # most pairs that one of them rotates per head
    int64_t ffn         # of dense feed-forward parts
    int64_t n_expert    # of mixtures of experts; 0: there are none
    int64_t n_used      # experts of a token
    int64_t expert_ffn  # width of an expert
    int64_t gated       # width of the query heads, if an attention layer has an output gate, else 0
    int64_t turned      # wide, if matrices are stored in a rotated basis, else 0
    int64_t channels    # of gated delta layers: of the convolution,
    int64_t inner       # of all value heads together,
    int64_t n_v         # value heads
    int64_t dk, dv      # dimensions of a key head and of a value head

# Of mixers with attention.
cdef struct attention_scratch:
    float *q        # [C][q_dim]
    float *q_gate   # [C][2 q_dim]           query heads, each with its gate behind it, where layers have these
    float *k        # [C][kv_dim]
    float *v        # [C][kv_dim]
    int8_t *q8      # [C][q_dim]
    float *qs       # [C][n_head]
    float *out      # [C][q_dim]
    float *cs       # [C][n_rotation][half]
    float *sn       # [C][n_rotation][half]
    float *state    # [n_threads][thread_state_floats]

# Of gated delta layers.
cdef struct delta_scratch:
    float *qkv      # [C][channels]          inputs of the convolution
    float *z        # [C][inner]             gates of the output
    float *alpha    # [C][n_v]               steps of forgetting, before softplus
    float *beta     # [C][n_v]               strengths of storing, before the sigmoid
    float *out      # [C][inner]
    float *work     # [n_threads][delta_work floats]

# Floats of working memory of a thread: queries, values and strengths of one head and chunk, one convolved key.
cdef inline int64_t delta_work(int64_t dk, int64_t dv) noexcept nogil:
    return (DELTA_CHUNK * (dk + dv + 1) + dk + 15) // 16 * 16

# Of dense feed-forward parts.
cdef struct dense_scratch:
    float *gate     # [C][ffn]
    float *up       # [C][ffn]

# Of mixtures of experts; P = C * n_used pairs of a token and an expert, ordered by expert.
cdef struct experts_scratch:
    float *score    # [C][n_expert]
    int32_t *chosen # [C][n_used]            experts of each token, ascending
    float *weight   # [C][n_used]
    int64_t *first  # [n_expert + 1]         the first pair of each expert
    int32_t *token  # [P]
    float *share    # [P]                    weight of the expert's result
    int8_t *x8      # [P][k_pad]             rounded inputs, of gate and up, then of down
    float *s        # [P], or [P][k_pad / 128]
    int32_t *sum    # [P], or [P][k_pad / 128]
    float *gate     # [P][expert_ffn]
    float *up       # [P][expert_ffn]
    float *out      # [C][hidden]            results of one expert

# Working memory of one step of up to `chunk` tokens (C below), of however many segments, one allocation.
cdef struct scratch:
    segment *segments  # [C]             tokens of one cache each
    answer *answers    # [C]             requested logits
    int32_t *ids       # [C]             of all segments
    int64_t *position  # [C]             each in its cache
    float *h        # [C][hidden]            residual stream
    float *x        # [C][wide]              normed activations before quantisation
    float *turned   # [C][wide]              the same in the basis of the matrices, where a model has such
    int8_t *x8      # [C][k_pad]             quantised activations, rows packed for the matrix at hand
    float *s        # [C]                    127 / absmax, or absmax / 127 of each group [C][k_pad / group]
    int32_t *sum    # [C]                    sum of x8, or [C][k_pad / group]
    float *block    # [C][block]             what a block adds to h, before its norm
    int32_t *acc    # [n_threads][acc_ints]
    attention_scratch attention
    delta_scratch delta
    dense_scratch dense
    experts_scratch experts

# The sizes of a model (an edge.config.ModelConfig) and steps of up to `chunk` tokens on n_threads threads.
cdef scratch_widths widths_of(config, int64_t chunk, int64_t n_threads)
# Point w into the bytes from base on (NULL: only measure); returns how many bytes that takes.
cdef int64_t place(
    scratch *w, unsigned char *base, const scratch_widths *p, int64_t C, int64_t n_threads) noexcept
