"""transformer: one model, one step: tokens in, logits out.  The only caller of ternary, table, kv and attention.

One parallel region per step: embedding rows, the layers (layer.pyx), final norm, output head, with barriers between
their stages.  No Python object is touched inside and the GIL is released.

Forward pass as in transformers BitNetForCausalLM (modeling_bitnet.py) and LlamaForCausalLM.
"""

import array

from cython.parallel cimport parallel, threadid
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from openmp cimport omp_get_num_threads

from pyx.attention cimport Workspace, attention_plan, share
from pyx.cpu cimport active
from pyx.head cimport MOST_WINNERS, Head
from pyx.kv cimport KVCache
from pyx.layer cimport layer, run_layer, step_plan
from pyx.memory cimport Arena
from pyx.policy cimport pages
from pyx.projection cimport matrix
from pyx.rotary cimport Rotary, angles_at
from pyx.scratch cimport place, scratch, scratch_widths, widths_of
from pyx.table cimport Table
from pyx.team cimport EMBED, HEAD, WAIT, lap, now_ns, stage_clock, team_barrier
from pyx.ternary cimport TernaryMatrix


#: what a thread does while a step runs, in the order of keep_times; attention and head contain barriers of their own
STAGES = (
    "embedding", "norms and rounding", "q, k, v", "rotation", "attention", "attention output", "gate, up",
    "down", "head", "waiting")


cdef void embed(step_plan *p, Table table, int tid, int n_thread) noexcept nogil:
    """Stage: embedding rows, and the rotation angles of every position (float64, then rounded)."""
    cdef int64_t t, half = p.rotary.half
    if p.n_token == 1:
        if tid == 0:
            angles_at(&p.rotary, p.pos0, p.w.cs, p.w.sn)
        if tid == n_thread - 1:
            table.read_row(p.ids[0], tid, p.w.h)
        return
    for t in range(share(p.n_token, 1, tid, n_thread), share(p.n_token, 1, tid + 1, n_thread)):
        table.read_row(p.ids[t], tid, p.w.h + t * p.hidden)
        angles_at(&p.rotary, p.pos0 + t, p.w.cs + t * half, p.w.sn + t * half)


cdef void run_step(step_plan *p, Table embedding, Head head, int tid, int n_thread) noexcept nogil:
    """The whole step, executed by every thread of the team."""
    cdef int64_t index, t
    cdef stage_clock *clock = NULL
    if p.clocks != NULL:
        clock = p.clocks + tid
        clock.last = now_ns()
    embed(p, embedding, tid, n_thread)
    lap(clock, EMBED)
    team_barrier(&p.team, n_thread)
    lap(clock, WAIT)
    for index in range(p.n_layer):
        run_layer(p, index, tid, n_thread)
    if p.logits == NULL:
        return
    t = 0 if p.all_logits else p.n_token - 1
    head.answer(
        p.kernel, p.n_token - t, p.w.h + t * p.hidden, p.output_norm, p.eps, p.w.x, p.top, tid, n_thread, p.logits)
    lap(clock, HEAD)


cdef class Transformer:
    """Weights of one model and its compiled step.

    config: an edge.config.ModelConfig.  layers: one mapping per layer, GGUF names without the prefix:
    attn_norm, ffn_norm, attn_sub_norm, ffn_sub_norm (float32 buffers, the sub-norms optional), attn_q, attn_k, attn_v,
    attn_output, ffn_gate, ffn_up, ffn_down (TernaryMatrix).  rope_freqs: float32 divisors [rope_dim / 2] or None.
    chunk: most tokens per step.  One call at a time; the GIL is released inside.

    Raises ValueError naming the tensor whose shape does not fit the configuration.
    """

    cdef readonly int64_t n_layer, hidden, ffn, n_head, n_kv_head, head_dim, n_vocab, chunk
    cdef readonly int n_threads
    cdef Table embedding
    cdef Head head
    cdef layer *layers
    cdef object owners          # everything the pointers in layers point into
    cdef Rotary rotary
    cdef Arena scratch_arena, q_sink, queries, times
    cdef Workspace workspace
    cdef const float *output_norm
    cdef step_plan plan

    def __cinit__(
        self, config, Table embedding not None, Head head not None, layers, output_norm, rope_freqs=None,
        int n_threads=1, int64_t chunk=128):
        if n_threads < 1 or n_threads > 1024 or chunk < 1 or chunk > 4096:
            raise ValueError(f"{n_threads} threads, chunks of {chunk} tokens are out of range")
        self.n_layer, self.hidden, self.ffn = config.n_layer, config.hidden, config.ffn
        self.n_head, self.n_kv_head, self.head_dim = config.n_head, config.n_kv_head, config.head_dim
        self.n_vocab, self.chunk, self.n_threads = head.n_row, chunk, n_threads
        self.embedding, self.head, self.owners = embedding, head, []
        if embedding.k != self.hidden or head.k != self.hidden:
            raise ValueError(f"embedding of width {embedding.k} in a model of width {self.hidden}")
        if len(layers) != self.n_layer:
            raise ValueError(f"{len(layers)} layers given, {self.n_layer} expected")
        self.layers = <layer *>calloc(self.n_layer, sizeof(layer))
        if self.layers == NULL:
            raise MemoryError()
        for index, given in enumerate(layers):
            self._take_layer(&self.layers[index], given, f"blk.{index}")
        self.output_norm = self._vector(output_norm, self.hidden, "output_norm")
        self.rotary, self.workspace = Rotary(config, rope_freqs), Workspace()
        self._prepare(config)

    def __dealloc__(self):
        free(self.layers)

    cdef const float *_vector(self, values, int64_t n, str name) except NULL:
        """Copy of a float32 buffer [n]."""
        cdef Arena arena = Arena(4 * n)
        if len(values) != n:
            raise ValueError(f"{name} holds {len(values)} numbers, not {n}")
        memoryview(arena).cast("f")[:n] = memoryview(array.array("f", values))
        self.owners.append(arena)
        return <const float *>arena.data

    cdef const matrix *_matrix(self, given, int64_t n_row, int64_t k, str name) except NULL:
        cdef TernaryMatrix w = given
        if w.m.n_row != n_row or w.m.k != k:
            raise ValueError(f"{name} is {w.m.n_row} x {w.m.k}, not {n_row} x {k}")
        self.owners.append(w)
        return &w.m

    cdef _take_layer(self, layer *w, given, str prefix):
        cdef int64_t q_dim = self.n_head * self.head_dim, kv_dim = self.n_kv_head * self.head_dim
        w.attn_norm = self._vector(given["attn_norm"], self.hidden, prefix + ".attn_norm")
        w.ffn_norm = self._vector(given["ffn_norm"], self.hidden, prefix + ".ffn_norm")
        if given.get("attn_sub_norm") is not None:
            w.attn_sub_norm = self._vector(given["attn_sub_norm"], q_dim, prefix + ".attn_sub_norm")
        if given.get("ffn_sub_norm") is not None:
            w.ffn_sub_norm = self._vector(given["ffn_sub_norm"], self.ffn, prefix + ".ffn_sub_norm")
        w.q = self._matrix(given["attn_q"], q_dim, self.hidden, prefix + ".attn_q")
        w.k = self._matrix(given["attn_k"], kv_dim, self.hidden, prefix + ".attn_k")
        w.v = self._matrix(given["attn_v"], kv_dim, self.hidden, prefix + ".attn_v")
        w.o = self._matrix(given["attn_output"], self.hidden, q_dim, prefix + ".attn_output")
        w.gate = self._matrix(given["ffn_gate"], self.ffn, self.hidden, prefix + ".ffn_gate")
        w.up = self._matrix(given["ffn_up"], self.ffn, self.hidden, prefix + ".ffn_up")
        w.down = self._matrix(given["ffn_down"], self.hidden, self.ffn, prefix + ".ffn_down")

    cdef _prepare(self, config):
        """Fill the plan with all that does not change from step to step, and allocate its scratch."""
        cdef step_plan *p = &self.plan
        cdef scratch unplaced
        cdef scratch_widths widths = widths_of(config, self.chunk, self.n_threads)
        p.layers, p.output_norm = self.layers, self.output_norm
        p.n_layer, p.hidden, p.ffn = self.n_layer, self.hidden, self.ffn
        p.n_head, p.n_kv_head, p.head_dim = self.n_head, self.n_kv_head, self.head_dim
        p.eps = config.eps
        p.silu = config.activation == "silu"
        p.a48 = config.activation_quant == "a4.8"
        p.rotary = self.rotary.r
        p.acc_ints = widths.acc_ints * self.n_threads
        self.scratch_arena = Arena(place(&unplaced, NULL, &widths, self.chunk, self.n_threads))
        place(&p.w, self.scratch_arena.data, &widths, self.chunk, self.n_threads)

    @property
    def scratch_bytes(self):
        """Bytes of working memory, without the decode partials that grow with the context."""
        return self.scratch_arena.nbytes + self.head.scratch

    @property
    def vector_bytes(self):
        """Bytes of the norms."""
        return sum((<Arena>w).nbytes for w in self.owners if isinstance(w, Arena))

    @property
    def matrices(self):
        """The projections (TernaryMatrix), in the order in which a step reads them."""
        return [w for w in self.owners if isinstance(w, TernaryMatrix)]

    @property
    def weight_bytes(self):
        """Bytes of projections read per token."""
        return sum(w.nbytes for w in self.owners if isinstance(w, TernaryMatrix))

    @property
    def weight_bytes_allocated(self):
        """Bytes of projections held beside the file's map."""
        return sum(w.nbytes - w.mapped * w.code_bytes for w in self.owners if isinstance(w, TernaryMatrix))

    @property
    def head_bytes(self):
        """Bytes of the output head read per token."""
        return self.head.nbytes

    @property
    def head_bytes_allocated(self):
        return self.head.allocated

    @property
    def head_kind(self):
        return self.head.kind

    def keep_queries(self):
        """Each step leaves here what its last token asked: float32 [n_layer][n_head][head_dim]."""
        self.queries = Arena(4 * self.n_layer * self.n_head * self.head_dim)
        self.plan.queries = <float *>self.queries.data
        return self.queries

    def keep_times(self):
        """Each step adds here what each thread did, nanoseconds: int64 [n_threads][16], the first ones by STAGES."""
        self.times = Arena(self.n_threads * sizeof(stage_clock))
        self.plan.clocks = <stage_clock *>self.times.data
        return self.times

    cdef _aim_attention(self, KVCache cache):
        """Point attention at a cache."""
        cdef step_plan *p = &self.plan
        cdef attention_plan *a = &p.attention
        cdef pages *kv = &cache.p
        cdef int64_t i
        self.workspace.aim(a, kv, self.n_head)
        if kv.restart and self.q_sink is None:
            self.q_sink = Arena(4 * self.chunk * self.n_head * self.head_dim)
            p.w.q_sink = <float *>self.q_sink.data
        if kv.restart and not cache.has_angles:
            for i in range(kv.n_layer * kv.n_kv_head):
                # the queries that sinks see stand behind the window of the head at hand
                angles_at(
                    &p.rotary, kv.streams[i].sinks + kv.streams[i].window - 1,
                    kv.sink_cos + i * (self.head_dim // 2), kv.sink_sin + i * (self.head_dim // 2))
            cache.has_angles = True
        a.kernel, a.n_token, a.pos0 = p.kernel, p.n_token, p.pos0
        a.q, a.q_sink, a.q8, a.qs, a.k, a.v = p.w.q, p.w.q_sink, p.w.q8, p.w.qs, p.w.k, p.w.v
        a.out, a.state, a.team = p.w.attn, p.w.state, &p.team

    def step(self, KVCache kv not None, ids, logits, bint all_logits=False, int64_t top=0):
        """Evaluate ids (int32 buffer, 1..chunk tokens) behind what kv holds and append their keys and values.

        logits: float32 buffer [n_vocab] for the last token, or [n][n_vocab] flat with all_logits, or None: nothing is
        computed past the last layer.  top > 0: only the largest top logits of a token are wanted, ties included; where
        the head knows a shorter way to them, the others are -inf.  Raises ValueError for an id out of range, a buffer
        that does not fit, a cache of another model, or a full context; the cache is untouched then.
        """
        cdef const int32_t[::1] tokens = ids
        cdef float[::1] out
        cdef int64_t n = tokens.shape[0], i
        cdef step_plan *p = &self.plan
        cdef int n_threads = self.n_threads
        cdef Table embedding = self.embedding
        cdef Head head = self.head
        if n < 1 or n > self.chunk:
            raise ValueError(f"{n} tokens in one step, which takes 1 to {self.chunk}")
        for i in range(n):
            if not 0 <= tokens[i] < self.embedding.n_row:
                raise ValueError(f"token {tokens[i]} is not one of the {self.embedding.n_row} of the vocabulary")
        if kv.p.n_layer != self.n_layer or kv.p.n_kv_head != self.n_kv_head or kv.p.head_dim != self.head_dim:
            raise ValueError("the KV cache belongs to a model of another shape")
        if n > kv.room:
            raise ValueError(f"the context of {kv.n_ctx} tokens is full")
        kv.prepare(n)
        p.logits = NULL
        if logits is not None:
            out = logits
            given = (n if all_logits else 1) * self.n_vocab
            if out.shape[0] != given:
                raise ValueError(f"{out.shape[0]} logits asked for, the step gives {given}")
            p.logits = &out[0]
            head.expect(n if all_logits else 1)
        p.kernel, p.kv, p.ids = active(), &kv.p, &tokens[0]
        p.n_token, p.pos0, p.all_logits, p.top = n, kv.n_tokens, all_logits, top if top <= MOST_WINNERS else 0
        self._aim_attention(kv)
        with nogil, parallel(num_threads=n_threads):
            run_step(p, embedding, head, threadid(), omp_get_num_threads())
        kv.advance(n)
