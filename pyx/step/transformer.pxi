"""transformer: one model, one step: tokens in, logits out.  It owns the parts, and runs the stages of every layer.

A step evaluates a batch of segments: tokens of different caches, one after the other in memory.  Embedding, norms,
projections and head run over all of them at once, so that weights are read once; rotation, append and attention run per
segment over its own cache.  The arithmetic of a token does not depend on what else is in the step: its logits, keys and
values are the same bits alone or among others.

One parallel region per step: embedding rows, the layers (layer), final norm, output head, with barriers between
their stages.  No Python object is touched inside and the GIL is released.

Forward pass as in transformers BitNetForCausalLM (modeling_bitnet.py) and LlamaForCausalLM.
"""

cdef dict STAGE_NAMES = {
    EMBED: "embedding", NORM: "norms and rounding", QKV: "q, k, v", ROPE: "rotation", ATTEND: "attention, states",
    OUT: "mixer output", ROUTE: "experts chosen", GATE_UP: "gate, up", DOWN: "down", HEAD: "head", WAIT: "waiting"}
#: what a thread does while a step runs, in the order of keep_times; attention and a two-stage head contain barriers of
#: their own
STAGES = tuple([STAGE_NAMES[i] for i in range(N_STAGE)])


cdef inline void finish_row(step_plan *p, float *h) noexcept nogil:
    """Turn an embedding row h [hidden] out of its basis, and multiply it by the model's factor."""
    cdef int64_t i
    if p.basis:
        p.kernel.change_basis(h, NULL, p.signs, p.hidden, p.basis, h)
    if p.embedding_scale != 1:
        for i in range(p.hidden):
            h[i] *= p.embedding_scale


cdef inline void angles_of(step_plan *p, int64_t t) noexcept nogil:
    """The angles of token t of the step, for each rotation."""
    cdef attention_scratch *s = &p.w.attention
    cdef int64_t i, at
    for i in range(p.n_rotation):
        at = (t * p.n_rotation + i) * p.half
        angles_at(&p.rotations[i], p.w.position[t], s.cs + at, s.sn + at)


cdef void embed(step_plan *p, StoredRows embedding, int tid, int n_thread) noexcept nogil:
    """Stage: embedding rows, and the rotation angles of every position (float64, then rounded)."""
    cdef int64_t t
    if p.n_token == 1:
        if tid == 0:
            angles_of(p, 0)
        if tid == n_thread - 1:
            embedding.read_row(p.w.ids[0], tid, p.w.h)
            finish_row(p, p.w.h)
        return
    for t in range(share(p.n_token, 1, tid, n_thread), share(p.n_token, 1, tid + 1, n_thread)):
        embedding.read_row(p.w.ids[t], tid, p.w.h + t * p.hidden)
        finish_row(p, p.w.h + t * p.hidden)
        angles_of(p, t)


cdef void run_step(
    step_plan *p, const layer *layers, int64_t n_layer, StoredRows embedding, Head head, int tid,
    int n_thread) noexcept nogil:
    """The whole step, executed by every thread of the team."""
    cdef int64_t index
    cdef stage_clock *clock = clock_of(p, tid)
    if clock != NULL:
        clock.last = now_ns()
    embed(p, embedding, tid, n_thread)
    done(p, EMBED, tid, n_thread)
    for index in range(n_layer):
        run_layer(p, &layers[index], tid, n_thread)
    if p.n_answer == 0:
        return
    head.run(p.kernel, p.n_answer, p.w.answers, p.output_norm, p.eps, p.w.x, clock, tid, n_thread)


cdef void run_on(
    const cores *c, step_plan *p, const layer *layers, int64_t n_layer, StoredRows embedding, Head head, int tid,
    int n_thread) noexcept nogil:
    """The same on some of the cores."""
    cdef core_set before
    cdef bint moved = False
    if tid == 0:
        moved = move_to(c, &before)
    else:
        keep_on(c)
    run_step(p, layers, n_layer, embedding, head, tid, n_thread)
    if moved:
        give_back(&before)


cdef class Segment:
    """Tokens to append to one cache in a step: ids (int32 buffer [n]), after the tokens that kv holds.

    logits: float32 buffer [n_vocab] for the last of them, or [n][n_vocab] flat with all_logits, or None: nothing is
    computed after the last layer. winners > 0: only that many of the largest logits of a token are needed, ties
    included; if the head can find them faster, the others are -inf.  May be used for any number of steps, and its
    buffers may change in between.  Raises ValueError for buffers of another type.
    """

    cdef readonly object kv, ids, logits
    cdef readonly bint all_logits
    cdef readonly int64_t winners
    cdef const int32_t[::1] tokens      # ids
    cdef float[::1] out                 # logits
    cdef int64_t n_out                  # floats that logits has room for; -1: none are wanted

    def __cinit__(self, kv, ids, logits=None, bint all_logits=False, int64_t winners=0):
        self.kv, self.ids, self.logits, self.all_logits, self.winners = kv, ids, logits, all_logits, winners
        self.tokens, self.n_out = ids, -1
        if logits is not None:
            self.out = logits
            self.n_out = self.out.shape[0]

    def cut(self, int64_t n):
        """Keep the first n tokens only: then there are no logits."""
        if n < self.tokens.shape[0]:
            self.ids = self.ids[:n]
            self.tokens, self.logits, self.n_out = self.ids, None, -1


cdef class Transformer:
    """Weights of one model and its compiled step.

    config: an edge.config.ModelConfig. layers: one mapping per layer, from GGUF names without the prefix to float32
    buffers (attn_norm, attn_q_bias) and TernaryMatrix (attn_q): those of edge.formats.names.layer_parts. rope_freqs:
    float32 divisors [dim / 2] of the rotations that are `divided`, or None. chunk: most tokens per step, of all its
    segments together. adapt: steps use fewer threads while other programs need the cores (see Pace). cores:
    numbers of the cores on which the threads stay, including the caller's thread during a step; None: any.  basis:
    (block, signs or None) of the rotated basis in which embedding rows are stored.  One call at a time; the GIL is
    released inside.

    Raises ValueError that names the tensor whose shape does not fit the configuration.
    """

    cdef readonly int64_t n_layer, hidden, n_vocab, chunk
    cdef readonly int n_threads
    cdef public Pace pace       # None: always n_threads
    cdef StoredRows embedding
    cdef readonly Head head
    cdef layer *layers
    cdef int64_t n_row          # number of layers with attention
    cdef list owners            # everything the pointers in layers point into
    cdef object windows         # of config
    cdef list experts           # [layers with experts] gate, up, down
    cdef double expert_share    # share of them that a token reads
    cdef Residency residency    # of them, or None
    cdef object recurrent       # its recurrent_shape
    cdef object signs           # of the embedding's basis
    cdef Arena rotations        # those of the layers, each once
    cdef Arena scratch_arena, queries, times
    cdef Workspace workspace
    cdef step_plan plan
    cdef cores cores

    def __cinit__(
        self, config, StoredRows embedding not None, Head head not None, layers, output_norm, rope_freqs=None,
        int n_threads=1, int64_t chunk=128, bint adapt=False, cores=None, basis=None):
        if n_threads < 1 or n_threads > 1024 or chunk < 1 or chunk > 4096:
            raise ValueError(f"{n_threads} threads, chunks of {chunk} tokens are out of range")
        self.n_layer, self.n_row, self.hidden = config.n_layer, len(config.attention), config.hidden
        self.n_vocab, self.chunk, self.n_threads = head.n_row, chunk, n_threads
        self.embedding, self.head, self.owners = embedding, head, []
        self.plan.group = config.activation_group
        self.windows, self.recurrent = config.windows, config.recurrent_shape
        if head.n_threads < n_threads or embedding.n_threads < n_threads:
            raise ValueError(
                f"{n_threads} threads, but the head was made for {head.n_threads}, "
                f"the embedding for {embedding.n_threads}")
        if embedding.k != self.hidden or head.k != self.hidden:
            raise ValueError(f"embedding of width {embedding.k} in a model of width {self.hidden}")
        if len(layers) != self.n_layer:
            raise ValueError(f"{len(layers)} layers given, {self.n_layer} expected")
        self.layers = <layer *>calloc(self.n_layer, sizeof(layer))
        if self.layers == NULL:
            raise MemoryError()
        for index, given in enumerate(layers):
            fill_layer(
                &self.layers[index], config.layers[index], given, f"blk.{index}", self.hidden, self.owners,
                self.plan.group)
        self.experts = [
            [given[f"ffn_{name}_exps"] for name in ("gate", "up", "down")]
            for given in layers if "ffn_gate_exps" in given]
        self.expert_share = config.expert_share
        self.plan.output_norm = copy_vector(output_norm, self.hidden, "output_norm", self.owners)
        if basis is not None:  # (block, signs) of the embedding
            self.plan.basis, self.signs = basis
            self.plan.signs = basis_signs(self.plan.basis, self.signs, self.hidden)
        self.workspace = Workspace()
        self._prepare(config)
        self._number(config, rope_freqs)
        self.pace = Pace(n_threads) if adapt and n_threads > 1 else None
        for core in cores or ():
            if not 0 <= core < MOST_CORES:
                raise ValueError(f"core {core} is out of range")
            cores_add(&self.cores, core)

    def __dealloc__(self):
        free(self.layers)

    cdef _number(self, config, rope_freqs):
        """Give each mixer its row in a KV cache or among the states of a session, and attention its rotation."""
        cdef int64_t index, row = 0, states = 0
        cdef dict numbers = {}  # rotation -> its number
        cdef list found = []
        for index, each in enumerate(config.layers):
            if self.layers[index].mixer == ATTENTION:
                wanted = each.mixer.rotation
                if wanted not in numbers:
                    numbers[wanted] = len(found)
                    found.append(Rotary(wanted, rope_freqs if wanted.divided else None))
                self.layers[index].attention.row = row
                self.layers[index].attention.rotation = numbers[wanted]
                row += 1
            if self.layers[index].mixer == DELTA:
                self.layers[index].delta.row = states
                states += 1
        self.rotations = Arena(len(found) * sizeof(rotation))
        for index in range(len(found)):
            (<rotation *>self.rotations.data)[index] = (<Rotary>found[index]).r
        self.owners += found
        self.plan.rotations, self.plan.n_rotation = <rotation *>self.rotations.data, len(found)

    cdef _prepare(self, config):
        """Set everything in the plan that does not change from step to step, and allocate its scratch."""
        cdef step_plan *p = &self.plan
        cdef scratch unplaced
        cdef scratch_widths widths = widths_of(config, self.chunk, self.n_threads)
        p.hidden, p.half = self.hidden, widths.half
        p.attention.n_head, p.attention.n_kv_head = widths.n_head, widths.n_kv_head
        p.attention.head_dim = widths.head_dim
        p.eps, p.inner_eps, p.embedding_scale = config.eps, config.inner_eps, config.embedding_scale
        p.a48 = config.activation_quant == "a4.8"
        p.acc_ints = widths.acc_ints * self.n_threads
        self.scratch_arena = Arena(place(&unplaced, NULL, &widths, self.chunk, self.n_threads))
        place(&p.w, self.scratch_arena.data, &widths, self.chunk, self.n_threads)

    @property
    def kv_shape(self):
        """(layers with attention, KV heads of each, head_dim): the first arguments of a KVCache for this model."""
        return self.n_row, self.plan.attention.n_kv_head, self.plan.attention.head_dim

    @property
    def scratch_bytes(self):
        """Bytes of working memory, without the partial results of decode, which grow with the context."""
        return self.scratch_arena.nbytes + self.head.scratch + self.embedding.buffer

    @property
    def vector_bytes(self):
        """Bytes of the norms."""
        return sum((<Arena>w).nbytes for w in self.owners if isinstance(w, Arena))

    @property
    def matrices(self):
        """The projections (TernaryMatrix) in the order in which a step reads them."""
        return [w for w in self.owners if isinstance(w, TernaryMatrix)]

    @property
    def movable(self):
        """The ternary matrices that can be copied from the file's map; the output head is the last, if it is one."""
        kept = {id(w) for each in self.experts for w in each}  # of which a step reads few
        found = [w for w in self.matrices if not w.is_dense and id(w) not in kept]
        return found if self.head.matrix is None else [*found, self.head.matrix]

    def bound_experts(self, int64_t ceiling):
        """Release experts while the process has more than ``ceiling`` bytes of files in memory.  Raises ValueError if
        they are not mapped from a file.
        """
        cdef int64_t i, n_expert = 0, index = 0
        for i in range(self.n_layer):
            if self.layers[i].feed_forward == EXPERTS:
                n_expert = self.layers[i].experts.n_expert
        self.residency = Residency(self.experts, n_expert, ceiling)
        for i in range(self.n_layer):
            if self.layers[i].feed_forward == EXPERTS:
                self.layers[i].experts.pages, self.layers[i].experts.index = &self.residency.r, index
                index += 1

    @property
    def expert_bytes(self):
        """Bytes of experts that are mapped from the file."""
        return sum([w.code_bytes for each in self.experts for w in each if w.mapped])

    @property
    def weight_bytes(self):
        """Bytes of projections that a token reads: of experts its own."""
        experts = sum([w.nbytes for each in self.experts for w in each])
        return self.weight_bytes_stored - round(experts * (1 - self.expert_share))

    @property
    def weight_bytes_stored(self):
        """Bytes of all projections."""
        return sum(w.nbytes for w in self.owners if isinstance(w, TernaryMatrix))

    @property
    def weight_bytes_allocated(self):
        """Bytes of projections held in memory besides the file's map."""
        return sum(w.nbytes - w.mapped * w.code_bytes for w in self.owners if isinstance(w, TernaryMatrix))

    @property
    def weight_bytes_copied(self):
        """Bytes of projections in memory besides the file's map once all that can be copied are."""
        moved = sum([w.nbytes - w.code_bytes + w.room for w in self.movable if w is not self.head.matrix])
        return moved + sum([w.nbytes - w.mapped * w.code_bytes for each in self.experts for w in each])

    def keep_queries(self):
        """A buffer for the queries of the last token of each step: float32 [attention layers][n_head][head_dim]."""
        self.queries = Arena(4 * self.n_row * self.plan.attention.n_head * self.plan.attention.head_dim)
        self.plan.queries = <float *>self.queries.data
        return self.queries

    def keep_times(self):
        """A buffer to which each step adds the nanoseconds of each thread: int64 [n_threads][16], the first ones named
        by STAGES.
        """
        self.times = Arena(self.n_threads * sizeof(stage_clock))
        self.plan.clocks = <stage_clock *>self.times.data
        return self.times

    cdef int64_t _check(self, Segment given, int64_t room) except -1:
        """The number of tokens of a segment, which must fit this model, its cache and `room` more tokens in the step.
        """
        cdef int64_t i, n = given.tokens.shape[0], answers = n if given.all_logits else 1
        cdef KVCache kv = given.kv
        if n < 1 or n > room:
            raise ValueError(f"a step takes 1 to {self.chunk} tokens in all; {n} are too many or too few here")
        for i in range(n):
            if not 0 <= given.tokens[i] < self.embedding.n_row:
                raise ValueError(f"token {given.tokens[i]} is not one of the {self.embedding.n_row} of the vocabulary")
        cdef const attention_plan *a = &self.plan.attention
        if kv.p.n_layer != self.n_row or kv.p.n_kv_head != a.n_kv_head or kv.p.head_dim != a.head_dim:
            raise ValueError("the KV cache belongs to a model of another shape")
        if kv.plan["recurrent"] != self.recurrent:
            raise ValueError("the KV cache belongs to a model with other gated delta layers")
        if kv.windows is not self.windows and kv.windows != self.windows:
            raise ValueError("the KV cache belongs to a model with other windows")
        if n > kv.room:
            raise ValueError(f"the context of {kv.n_ctx} tokens is full")
        if given.n_out >= 0 and given.n_out != answers * self.n_vocab:
            raise ValueError(f"room for {given.n_out} logits, but the step gives {answers * self.n_vocab}")
        return n

    cdef void _take(self, Segment given, segment *of, int64_t first):
        """Fill in the segment and its tokens, the first of which is number `first` of the step."""
        cdef step_plan *p = &self.plan
        cdef KVCache kv = given.kv
        cdef int64_t t, n = given.tokens.shape[0]
        cdef answer *a      # the next of p.w.answers
        of.kv, of.first, of.n_token, of.pos0 = &kv.p, first, n, kv.n_tokens
        of.delta = NULL if kv.recurrent is None else &kv.recurrent.r
        memcpy(p.w.ids + first, &given.tokens[0], n * sizeof(int32_t))
        for t in range(n):
            p.w.position[first + t] = of.pos0 + t
        for t in range(0 if given.all_logits else n - 1, n if given.n_out >= 0 else 0):
            a = &p.w.answers[p.n_answer]
            a.h = p.w.h + (first + t) * p.hidden
            a.out = &given.out[t * self.n_vocab if given.all_logits else 0]
            a.top = given.winners if 0 < given.winners <= MOST_WINNERS else 0
            p.n_answer += 1

    def step(self, batch):
        """Evaluate the segments of a batch (:class:`Segment`): append their keys and values, write their logits.

        At most ``chunk`` tokens in all, each segment to its own cache.  Raises ValueError for a cache that occurs
        twice, an id out of range, a buffer that does not fit, a cache of another model, or a full context, and
        MemoryError at the limit of a pool; all caches are unchanged then.
        """
        cdef step_plan *p = &self.plan
        cdef attention_plan *a = &p.attention
        cdef attention_scratch *w
        cdef int64_t n = 0, i, j
        cdef int most, n_threads
        cdef int64_t begun = 0, begun_core = 0
        cdef Pace pace = self.pace
        cdef StoredRows embedding = self.embedding
        cdef Head head = self.head
        cdef Segment given
        cdef KVCache kv
        cdef list segments = list(batch)
        cdef dict wanted = {}  # pool -> bytes of pages that its caches may take in this step
        if not segments:
            raise ValueError("a step needs at least one segment")
        for given in segments:
            if given is None:
                raise TypeError("None is not a segment")
            n += self._check(given, self.chunk - n)
        p.n_token, p.n_answer, n = n, 0, 0
        for i, given in enumerate(segments):
            for j in range(i):
                if p.w.segments[j].kv == &(<KVCache>given.kv).p:
                    raise ValueError("two segments of a step use the same KV cache")
            self._take(given, &p.w.segments[i], n)
            n += given.tokens.shape[0]
        for given in segments:
            kv = given.kv
            wanted[kv.pool] = kv.prepare(given.tokens.shape[0], wanted.get(kv.pool, 0))
        if p.n_answer:
            head.expect(p.n_answer)
        self.workspace.aim(p.w.segments, len(segments), a.n_head)
        p.kernel = a.kernel = active()
        a.segments, a.n_segment, a.n_token = p.w.segments, len(segments), n
        w = &p.w.attention
        a.q, a.q8, a.qs, a.k, a.v = w.q, w.q8, w.qs, w.k, w.v
        a.out, a.state, a.team = w.out, w.state, &p.team
        most = self.n_threads if pace is None else pace.threads()
        n_threads = claim(most)
        if pace is not None:
            begun, begun_core = now_ns(), core_ns()
        with nogil, parallel(num_threads=n_threads):
            run_on(&self.cores, p, self.layers, self.n_layer, embedding, head, threadid(), omp_get_num_threads())
        if pace is not None and n_threads == most:
            pace.took(n, begun, now_ns(), core_ns() - begun_core)
        for given in segments:
            (<KVCache>given.kv).advance(given.tokens.shape[0])
