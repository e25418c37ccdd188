"""transformer: one model, one step: tokens in, logits out.  The only caller of ternary, table, kv and attention.

One parallel region per step; inside it the stages of every layer follow each other with barriers between them, every
thread taking a fixed share of rows, tokens or KV heads.  No Python object is touched inside and the GIL is released.

    embedding row
    per layer: rmsnorm -> int8 (one scale per token) -> q, k, v in one pass -> rope
               -> per page of the chunk: append -> attention -> seal
               -> [sub-norm] -> int8 -> o -> residual
               -> rmsnorm -> int8 -> gate, up in one pass -> act(gate) * up -> [sub-norm] -> int8 -> down -> residual
    final norm -> output head
Forward pass as in transformers BitNetForCausalLM (modeling_bitnet.py) and LlamaForCausalLM.
"""

import array

from cython.parallel cimport parallel, threadid
from libc.math cimport sqrt
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from pyx.attention cimport Workspace, attend, attention_plan, share
from pyx.cpu cimport TERNARY_BLOCK, active, kernels
from pyx.head cimport Head
from pyx.kv cimport KVCache
from pyx.memory cimport Arena
from pyx.policy cimport pages
from pyx.projection cimport activations, matrix, project
from pyx.rotary cimport Rotary, angles_at, rotate_head, rotation
from pyx.scratch cimport place, scratch, scratch_widths, widths_of
from pyx.table cimport Table
from pyx.ternary cimport TernaryMatrix

cdef extern from "barrier.h" nogil:
    void team_barrier()

cdef extern from "kernels.h" nogil:
    float quantize_i4(const float *x, int64_t n, int8_t *q, int64_t n_pad, int32_t *sum)
    void keep_larger_half(int8_t *q, int64_t n, int32_t *sum)

# How the input of a projection becomes codes: 8 bits everywhere (b1.58), or by its place in the layer (a4.8).
cdef enum act_quant:
    INT8, INT4, INT8_HALF

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
    const layer *layers
    pages *kv
    scratch w
    const int32_t *ids
    int64_t n_token, pos0
    int64_t n_layer, hidden, ffn, n_head, n_kv_head, head_dim
    int64_t acc_ints
    float eps
    bint silu, a48
    attention_plan attention
    rotation rotary
    const float *output_norm
    float *logits
    bint all_logits
    float *queries  # [n_layer][n_head][head_dim], or NULL


cdef void quantise(
    step_plan *p, const float *x, const float *norm, int64_t n, act_quant kind, int64_t row) noexcept nogil:
    """[Norm and] quantise one token x [n] into row `row` of w.x8, rows n_block*128 apart; keeps the floats in w.x."""
    cdef int64_t pad = (n + TERNARY_BLOCK - 1) // TERNARY_BLOCK * TERNARY_BLOCK
    if norm != NULL:
        p.kernel.rmsnorm(x, norm, p.eps, n, p.w.x + row * n)
        x = p.w.x + row * n
    if kind == INT4:
        p.w.s[row] = quantize_i4(x, n, p.w.x8 + row * pad, pad, p.w.sum + row)
        return
    p.w.s[row] = p.kernel.quantize_i8(x, n, p.w.x8 + row * pad, pad, p.w.sum + row)
    if kind == INT8_HALF:
        keep_larger_half(p.w.x8 + row * pad, n, p.w.sum + row)


cdef activations quantised(
    step_plan *p, const float *x, const float *norm, int64_t n, act_quant kind, int tid, int n_thread) noexcept nogil:
    """Stage: x [n_token][n] as the input of projections.

    A single token is quantised by every thread for itself, in a row of its own: that takes no longer than one thread
    alone, and nobody has to wait.
    """
    cdef int64_t t, row = tid if p.n_token == 1 else 0, pad = (n + TERNARY_BLOCK - 1) // TERNARY_BLOCK * TERNARY_BLOCK
    cdef activations a
    if p.n_token == 1:
        quantise(p, x, norm, n, kind, row)
    else:
        for t in range(share(p.n_token, 1, tid, n_thread), share(p.n_token, 1, tid + 1, n_thread)):
            quantise(p, x + t * n, norm, n, kind, t)
        team_barrier()
    a.n_token = p.n_token
    a.x8 = p.w.x8 + row * pad
    a.ld_x8 = pad
    a.s = p.w.s + row
    a.sum = p.w.sum + row
    a.x = x if norm == NULL else p.w.x + row * n
    a.ld_x = n
    return a


cdef void rows_of(
    step_plan *p, const matrix *w, const activations *a, int64_t start, int64_t stop, bint accumulate,
    int32_t *acc, float *out) noexcept nogil:
    """Rows [start, stop), clamped to the matrix; so fused matrices are cut from one range of rows."""
    start = max(start, <int64_t>0)
    stop = min(stop, w.n_row)
    if start < stop:
        project(p.kernel, w, a, start, stop, accumulate, acc, out, w.n_row)


cdef void embed(step_plan *p, Table table, int tid, int n_thread) noexcept nogil:
    """Stage: embedding rows, and the rotation angles of every position (float64, then rounded)."""
    cdef int64_t t, half = p.rotary.half
    for t in range(share(p.n_token, 1, tid, n_thread), share(p.n_token, 1, tid + 1, n_thread)):
        table.read_row(p.ids[t], tid, p.w.h + t * p.hidden)
        angles_at(&p.rotary, p.pos0 + t, p.w.cs + t * half, p.w.sn + t * half)


cdef void rotate(step_plan *p, int64_t index, int tid, int n_thread) noexcept nogil:
    """Stage: rotary embedding of q and k, the factor 1/sqrt(head_dim), int8 queries, the queries of the sinks; by token
    and KV head."""
    cdef int64_t item, t, head, h, D = p.head_dim, H = p.n_kv_head, group = p.n_head // H, half = p.rotary.half
    cdef float *x
    cdef float *sinks
    cdef const float *cs
    cdef const float *sn
    for item in range(share(p.n_token * H, 1, tid, n_thread), share(p.n_token * H, 1, tid + 1, n_thread)):
        t, head = item // H, item % H
        cs, sn = p.w.cs + t * half, p.w.sn + t * half
        rotate_head(p.kernel, &p.rotary, p.w.k + item * D, cs, sn)
        for h in range(t * p.n_head + head * group, t * p.n_head + (head + 1) * group):
            x = p.w.q + h * D
            if p.kv.restart:  # the query stands right behind the window, wherever the text has got to
                sinks = p.w.q_sink + h * D
                memcpy(sinks, x, D * sizeof(float))
                rotate_head(
                    p.kernel, &p.rotary, sinks, p.kv.sink_cos + (index * H + head) * (D // 2),
                    p.kv.sink_sin + (index * H + head) * (D // 2))
                scale_head(p, sinks)
            rotate_head(p.kernel, &p.rotary, x, cs, sn)
            scale_head(p, x)
            if p.kv.sealed.integer_k:
                p.w.qs[h] = p.kernel.quantize_q(x, D, p.w.q8 + h * D)
            if p.queries != NULL and t == p.n_token - 1:
                memcpy(p.queries + ((index - t) * p.n_head + h) * D, x, D * sizeof(float))


cdef inline void scale_head(step_plan *p, float *x) noexcept nogil:
    cdef float factor = <float>(1.0 / sqrt(<double>p.head_dim))
    cdef int64_t i
    for i in range(p.head_dim):
        x[i] *= factor


cdef void run_layer(step_plan *p, int64_t index, int tid, int n_thread) noexcept nogil:
    cdef const layer *w = &p.layers[index]
    cdef int32_t *acc = p.w.acc + tid * p.acc_ints
    cdef int64_t q_dim = p.n_head * p.head_dim, kv_dim = p.n_kv_head * p.head_dim
    cdef int64_t start, stop, t
    cdef activations a

    a = quantised(p, p.w.h, w.attn_norm, p.hidden, INT4 if p.a48 else INT8, tid, n_thread)
    start = share(q_dim + 2 * kv_dim, FLOAT_LINE, tid, n_thread)
    stop = share(q_dim + 2 * kv_dim, FLOAT_LINE, tid + 1, n_thread)
    rows_of(p, w.q, &a, start, stop, False, acc, p.w.q)
    rows_of(p, w.k, &a, start - q_dim, stop - q_dim, False, acc, p.w.k)
    rows_of(p, w.v, &a, start - q_dim - kv_dim, stop - q_dim - kv_dim, False, acc, p.w.v)
    team_barrier()
    rotate(p, index, tid, n_thread)
    if p.n_token > 1:  # a single token's keys are appended by the thread that has rotated them
        team_barrier()
    attend(&p.attention, index, tid, n_thread)

    a = quantised(p, p.w.attn, w.attn_sub_norm, q_dim, INT8_HALF if p.a48 else INT8, tid, n_thread)
    rows_of(
        p, w.o, &a, share(p.hidden, FLOAT_LINE, tid, n_thread), share(p.hidden, FLOAT_LINE, tid + 1, n_thread),
        True, acc, p.w.h)
    team_barrier()

    a = quantised(p, p.w.h, w.ffn_norm, p.hidden, INT4 if p.a48 else INT8, tid, n_thread)
    start = share(p.ffn, FLOAT_LINE, tid, n_thread)
    stop = share(p.ffn, FLOAT_LINE, tid + 1, n_thread)
    rows_of(p, w.gate, &a, start, stop, False, acc, p.w.gate)
    rows_of(p, w.up, &a, start, stop, False, acc, p.w.up)
    # the same rows of both, so no barrier in between
    for t in range(p.n_token):
        if p.silu:
            p.kernel.gate_silu(
                p.w.gate + t * p.ffn + start, p.w.up + t * p.ffn + start, stop - start, p.w.gate + t * p.ffn + start)
        else:
            p.kernel.gate_relu2(
                p.w.gate + t * p.ffn + start, p.w.up + t * p.ffn + start, stop - start, p.w.gate + t * p.ffn + start)
    team_barrier()

    a = quantised(p, p.w.gate, w.ffn_sub_norm, p.ffn, INT8, tid, n_thread)
    rows_of(
        p, w.down, &a, share(p.hidden, FLOAT_LINE, tid, n_thread), share(p.hidden, FLOAT_LINE, tid + 1, n_thread),
        True, acc, p.w.h)
    team_barrier()


cdef void run_step(step_plan *p, Table embedding, Head head, int tid, int n_thread) noexcept nogil:
    """The whole step, executed by every thread of the team."""
    cdef int64_t index, t, n_vocab = head.n_row
    cdef float *x = p.w.x + tid * p.hidden
    cdef int16_t *x16 = p.w.x16 + tid * p.hidden
    cdef float s
    embed(p, embedding, tid, n_thread)
    team_barrier()
    for index in range(p.n_layer):
        run_layer(p, index, tid, n_thread)
    if p.logits == NULL:
        return
    for t in range(0 if p.all_logits else p.n_token - 1, p.n_token):
        # by every thread for itself, as in quantised()
        p.kernel.rmsnorm(p.w.h + t * p.hidden, p.output_norm, p.eps, p.hidden, x)
        s = p.kernel.quantize_i16(x, p.hidden, x16)
        head.logits(
            p.kernel, share(n_vocab, FLOAT_LINE, tid, n_thread), share(n_vocab, FLOAT_LINE, tid + 1, n_thread),
            x, x16, s, p.logits + (t * n_vocab if p.all_logits else 0))


cdef enum:
    FLOAT_LINE = 16     # floats per cache line: threads never write the same line


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
    cdef Arena scratch_arena, q_sink, queries
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
        cdef scratch_widths widths = widths_of(config, self.chunk)
        p.layers, p.output_norm = self.layers, self.output_norm
        p.n_layer, p.hidden, p.ffn = self.n_layer, self.hidden, self.ffn
        p.n_head, p.n_kv_head, p.head_dim = self.n_head, self.n_kv_head, self.head_dim
        p.eps = config.eps
        p.silu = config.activation == "silu"
        p.a48 = config.activation_quant == "a4.8"
        p.rotary = self.rotary.r
        p.acc_ints = widths.acc_ints
        self.scratch_arena = Arena(place(&unplaced, NULL, &widths, self.chunk, self.n_threads))
        place(&p.w, self.scratch_arena.data, &widths, self.chunk, self.n_threads)

    @property
    def scratch_bytes(self):
        """Bytes of working memory, without the decode partials that grow with the context."""
        return self.scratch_arena.nbytes

    @property
    def vector_bytes(self):
        """Bytes of the norms."""
        return sum((<Arena>w).nbytes for w in self.owners if isinstance(w, Arena))

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
        a.out, a.state = p.w.attn, p.w.state

    def step(self, KVCache kv not None, ids, logits, bint all_logits=False):
        """Evaluate ids (int32 buffer, 1..chunk tokens) behind what kv holds and append their keys and values.

        logits: float32 buffer [n_vocab] for the last token, or [n][n_vocab] flat with all_logits, or None: nothing is
        computed past the last layer.  Raises ValueError for an id out of range, a buffer that does not fit, a cache
        of another model, or a full context; the cache is untouched then.
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
        p.kernel, p.kv, p.ids = active(), &kv.p, &tokens[0]
        p.n_token, p.pos0, p.all_logits = n, kv.n_tokens, all_logits
        self._aim_attention(kv)
        with nogil, parallel(num_threads=n_threads):
            run_step(p, embedding, head, threadid(), n_threads)
        kv.advance(n)
