# layer: the stages of one layer of the model, done by a team of threads.
from libc.stdint cimport int64_t

from pyx.attention cimport attention_plan
from pyx.cpu cimport kernels
from pyx.projection cimport matrix
from pyx.rotary cimport rotation
from pyx.scratch cimport scratch
from pyx.team cimport stage_clock, team

cdef enum:
    FLOAT_LINE = 16     # floats per cache line: threads never write the same line

# Norms before single projections, each as wide as the projection's input, or NULL.
cdef struct input_norms:
    const float *q
    const float *k
    const float *v
    const float *o
    const float *gate
    const float *up
    const float *down

cdef struct layer:
    const float *attn_norm      # [hidden]
    const float *attn_sub_norm  # [q_dim] or NULL
    const float *ffn_norm       # [hidden]
    const float *ffn_sub_norm   # [ffn] or NULL
    const float *post_attn_norm # [hidden] or NULL: of what attention adds to the residual stream
    const float *post_ffn_norm  # [hidden] or NULL: of what the feed-forward part adds
    const float *q_norm         # [head_dim] or NULL: of each query head
    const float *k_norm         # [head_dim] or NULL: of each key head
    const float *q_bias         # [q_dim] or NULL
    const float *k_bias         # [kv_dim] or NULL
    const float *v_bias         # [kv_dim] or NULL
    input_norms inner           # q, k, v all or none, and gate and up
    const matrix *q             # [q_dim][hidden]
    const matrix *k             # [kv_dim][hidden]
    const matrix *v             # [kv_dim][hidden]
    const matrix *o             # [hidden][q_dim]
    const matrix *gate          # [ffn][hidden]
    const matrix *up            # [ffn][hidden]
    const matrix *down          # [hidden][ffn]
    bint near                   # has a sliding window, and is rotated by rotary_near

# out [n] = act(gate [n]) * up [n]
ctypedef void (*gate_kernel)(const float *gate, const float *up, int64_t n, float *out) noexcept nogil

# What the threads of one step share.
cdef struct step_plan:
    const kernels *kernel
    team team
    stage_clock *clocks     # [n_threads], or NULL
    const layer *layers     # [n_layer]
    scratch w
    int64_t n_token         # of all segments
    int64_t n_layer, hidden, ffn, n_head, n_kv_head, head_dim
    int64_t acc_ints        # integer accumulators of all threads, divided among those that OpenMP gave
    float eps, inner_eps    # of the norms of the layer, and of single projections
    float embedding_scale   # factor of embedding rows
    gate_kernel gate        # the activation of the gate, times up
    bint a48
    int group               # values of an activation that share a scale: 32, 64 or 128; 0: all do
    bint post_norm          # each block has a norm after it
    bint norm_rotated       # q_norm and k_norm come after the rotation, not before it
    attention_plan attention
    rotation rotary
    rotation rotary_near    # of layers with a sliding window; half 0: there are none
    const float *output_norm    # [hidden]
    int64_t n_answer        # number of requested logits
    float *queries          # [n_layer][n_head][head_dim] of the last token, or NULL

# One layer for the tokens of the step, from p.w.h to p.w.h: every thread of a team calls it.  Ends with a barrier.
cdef void run_layer(step_plan *p, int64_t index, int tid, int n_thread) noexcept nogil
