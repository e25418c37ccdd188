/* avxvnni.c: x86-64 with AVX2, F16C and AVX-VNNI (Alder Lake 2021 and its small cores, the N100; Zen 5).
 *
 * As avx2.c, but vpdpbusd adds four products into int32. */
#if defined(__AVX2__) && defined(__F16C__) &&                                                                          \
    (defined(__AVXVNNI__) || (defined(__AVX512VL__) && defined(__AVX512VNNI__)))

#include "avx2.h"

#define NARROW_STEPS(n) ((n) << 10)

#if defined(__AVXVNNI__)
INLINE vb dot_narrow(vb sums, vb u, vb x) { return _mm256_dpbusd_avx_epi32(sums, u, x); }
INLINE vb dot16(vb sums, vb a, vb b) { return _mm256_dpwssd_avx_epi32(sums, a, b); }
#else /* the same instructions as AVX-512 encodes them: to test the target on processors that have only those */
INLINE vb dot_narrow(vb sums, vb u, vb x) { return _mm256_dpbusd_epi32(sums, u, x); }
INLINE vb dot16(vb sums, vb a, vb b) { return _mm256_dpwssd_epi32(sums, a, b); }
#endif
INLINE vb widen_by(vb sums, int factor) { return factor == 4 ? _mm256_slli_epi32(sums, 2) : sums; }
INLINE vb dot_abs(vb sums, vb a, vb b) { return dot_narrow(sums, _mm256_abs_epi8(a), _mm256_sign_epi8(b, a)); }

/* w + 128, as vpdpbusd wants unsigned bytes; byte_base makes up for it. */
#define BYTE_LEAST_VECTORS 5
INLINE vb byte_row(vb w) { return _mm256_xor_si256(w, bytes(0x80)); }
INLINE vb byte_dot(vb sums, vb w, vb x) { return dot_narrow(sums, w, x); }
INLINE int32_t byte_base(const int8_t *x, int64_t k) { return -128 * sum_i8(x, k); }

#include "maddubs.inc.h"

const struct kernels kernels_avxvnni = {.name = "avxvnni", MADDUBS_KERNELS};

#else
typedef int not_compiled_for_avxvnni; /* ISO C requires a declaration */
#endif
