# feed_experts: the stages of a mixture of experts.
from libc.stdint cimport int64_t

from pyx.weights.projection cimport matrix
from pyx.machine.residency cimport residency
from pyx.step.stages cimport step_plan
from pyx.weights.tensors cimport LayerTensors

# The matrices of all experts are stacked: those of expert e begin at row e * ffn (down: e * hidden).
cdef struct experts_part:
    int64_t n_expert
    int64_t n_used          # experts of a token
    int64_t ffn             # the width of one expert
    bint renormalise        # the weights of a token's experts are divided by their sum
    float clamp             # gate is at most this, up within +- this; 0: no bound
    const float *norm       # [hidden]
    const matrix *router    # [n_expert][hidden], of floats
    const matrix *gate      # [n_expert * ffn][hidden]
    const matrix *up        # [n_expert * ffn][hidden]
    const matrix *down      # [n_expert * hidden][ffn]
    residency *pages        # of the experts in the file's map, if not all of them may be in memory; else NULL
    int64_t index           # number of the layer among those with experts

# From the tensors of a layer; part: an edge.layers.Experts.
cdef fill_experts(experts_part *w, part, LayerTensors given, int64_t hidden)
# The experts for the tokens of the step, added to p.w.h: every thread of a team calls it.  Ends with a barrier.
cdef void feed_experts(step_plan *p, const experts_part *w, int tid, int n_thread) noexcept nogil
