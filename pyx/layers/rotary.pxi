"""rotary: rotary position embedding (RoPE, arXiv 2104.09864): a pair of dimensions turns by an angle per position."""

cdef struct rotation:
    int64_t half            # pairs rotated
    bint interleaved        # pairs (2j, 2j+1), else (j, j + half)
    const double *inv_freq  # [half] radians per position
    double mscale           # factor of cosines and sines: 1, or that of YaRN for a longer context


cdef void angles_at(const rotation *r, int64_t position, float *cs, float *sn) noexcept nogil:
    """Cosines and sines [half] of a position: angles in float64, then rounded."""
    cdef int64_t j
    cdef double angle
    for j in range(r.half):
        angle = <double>position * r.inv_freq[j]
        cs[j] = <float>(r.mscale * cos(angle))
        sn[j] = <float>(r.mscale * sin(angle))


cdef void rotate_head(
    const kernels *kernel, const rotation *r, float *x, const float *cs, const float *sn) noexcept nogil:
    """Rotate one head in place."""
    if r.interleaved:
        kernel.rope_interleaved(x, 2 * r.half, cs, sn)
    else:
        kernel.rope_half(x, 2 * r.half, cs, sn)


cdef class Rotary:
    """The rotation of attention layers. config: an edge.layers.Rotation. freqs: float32 divisors [dim / 2]; None: those
    of ``config.scaling``, if any.

    Raises ValueError for the wrong number of divisors, and for one that is 0 or not finite.
    """

    cdef rotation r
    cdef Arena inv_freq

    def __cinit__(self, config, freqs=None):
        cdef int64_t j
        cdef double theta = config.theta, scale = config.scale
        self.r.half, self.r.interleaved = config.dim // 2, config.style == "interleaved"
        self.r.mscale = 1.0
        if config.scaling is not None:
            self.r.mscale = config.scaling.mscale
            freqs = config.scaling.divisors(config.theta, config.dim) if freqs is None else freqs
        freqs = [1.0] * self.r.half if freqs is None else list(freqs)
        if len(freqs) != self.r.half:
            raise ValueError(f"rope_freqs holds {len(freqs)} numbers, not {self.r.half}")
        if not all(math.isfinite(value) and value != 0 for value in freqs):
            raise ValueError("rope_freqs holds a divisor that is 0 or not finite")
        self.inv_freq = Arena(8 * self.r.half)
        self.r.inv_freq = <const double *>self.inv_freq.data
        for j in range(self.r.half):
            (<double *>self.inv_freq.data)[j] = (
                pow(theta, -2.0 * j / config.dim) / freqs[j] / scale)

    def angles(self, int64_t position):
        """(cosines, sines) of a position, arrays of float32 [dim / 2], for tests and tools."""
        cdef float[::1] cs = array.array("f", bytes(4 * self.r.half)), sn = array.array("f", bytes(4 * self.r.half))
        angles_at(&self.r, position, &cs[0], &sn[0])
        return cs.base, sn.base
