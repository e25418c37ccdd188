"""layer: one layer of a model: a mixer and a feed-forward part, each added to the residual stream.

The stages of each kind are in a file of their own (mix_attention, mix_delta, feed_dense); what they share is in
stages. docs/architecture.md says what a new kind needs.
"""

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

#: names of the kinds in edge.layers
cdef dict MIXERS = {"attention": ATTENTION, "delta": DELTA}
cdef dict FEED_FORWARD = {"dense": DENSE, "experts": EXPERTS}


cdef fill_layer(layer *w, config, given, str prefix, int64_t hidden, list owners, int group):
    """All but the numbers of its mixer, from tensors by name, which owners will hold; config: an
    edge.layers.LayerConfig. group: values of an activation that share a scale, 0: all do. Raises ValueError.
    """
    cdef LayerTensors tensors = LayerTensors(given, prefix, owners, group)
    w.mixer, w.feed_forward = MIXERS[config.mixer.kind], FEED_FORWARD[config.feed_forward.kind]
    if w.mixer == ATTENTION:
        fill_attention(&w.attention, config.mixer, tensors, hidden)
    if w.mixer == DELTA:
        fill_delta(&w.delta, config.mixer, tensors, hidden)
    w.post_mixer_norm = tensors.optional("post_attention_norm", hidden)
    if w.feed_forward == DENSE:
        fill_dense(&w.dense, config.feed_forward, tensors, hidden)
    elif w.feed_forward == EXPERTS:
        fill_experts(&w.experts, config.feed_forward, tensors, hidden)
    w.post_ffn_norm = tensors.optional("post_ffw_norm", hidden)
    if (w.post_mixer_norm != NULL) != config.post_norm or (w.post_ffn_norm != NULL) != config.post_norm:
        raise ValueError(f"{prefix}: its post-norms are not those of the configuration")


cdef void run_layer(step_plan *p, const layer *w, int tid, int n_thread) noexcept nogil:
    """One layer for the tokens of the step, from p.w.h to p.w.h: every thread of a team calls it.  Ends with a barrier.
    """
    if w.mixer == ATTENTION:
        mix_attention(p, &w.attention, w.post_mixer_norm, tid, n_thread)
    if w.mixer == DELTA:
        mix_delta(p, &w.delta, w.post_mixer_norm, tid, n_thread)
    if w.feed_forward == DENSE:
        feed_dense(p, &w.dense, w.post_ffn_norm, tid, n_thread)
    elif w.feed_forward == EXPERTS:
        feed_experts(p, &w.experts, tid, n_thread)
