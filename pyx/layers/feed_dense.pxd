# feed_dense: the stages of a dense feed-forward part.
from libc.stdint cimport int64_t

from pyx.weights.projection cimport matrix
from pyx.step.stages cimport step_plan
from pyx.weights.tensors cimport LayerTensors

# Norms before single projections, each as wide as the projection's input, or NULL.
cdef struct dense_norms:
    const float *gate
    const float *up
    const float *down

# The activation of the gate.
cdef enum activation:
    RELU2, SILU, GELU

cdef struct dense_part:
    int64_t ffn             # its width
    activation act
    const float *norm       # [hidden]
    const float *sub_norm   # [ffn] or NULL
    dense_norms inner       # gate and up both or none
    const matrix *gate      # [ffn][hidden]
    const matrix *up        # [ffn][hidden]
    const matrix *down      # [hidden][ffn]

# From the tensors of a layer; part: an edge.layers.Dense.
cdef fill_dense(dense_part *w, part, LayerTensors given, int64_t hidden)
# The feed-forward part for the tokens of the step, added to p.w.h through the norm post_norm [hidden] where there is
# one: every thread of a team calls it.  Ends with a barrier.
cdef void feed_dense(step_plan *p, const dense_part *w, const float *post_norm, int tid, int n_thread) noexcept nogil
