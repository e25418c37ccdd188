# machine: the kernels in use, memory, threads.  Every other module reaches the kernels through active().
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t

cdef extern from "kernels.h" nogil:
    enum:
        TERNARY_BLOCK
        TERNARY_BLOCK_BYTES
        KV_PAGE
        BIT_BLOCK
        MANY_ROWS
        FEW_ROWS
        GROUP
        GROUP_WHOLE
        GROUP_PAIR
        GROUP_WORK
        PANEL_ROWS
        MOST_PLANES
        CONV_TAPS
        DELTA_CHUNK
        DELTA_STRIP
        MAX_DELTA_DIM
        LEAST_BASIS

    int64_t MATMUL_WORK(int64_t n_row)
    int64_t PANEL_BYTES(int64_t group)
    int place_in_group(int group, int e)

    struct kernels_choices:
        int rows
        int fetch
        int64_t ahead

    struct kernels:
        const char *name
        kernels_choices own
        int64_t many_tokens
        int64_t byte_vectors
        void (*ternary_matvec)(const uint8_t *, int64_t, int64_t, const int8_t *, int32_t *) noexcept nogil
        void (*ternary_matmul)(
            const uint8_t *, int64_t, int64_t, const int8_t *, int64_t, int32_t *, int64_t, void *) noexcept nogil
        void (*quantize_groups)(const float *, int64_t, int, int8_t *, float *, int32_t *) noexcept nogil
        void (*group_matmul)(
            const uint8_t *, int, int64_t, int64_t, const int8_t *, const float *, const int32_t *, int64_t, int,
            float *, int64_t, void *) noexcept nogil
        void (*panel_matmul)(
            const uint8_t *, int64_t, int64_t, int64_t, int, int, const int8_t *, const float *, const int32_t *,
            int64_t, int, float *, int64_t) noexcept nogil
        float (*quantize_i8)(const float *, int64_t, int8_t *, int64_t, int32_t *) noexcept nogil
        void (*rmsnorm)(const float *, const float *, float, int64_t, float *) noexcept nogil
        void (*gate_relu2)(const float *, const float *, int64_t, float *) noexcept nogil
        void (*gate_silu)(const float *, const float *, int64_t, float *) noexcept nogil
        void (*gate_gelu)(const float *, const float *, int64_t, float *) noexcept nogil
        void (*gate_sigmoid)(const float *, const float *, int64_t, float *) noexcept nogil
        void (*rope_half)(float *, int64_t, const float *, const float *) noexcept nogil
        void (*rope_interleaved)(float *, int64_t, const float *, const float *) noexcept nogil
        void (*scale_sums)(
            const int32_t *, int64_t, int32_t, float, const float *, int64_t, int, float *) noexcept nogil
        void (*change_basis)(const float *, const float *, const float *, int64_t, int64_t, float *) noexcept nogil
        void (*conv_silu)(const float *const *, const float *, int64_t, float *) noexcept nogil
        void (*delta_chunk)(
            const float *, int64_t, int64_t, int64_t, int64_t, const float *, const double *, const float *, int64_t,
            const float *, int64_t, const float *, int64_t, float *, float *, int64_t) noexcept nogil
        void (*delta_seal)(
            const float *, int64_t, int64_t, const float *, const double *, const float *, float *) noexcept nogil
        float (*quantize_i16)(const float *, int64_t, int16_t *) noexcept nogil
        void (*head_i8)(
            const int8_t *, const float *, int64_t, int64_t, const int16_t *, int64_t, const float *,
            float *const *) noexcept nogil
        void (*head_q8_0)(
            const uint8_t *, int64_t, int64_t, const int16_t *, int64_t, const float *, float *const *) noexcept nogil
        void (*head_f16)(const uint16_t *, int64_t, int64_t, const float *, float *) noexcept nogil
        void (*head_f32)(const float *, int64_t, int64_t, const float *, float *) noexcept nogil
        void (*quantize_row_i8)(const float *, int64_t, int8_t *, float *) noexcept nogil
        void (*nibble_dots)(
            const uint8_t *, int64_t, int64_t, const int8_t *, int64_t, int32_t *, int64_t) noexcept nogil
        void (*bit_dots)(
            const uint8_t *, const int32_t *, int64_t, int64_t, const int8_t *, int64_t, int32_t *,
            int64_t) noexcept nogil
        void (*byte_dots)(const int8_t *, int64_t, int64_t, const int8_t *, int64_t, int32_t *const *) noexcept nogil
        void (*half_to_float)(const uint16_t *, int64_t, float *) noexcept nogil
        void (*float_to_half)(const float *, int64_t, uint16_t *) noexcept nogil
        void (*score_f16)(const void *, const void *, int64_t, int64_t, const float *, float *) noexcept nogil
        void (*score_f32)(const void *, const void *, int64_t, int64_t, const float *, float *) noexcept nogil
        void (*score_i8)(
            const void *, const void *, int64_t, int64_t, const int8_t *, const float *, float *) noexcept nogil
        void (*score_i4)(
            const void *, const void *, int64_t, int64_t, const int8_t *, const float *, float *) noexcept nogil
        void (*score_i4c)(const void *, const void *, int64_t, int64_t, const float *, float *) noexcept nogil
        void (*softmax_page)(int64_t, int64_t, uint32_t, float *, float *, float *, float *) noexcept nogil
        void (*value_f16)(const void *, const void *, int64_t, int64_t, const float *, float *) noexcept nogil
        void (*value_f32)(const void *, const void *, int64_t, int64_t, const float *, float *) noexcept nogil
        void (*value_i8)(const void *, const void *, int64_t, int64_t, const float *, float *) noexcept nogil
        void (*value_i4)(const void *, const void *, int64_t, int64_t, const float *, float *) noexcept nogil
        void (*value_i4c)(const void *, const void *, int64_t, int64_t, const float *, float *) noexcept nogil
        void (*seal_keys_i8)(const uint16_t *, int64_t, void *) noexcept nogil
        void (*seal_values_i8)(const uint16_t *, int64_t, void *) noexcept nogil
        float (*quantize_q)(const float *, int64_t, int8_t *) noexcept nogil

cdef const kernels *active() except NULL

# the only owner of bytes.
cdef class Arena:
    cdef unsigned char *data   # [nbytes], 64-byte aligned, zeroed
    cdef readonly size_t nbytes
    cdef size_t mapped         # bytes of its mapping; 0: it is from the heap
    cdef Py_ssize_t shape[1]
    cdef Py_ssize_t strides[1]

# The number of threads, at most n, for the next parallel region of the calling thread, which must take as many.
cdef int claim(int n) noexcept

cdef extern from "clock.h" nogil:
    # nanoseconds of a clock that only increases
    int64_t now_ns()
    # nanoseconds that the calling thread has had a core
    int64_t core_ns()
