# mix_attention: the stages of a mixer with attention.
from libc.stdint cimport int64_t

from pyx.weights.projection cimport matrix
from pyx.step.scratch cimport attention_scratch
from pyx.step.stages cimport step_plan
from pyx.weights.tensors cimport LayerTensors

# Norms before single projections, each as wide as the projection's input, or NULL.
cdef struct attention_norms:
    const float *q
    const float *k
    const float *v
    const float *o

cdef struct attention_mixer:
    int64_t row             # its number among the mixers with attention: the streams of a KV cache that are its own
    int64_t rotation        # number of its rotation in the step plan
    bint gated              # behind the rows of q of each head are those of its output gate
    bint norm_rotated       # q_norm and k_norm come after the rotation, not before it
    const float *norm       # [hidden]
    const float *sub_norm   # [q_dim] or NULL
    const float *q_norm     # [head_dim] or NULL: of each query head
    const float *k_norm     # [head_dim] or NULL: of each key head
    const float *q_bias     # [q_dim] or NULL
    const float *k_bias     # [kv_dim] or NULL
    const float *v_bias     # [kv_dim] or NULL
    attention_norms inner   # q, k, v all or none
    const matrix *q         # [q_dim][hidden], gated [n_head][2][head_dim][hidden]
    const matrix *k         # [kv_dim][hidden]
    const matrix *v         # [kv_dim][hidden]
    const matrix *o         # [hidden][q_dim]

# Everything but row and rotation, from the tensors of a layer; mixer: an edge.layers.Attention.
cdef fill_attention(attention_mixer *w, mixer, LayerTensors given, int64_t hidden)
# The mixer for the tokens of the step, added to p.w.h through the norm post_norm [hidden] where there is one: every
# thread of a team calls it.  Ends with a barrier.
cdef void mix_attention(
    step_plan *p, const attention_mixer *w, const float *post_norm, int tid, int n_thread) noexcept nogil
