# rotary: rotary position embedding.
from libc.stdint cimport int64_t

from pyx.machine.cpu cimport kernels
from pyx.machine.memory cimport Arena

cdef struct rotation:
    int64_t half            # pairs rotated
    bint interleaved        # pairs (2j, 2j+1), else (j, j + half)
    const double *inv_freq  # [half] radians per position
    double mscale           # factor of cosines and sines: 1, or that of YaRN for a longer context

# Cosines and sines [half] of a position: angles in float64, then rounded.
cdef void angles_at(const rotation *r, int64_t position, float *cs, float *sn) noexcept nogil
# Rotate one head in place.
cdef void rotate_head(
    const kernels *kernel, const rotation *r, float *x, const float *cs, const float *sn) noexcept nogil

cdef class Rotary:
    cdef rotation r
    cdef Arena inv_freq
