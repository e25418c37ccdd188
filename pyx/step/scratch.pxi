"""scratch: the working memory of a step, one allocation cut into arrays."""

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
    float *q_gate   # [C][2 q_dim]           query heads, each followed by its gate, where layers have these
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


cdef inline int64_t delta_work(int64_t dk, int64_t dv) noexcept nogil:
    """Floats of working memory of a thread: queries, values and strengths of one head and chunk, one convolved key."""
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


cdef int64_t place(scratch *w, unsigned char *base, const scratch_widths *p, int64_t C, int64_t n_threads) noexcept:
    """Point w into the memory from base on, each array on a cache line.  Returns how many bytes that takes."""
    C = max(C, n_threads)  # a single token is quantised by every thread in a row of its own
    cdef int64_t at = 0, k_pad = whole_blocks(p.wide), q_dim = p.n_head * p.head_dim, kv_dim = p.n_kv_head * p.head_dim
    cdef int64_t P = C * p.n_used, expert_pad = whole_blocks(max(p.hidden, p.expert_ffn))
    cdef attention_scratch *attention = &w.attention
    cdef delta_scratch *delta = &w.delta
    cdef experts_scratch *experts = &w.experts
    w.segments = <segment *>take(base, &at, C * sizeof(segment))
    w.answers = <answer *>take(base, &at, C * sizeof(answer))
    w.ids = <int32_t *>take(base, &at, 4 * C)
    w.position = <int64_t *>take(base, &at, 8 * C)
    w.h = <float *>take(base, &at, 4 * C * p.hidden)
    w.x = <float *>take(base, &at, 4 * C * p.wide)
    w.turned = <float *>take(base, &at, 4 * C * p.turned)
    w.x8 = <int8_t *>take(base, &at, C * k_pad)
    w.s = <float *>take(base, &at, 4 * C * (k_pad // p.group))
    w.sum = <int32_t *>take(base, &at, 4 * C * (k_pad // p.group))
    w.block = <float *>take(base, &at, 4 * C * p.block)
    w.acc = <int32_t *>take(base, &at, 4 * n_threads * p.acc_ints)
    attention.q = <float *>take(base, &at, 4 * C * q_dim)
    attention.q_gate = <float *>take(base, &at, 8 * C * p.gated)
    attention.k = <float *>take(base, &at, 4 * C * kv_dim)
    attention.v = <float *>take(base, &at, 4 * C * kv_dim)
    attention.q8 = <int8_t *>take(base, &at, C * q_dim)
    attention.qs = <float *>take(base, &at, 4 * C * p.n_head)
    attention.out = <float *>take(base, &at, 4 * C * q_dim)
    attention.cs = <float *>take(base, &at, 4 * C * p.n_rotation * p.half)
    attention.sn = <float *>take(base, &at, 4 * C * p.n_rotation * p.half)
    attention.state = <float *>take(
        base, &at, 4 * n_threads * thread_state_floats(p.n_head // p.n_kv_head, p.head_dim))
    delta.qkv = <float *>take(base, &at, 4 * C * p.channels)
    delta.z = <float *>take(base, &at, 4 * C * p.inner)
    delta.alpha = <float *>take(base, &at, 4 * C * p.n_v)
    delta.beta = <float *>take(base, &at, 4 * C * p.n_v)
    delta.out = <float *>take(base, &at, 4 * C * p.inner)
    delta.work = <float *>take(base, &at, 4 * n_threads * delta_work(p.dk, p.dv) if p.n_v else 0)
    w.dense.gate = <float *>take(base, &at, 4 * C * p.ffn)
    w.dense.up = <float *>take(base, &at, 4 * C * p.ffn)
    if p.n_expert:
        experts.score = <float *>take(base, &at, 4 * C * p.n_expert)
        experts.chosen = <int32_t *>take(base, &at, 4 * P)
        experts.weight = <float *>take(base, &at, 4 * P)
        experts.first = <int64_t *>take(base, &at, 8 * (p.n_expert + 1))
        experts.token = <int32_t *>take(base, &at, 4 * P)
        experts.share = <float *>take(base, &at, 4 * P)
        experts.x8 = <int8_t *>take(base, &at, P * expert_pad)
        experts.s = <float *>take(base, &at, 4 * P * (expert_pad // p.group))
        experts.sum = <int32_t *>take(base, &at, 4 * P * (expert_pad // p.group))
        experts.gate = <float *>take(base, &at, 4 * P * p.expert_ffn)
        experts.up = <float *>take(base, &at, 4 * P * p.expert_ffn)
        experts.out = <float *>take(base, &at, 4 * C * p.hidden)
    return at


cdef inline int64_t whole_blocks(int64_t n) noexcept nogil:
    return (n + TERNARY_BLOCK - 1) // TERNARY_BLOCK * TERNARY_BLOCK


cdef inline void *take(unsigned char *base, int64_t *at, int64_t n) noexcept:
    cdef int64_t start = at[0]
    at[0] = start + (n + 63) // 64 * 64
    return NULL if base == NULL else base + start


cdef scratch_widths widths_of(config, int64_t chunk, int64_t n_threads):
    """The sizes of a model (an edge.config.ModelConfig) and steps of up to `chunk` tokens on n_threads threads."""
    cdef scratch_widths p
    cdef int64_t rows
    cdef set rotations = set()
    p.hidden, p.n_head, p.n_kv_head, p.head_dim = config.hidden, config.n_head, config.n_kv_head, config.head_dim
    p.block = p.half = p.ffn = p.n_expert = p.n_used = p.expert_ffn = p.gated = 0
    for layer in config.layers:
        part = layer.feed_forward
        if part.kind == "experts":
            p.n_expert, p.n_used = max(p.n_expert, <int64_t>part.n_expert), max(p.n_used, <int64_t>part.n_used)
            p.expert_ffn = max(p.expert_ffn, <int64_t>part.ffn)
        else:
            p.ffn = max(p.ffn, <int64_t>part.ffn)
        p.block = p.hidden if layer.post_norm else p.block
    for mixer in config.attention:
        rotations.add(mixer.rotation)
        p.half = max(p.half, <int64_t>mixer.rotation.dim // 2)
        p.gated = p.n_head * p.head_dim if mixer.gated else p.gated
    p.n_rotation = len(rotations)
    p.group = config.activation_group or TERNARY_BLOCK
    p.channels = p.inner = p.n_v = p.dk = p.dv = 0
    for mixer in config.recurrent[:1]:
        p.channels, p.inner, p.n_v, p.dk, p.dv = (
            mixer.channels, mixer.inner, mixer.n_v_head, mixer.head_dim_k, mixer.head_dim_v)
    p.wide = max(p.hidden, p.n_head * p.head_dim, p.ffn, p.expert_ffn, p.inner)
    p.turned = p.wide if config.rotated else 0
    # a thread's share of the rows of a stage, in whole cache lines; project_groups needs a token and
    # two numbers for each 128 of its values
    rows = max(
        p.hidden, p.ffn, p.expert_ffn, p.gated + (p.n_head + 2 * p.n_kv_head) * p.head_dim,
        p.channels + p.inner + 2 * p.n_v) // n_threads + 16
    p.acc_ints = max(
        accumulators(chunk, rows), (p.wide // TERNARY_BLOCK + 1) * (TERNARY_BLOCK // 4 + 2) // 16 * 16 + 16)
    return p


def scratch_bytes(config, int n_threads, int64_t chunk=128):
    """Bytes of the working memory of a transformer, computed before it exists."""
    cdef scratch unplaced
    cdef scratch_widths widths = widths_of(config, chunk, n_threads)
    return place(&unplaced, NULL, &widths, chunk, n_threads)
