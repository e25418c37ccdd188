"""page: the memory layout of 32 tokens of one KV head: element types, store, seal, score, attend.

A page is a block of keys and a block of values, each with its own element type (layouts in kernels.h).  A vector
arrives as floats in an open page and is quantised at most once, when the page is sealed.  Which pages exist, and which
queries attend to them, is decided by kv and attention.
"""

cdef extern from "kernels.h" nogil:
    enum:
        MAX_HEAD_DIM
    int64_t kv_group(int64_t head_dim)
    void seal_keys_i4(const uint16_t *, int64_t, void *)
    void seal_values_i4(const uint16_t *, int64_t, void *)
    void seal_channels_i4(const uint16_t *, int64_t, int values, void *)
    void seal_binary(const uint16_t *, int64_t, int values, void *)
    void unpack_binary(const void *, int64_t, int values, void *)
    void seal_fp8(const uint16_t *, int64_t, int values, void *)
    void unpack_fp8(const void *, int64_t, uint16_t *)
    void scale_fp8(const uint16_t *, int64_t, float *)
    void hadamard(float *, int64_t)

cdef dict TYPES = {
    "f32": F32, "f16": F16, "int8": INT8, "int4": INT4, "int4c": INT4C, "fp8": FP8, "binary": BINARY}
cdef dict NAME_OF = {kind: name for name, kind in TYPES.items()}
#: as users write them
KV_TYPES = tuple(TYPES)
#: what to know of those that are not for every day
KV_MARKS = {"fp8": "for comparison: int8 is as small, more exact and faster", "binary": "for experiments only"}
#: other spellings; the names of llama.cpp mean the same precision, the bytes are ours
ALIASES = {
    "fp16": "f16", "fp32": "f32", "i8": "int8", "q8": "int8", "q8_0": "int8", "i4": "int4", "q4": "int4",
    "q4_0": "int4", "q4c": "int4c", "fp8_e4m3": "fp8", "b1": "binary"}


def page_types(text):
    """The standard spelling of a KV type: "int8", or "int8:f16" if keys and values differ.

    Raises ValueError, one line that names the types.
    """
    cdef element_type k_type, v_type
    parse_types(text, &k_type, &v_type)
    return type_name(k_type, v_type)


cdef str type_name(element_type k_type, element_type v_type):
    """Two types -> their canonical text."""
    return NAME_OF[k_type] if k_type == v_type else f"{NAME_OF[k_type]}:{NAME_OF[v_type]}"


cdef int parse_types(text, element_type *k_type, element_type *v_type) except -1:
    """A text as in page_types() -> its two types.  Raises ValueError, one line that names the types there are."""
    parts = [ALIASES.get(part, part) for part in text.strip().lower().split(":")] if isinstance(text, str) else [""]
    if len(parts) > 2 or not all(part in TYPES for part in parts):
        raise ValueError(
            f"KV type {text!r} is not known; types are {', '.join(KV_TYPES)}, or KEYS:VALUES of them such as int8:f16")
    k_type[0] = <element_type><int>TYPES[parts[0]]
    v_type[0] = <element_type><int>TYPES[parts[len(parts) - 1]]
    return 0


cdef int64_t block_bytes(element_type kind, bint values, int64_t head_dim) noexcept nogil:
    """Bytes of one block, a multiple of 64: codes, then scales."""
    cdef int64_t n = KV_PAGE * head_dim, size
    if kind == F32:
        size = 4 * n
    elif kind == F16:
        size = 2 * n
    elif kind == INT8 or kind == FP8:
        size = n + 2 * KV_PAGE
    elif kind == INT4:
        size = n // 2 + head_dim // kv_group(head_dim) * (4 if values else 2) * KV_PAGE
    elif kind == BINARY:
        size = n // 8 + 2 * KV_PAGE
    else:
        size = n // 2 + 4 * head_dim
    return (size + 63) // 64 * 64


cdef void rotate_hadamard(float *x, int64_t head_dim) noexcept nogil:
    hadamard(x, head_dim)


cdef page_format format_of(element_type k_type, element_type v_type, int64_t head_dim) noexcept nogil:
    cdef page_format f
    f.k_type, f.v_type, f.head_dim = k_type, v_type, head_dim
    f.v_at = block_bytes(k_type, False, head_dim)
    f.bytes = f.v_at + block_bytes(v_type, True, head_dim)
    f.integer_k = k_type == INT8 or k_type == INT4 or k_type == BINARY
    return f


cdef element_type open_type(element_type of) noexcept nogil:
    """The type in which a vector of this type waits until its page is full: never quantised."""
    return F32 if of == F32 else F16


cdef bint is_quantised(const page_format *f) noexcept nogil:
    """Sealed pages differ from open ones."""
    return f.k_type != open_type(f.k_type) or f.v_type != open_type(f.v_type)


cdef int64_t page_scratch(int64_t head_dim, int64_t n_q) noexcept nogil:
    # probabilities, and one block unpacked, F16 at most
    return n_q * KV_PAGE + KV_PAGE * head_dim // 2


cdef void store_token(
    const kernels *kernel, const page_format *f, void *page, int64_t t, const float *k, const float *v) noexcept nogil:
    cdef int64_t d, D = f.head_dim
    cdef uint16_t half[MAX_HEAD_DIM]
    cdef void *values = <uint8_t *>page + f.v_at
    if f.k_type == F32:
        for d in range(D):
            (<float *>page)[d * KV_PAGE + t] = k[d]
    else:
        kernel.float_to_half(k, D, half)
        for d in range(D):
            (<uint16_t *>page)[d * KV_PAGE + t] = half[d]
    if f.v_type == F32:
        memcpy(<float *>values + t * D, v, D * sizeof(float))
    else:
        kernel.float_to_half(v, D, <uint16_t *>values + t * D)


cdef void seal_page(
    const kernels *kernel, const page_format *source, const void *page, const page_format *to,
    void *sealed) noexcept nogil:
    """Quantise a full page of open format, once."""
    memset(<uint8_t *>sealed + to.v_at - 64, 0, 64)  # what rounds a block up: the same bytes for the same tokens
    memset(<uint8_t *>sealed + to.bytes - 64, 0, 64)
    if to.k_type == source.k_type:
        memcpy(sealed, page, source.v_at)
    else:
        seal_block(kernel, to.k_type, <const uint16_t *>page, to.head_dim, False, sealed)
    if to.v_type == source.v_type:
        memcpy(<uint8_t *>sealed + to.v_at, <const uint8_t *>page + source.v_at, source.bytes - source.v_at)
    else:
        seal_block(
            kernel, to.v_type, <const uint16_t *>(<const uint8_t *>page + source.v_at), to.head_dim, True,
            <uint8_t *>sealed + to.v_at)


cdef void seal_block(
    const kernels *kernel, element_type to, const uint16_t *half, int64_t head_dim, bint values,
    void *sealed) noexcept nogil:
    """Quantise a block of keys, or of values."""
    if to == INT8:
        (kernel.seal_values_i8 if values else kernel.seal_keys_i8)(half, head_dim, sealed)
    elif to == INT4 and values:
        seal_values_i4(half, head_dim, sealed)
    elif to == INT4:
        seal_keys_i4(half, head_dim, sealed)
    elif to == FP8:
        seal_fp8(half, head_dim, values, sealed)
    elif to == BINARY:
        seal_binary(half, head_dim, values, sealed)
    else:
        seal_channels_i4(half, head_dim, values, sealed)


cdef void page_as_floats(
    const kernels *kernel, const page_format *f, const void *page, page_format *floats, float *out) noexcept nogil:
    cdef int64_t n = f.head_dim * KV_PAGE
    floats[0] = format_of(F32, F32, f.head_dim)
    kernel.half_to_float(<const uint16_t *>page, n, out)
    kernel.half_to_float(<const uint16_t *>(<const uint8_t *>page + f.v_at), n, out + n)


cdef inline const uint16_t *scales(const void *block, int64_t code_bytes) noexcept nogil:
    return <const uint16_t *>(<const uint8_t *>block + code_bytes)


cdef void score_page(
    const kernels *kernel, const page_format *f, const void *page, const void *next, int64_t n_q, const float *q,
    const int8_t *q8, const float *qs, float *s, float *scratch) noexcept nogil:
    cdef int64_t D = f.head_dim
    if f.k_type == INT8:
        kernel.score_i8(page, next, D, n_q, q8, qs, s)
    elif f.k_type == F16:
        kernel.score_f16(page, next, D, n_q, q, s)
    elif f.k_type == INT4:
        kernel.score_i4(page, next, D, n_q, q8, qs, s)
    elif f.k_type == INT4C:
        kernel.score_i4c(page, next, D, n_q, q, s)
    elif f.k_type == F32:
        kernel.score_f32(page, next, D, n_q, q, s)
    elif f.k_type == FP8:
        unpack_fp8(page, D, <uint16_t *>scratch)
        kernel.score_f16(scratch, scratch, D, n_q, q, s)
        scale_fp8(scales(page, KV_PAGE * D), n_q, s)
    else:
        unpack_binary(page, D, False, scratch)
        kernel.score_i8(scratch, scratch, D, n_q, q8, qs, s)


cdef void add_values(
    const kernels *kernel, const page_format *f, const void *page, const void *next, int64_t n_q, float *p, float *o,
    float *scratch) noexcept nogil:
    """o [n_q][head_dim] += the page's values times p [n_q][32], which is overwritten."""
    cdef const void *values = <const uint8_t *>page + f.v_at
    cdef const void *after = <const uint8_t *>next + f.v_at
    cdef int64_t D = f.head_dim
    if f.v_type == INT8:
        kernel.value_i8(values, after, D, n_q, p, o)
    elif f.v_type == F16:
        kernel.value_f16(values, after, D, n_q, p, o)
    elif f.v_type == INT4:
        kernel.value_i4(values, after, D, n_q, p, o)
    elif f.v_type == INT4C:
        kernel.value_i4c(values, after, D, n_q, p, o)
    elif f.v_type == F32:
        kernel.value_f32(values, after, D, n_q, p, o)
    elif f.v_type == FP8:
        unpack_fp8(values, D, <uint16_t *>scratch)
        scale_fp8(scales(values, KV_PAGE * D), n_q, p)
        kernel.value_f16(scratch, scratch, D, n_q, p, o)
    else:
        unpack_binary(values, D, True, scratch)
        kernel.value_i8(scratch, scratch, D, n_q, p, o)


cdef void attend_page(
    const kernels *kernel, const page_format *f, const void *page, const void *next, int64_t n_q, uint32_t valid,
    const float *q, const int8_t *q8, const float *qs, float *m, float *l, float *o, float *scratch) noexcept nogil:
    cdef float *unpacked = scratch + n_q * KV_PAGE
    score_page(kernel, f, page, next, n_q, q, q8, qs, scratch, unpacked)
    kernel.softmax_page(f.head_dim, n_q, valid, scratch, m, l, o)
    add_values(kernel, f, page, next, n_q, scratch, o, unpacked)
