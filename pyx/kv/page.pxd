# page: the memory layout of 32 tokens of one KV head, and the steps of attention over them.
from libc.stdint cimport int8_t, int64_t, uint32_t

from pyx.machine.cpu cimport kernels

# Layouts in kernels.h.
cdef enum element_type:
    F32
    F16
    INT8
    INT4        # a scale per token and group
    INT4C       # a scale per channel of the page
    FP8
    BINARY

# How the pages of one kind hold 32 tokens of one KV head: a block of keys, then a block of values.
cdef struct page_format:
    element_type k_type
    element_type v_type
    int64_t head_dim
    int64_t v_at        # the values' block; a multiple of 64
    int64_t bytes       # of the page; a multiple of 64
    bint integer_k      # keys are scored with int8 queries

# Raises ValueError for a head_dim that is not a multiple of 4 or is out of range.
cdef int page_format_init(
    page_format *f, element_type k_type, element_type v_type, int64_t head_dim) except -1
# A text as in page_types() -> its two types.  Raises ValueError, one line that names the types there are.
cdef int parse_types(text, element_type *k_type, element_type *v_type) except -1
# Two types -> their canonical text.
cdef str type_name(element_type k_type, element_type v_type)
# The type in which a vector of this type waits until its page is full: never quantised.
cdef element_type open_type(element_type of) noexcept nogil
# The format of open pages and sink pages in front of pages of this format.
cdef void open_format(page_format *f, const page_format *of) noexcept nogil
# Sealed pages differ from open ones.
cdef bint is_quantised(const page_format *f) noexcept nogil
# Floats of working memory that attend_page and score_page need for n_q queries, whatever the format.
cdef int64_t page_scratch(int64_t head_dim, int64_t n_q) noexcept nogil

# A page of F16 keys and values as one of F32, out [2 * KV_PAGE * head_dim], and its format.
cdef void page_as_floats(
    const kernels *kernel, const page_format *f, const void *page, page_format *floats, float *out) noexcept nogil

# Store k, v [head_dim] as token t of a page of open format.
cdef void store_token(
    const kernels *kernel, const page_format *f, void *page, int64_t t, const float *k, const float *v) noexcept nogil
# Quantise a full page of open format, once.
cdef void seal_page(
    const kernels *kernel, const page_format *source, const void *page, const page_format *to,
    void *sealed) noexcept nogil
# s [n_q][32] = scores of queries q [n_q][head_dim] (q8, qs: the same as int8, needed if integer_k).
# next: the page that will be read after this one, to be fetched meanwhile; this page itself if there is none.
cdef void score_page(
    const kernels *kernel, const page_format *f, const void *page, const void *next, int64_t n_q, const float *q,
    const int8_t *q8, const float *qs, float *s, float *scratch) noexcept nogil
# One step of online softmax: the tokens of `valid` (not 0) join m, l [n_q] and o [n_q][head_dim].
cdef void attend_page(
    const kernels *kernel, const page_format *f, const void *page, const void *next, int64_t n_q, uint32_t valid,
    const float *q, const int8_t *q8, const float *qs, float *m, float *l, float *o, float *scratch) noexcept nogil
# The Hadamard rotation of kernels.h, in place: of every key and query, if the cache uses it.
cdef void rotate_hadamard(float *x, int64_t head_dim) noexcept nogil
