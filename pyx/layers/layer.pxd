# layer: one layer of a model: a mixer and a feed-forward part, done by a team of threads.
from libc.stdint cimport int64_t

from pyx.layers.feed_dense cimport dense_part
from pyx.layers.feed_experts cimport experts_part
from pyx.layers.mix_attention cimport attention_mixer
from pyx.layers.mix_delta cimport delta_mixer
from pyx.step.stages cimport step_plan

cdef enum mixer_kind:
    ATTENTION, DELTA

cdef enum feed_forward_kind:
    DENSE, EXPERTS

cdef struct layer:
    mixer_kind mixer
    attention_mixer attention       # mixer ATTENTION
    delta_mixer delta               # mixer DELTA
    const float *post_mixer_norm    # [hidden] or NULL: of what the mixer adds to the residual stream
    feed_forward_kind feed_forward
    dense_part dense                # feed-forward DENSE
    experts_part experts            # feed-forward EXPERTS
    const float *post_ffn_norm      # [hidden] or NULL: of what the feed-forward part adds

# All but the numbers of its mixer, from tensors by name, which owners will hold; config: an edge.layers.LayerConfig.
# group: values of an activation that share a scale, 0: all do. Raises ValueError.
cdef fill_layer(layer *w, config, given, str prefix, int64_t hidden, list owners, int group)
# One layer for the tokens of the step, from p.w.h to p.w.h: every thread of a team calls it.  Ends with a barrier.
cdef void run_layer(step_plan *p, const layer *w, int tid, int n_thread) noexcept nogil
