# layer: the stages of one layer of the model, done by a team of threads.
from libc.stdint cimport int32_t, int64_t

from pyx.attention cimport attention_plan
from pyx.cpu cimport kernels
from pyx.policy cimport pages
from pyx.projection cimport matrix
from pyx.rotary cimport rotation
from pyx.scratch cimport scratch
from pyx.team cimport stage_clock, team

cdef enum:
    FLOAT_LINE = 16     # floats per cache line: threads never write the same line

cdef struct layer:
    const float *attn_norm      # [hidden]
    const float *attn_sub_norm  # [q_dim] or NULL
    const float *ffn_norm       # [hidden]
    const float *ffn_sub_norm   # [ffn] or NULL
    const matrix *q             # [q_dim][hidden]
    const matrix *k             # [kv_dim][hidden]
    const matrix *v             # [kv_dim][hidden]
    const matrix *o             # [hidden][q_dim]
    const matrix *gate          # [ffn][hidden]
    const matrix *up            # [ffn][hidden]
    const matrix *down          # [hidden][ffn]

# What the threads of one step share.
cdef struct step_plan:
    const kernels *kernel
    team team
    stage_clock *clocks     # [n_threads], or NULL
    const layer *layers
    pages *kv
    scratch w
    const int32_t *ids
    int64_t n_token, pos0
    int64_t n_layer, hidden, ffn, n_head, n_kv_head, head_dim
    int64_t acc_ints        # integer accumulators of all threads, shared out over those that OpenMP gave
    float eps
    bint silu, a48
    attention_plan attention
    rotation rotary
    const float *output_norm
    float *logits
    bint all_logits
    int64_t top             # only the largest logits are wanted; 0: all
    float *queries  # [n_layer][n_head][head_dim], or NULL

# One layer for the tokens of the plan, from p.w.h to p.w.h: every thread of a team calls it.  Ends with a barrier.
cdef void run_layer(step_plan *p, int64_t index, int tid, int n_thread) noexcept nogil
