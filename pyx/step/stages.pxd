# stages: what the stages of every kind of layer share: the plan of a step, rounding, rows of projections, and adding to
# the residual stream.
from libc.stdint cimport int32_t, int64_t

from pyx.layers.attention cimport attention_plan
from pyx.machine.cpu cimport PANEL_ROWS, TERNARY_BLOCK, kernels
from pyx.weights.projection cimport activations, matrix
from pyx.layers.rotary cimport rotation
from pyx.step.scratch cimport scratch
from pyx.machine.team cimport WAIT, lap, stage, stage_clock, team, team_barrier

cdef enum:
    FLOAT_LINE = 16     # floats per cache line: threads never write the same line

# How the input of a projection becomes codes: 8 bits everywhere (b1.58), or by its place in the layer (a4.8); in models
# with groups (p.group) 8 bits for each group of values, whatever is asked for.
cdef enum act_quant:
    INT8, INT4, INT8_HALF

# What the threads of one step share.
cdef struct step_plan:
    const kernels *kernel
    team team
    stage_clock *clocks     # [n_threads], or NULL
    scratch w
    int64_t n_token         # of all segments
    int64_t hidden
    int64_t acc_ints        # integer accumulators of all threads, divided among those that OpenMP gave
    float eps, inner_eps    # of the norms of layers, and of single projections
    float embedding_scale   # factor of embedding rows
    bint a48
    int group               # values of an activation that share a scale: 32, 64 or 128; 0: all do
    attention_plan attention
    const rotation *rotations   # [n_rotation] those of the layers, each once
    int64_t n_rotation
    int64_t half            # most pairs that one of them rotates
    float *queries          # [attention layers][n_head][head_dim] of the last token, or NULL
    int64_t basis           # of embedding rows, as of a matrix; 0: none
    const float *signs
    const float *output_norm    # [hidden]
    int64_t n_answer        # number of requested logits

# A thread's integer accumulators, [acc_ints / n_thread].
cdef inline int32_t *acc_of(step_plan *p, int tid, int n_thread) noexcept nogil:
    return p.w.acc + p.acc_ints // n_thread // 16 * 16 * tid

cdef inline stage_clock *clock_of(step_plan *p, int tid) noexcept nogil:
    return NULL if p.clocks == NULL else p.clocks + tid

# The end of a stage: the next one begins when all threads are here.
cdef inline void done(step_plan *p, stage which, int tid, int n_thread) noexcept nogil:
    lap(clock_of(p, tid), which)
    team_barrier(&p.team, n_thread)
    lap(clock_of(p, tid), WAIT)

# n values in whole blocks, or groups.
cdef inline int64_t padded(const step_plan *p, int64_t n) noexcept nogil:
    cdef int64_t unit = p.group if p.group else TERNARY_BLOCK
    return (n + unit - 1) // unit * unit

# Number of rows that a thread processes at a time: whole panels, if matrices may consist of them.
cdef inline int64_t unit_of(const step_plan *p) noexcept nogil:
    return PANEL_ROWS if p.group else FLOAT_LINE

# Stage: x [n_token][n] as the input of projections, through the norms [n] that are given: that before all of them, and
# that of a single one (inner); in the basis of the matrices that are multiplied with it, of which w is one.
cdef activations quantised(
    step_plan *p, const matrix *w, const float *x, const float *norm, const float *inner, int64_t n, act_quant kind,
    int tid, int n_thread) noexcept nogil
# out [n_token][n_row] (+)= w a for rows [start, stop), clamped to the matrix; so fused matrices are cut from one range
# of rows.
cdef void rows_of(
    step_plan *p, const matrix *w, const activations *a, int64_t start, int64_t stop, bint accumulate,
    int32_t *acc, float *out) noexcept nogil
# rows_of, plus the bias [n_row] of each row where there is one.
cdef void biased_rows(
    step_plan *p, const matrix *w, const float *bias, const activations *a, int64_t start, int64_t stop, int32_t *acc,
    float *out) noexcept nogil
# Stage: a projection of h that has a norm of its own in front of it, into out [n_token][n_row].
cdef void rows_apart(
    step_plan *p, const matrix *w, const float *bias, const float *norm, const float *inner, stage which, int32_t *acc,
    float *out, int tid, int n_thread) noexcept nogil
# Stage: a projection, through the norm [hidden] behind it where there is one, added to h [n_token][hidden].
cdef void add_rows(
    step_plan *p, const matrix *w, const activations *a, const float *norm, stage which, int32_t *acc, int tid,
    int n_thread) noexcept nogil
