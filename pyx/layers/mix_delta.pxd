# mix_delta: the stages of a mixer with the gated delta rule.
from libc.stdint cimport int64_t

from pyx.weights.projection cimport matrix
from pyx.step.stages cimport step_plan
from pyx.weights.tensors cimport LayerTensors

cdef struct delta_mixer:
    int64_t row             # its number among the mixers of its kind: the states of a session that are its own
    int64_t n_k, n_v, dk, dv
    bint tiled              # value head v belongs to key head v % n_k, else to v // (n_v / n_k)
    bint grouped_out        # columns of `out` are ordered as if they were not tiled
    const float *norm       # [hidden]
    const float *taps       # of each head's channels [CONV_TAPS][dk or dv]: query heads, key heads, value heads
    const float *a          # [n_v] ln g = a * softplus(alpha + dt)
    const float *dt         # [n_v]
    const float *out_norm   # [dv]
    const float *q_length   # [dk] norms that make lengths of 1/sqrt(dk)
    const float *k_length   # [dk] and of 1
    const matrix *qkv       # [channels][hidden]
    const matrix *z         # [inner][hidden]
    const matrix *alpha     # [n_v][hidden] floats, as beta
    const matrix *beta      # [n_v][hidden]
    const matrix *out       # [hidden][inner]

# Everything but row, from the tensors of a layer; mixer: an edge.layers.Delta.
cdef fill_delta(delta_mixer *w, mixer, LayerTensors given, int64_t hidden)
# The mixer for the tokens of the step, added to p.w.h through the norm post_norm [hidden] where there is one: every
# thread of a team calls it.  Ends with a barrier.
cdef void mix_delta(
    step_plan *p, const delta_mixer *w, const float *post_norm, int tid, int n_thread) noexcept nogil
