/* avx2.c: x86-64 with AVX2 and F16C (Haswell 2013, Zen 2017, Alder Lake-N); avxvnni.c includes it for its own row.
 *
 * The workhorse is vpmaddubsw: unsigned bytes (the codes) times signed bytes (the activations), neighbouring products
 * added into int16 with saturation; or, with BITNET_EDGE_VNNI, vpdpbusd: four products added into int32. */
#if defined(__AVX2__) && defined(__F16C__)

#include "x86.h"

/* ---- what lanes.h and pages.h ask for ---------------------------------------------------------------------------- */

#define LANE_WIDTH 8
typedef float vf __attribute__((vector_size(4 * LANE_WIDTH)));

INLINE vf load_half(const uint16_t *p) { return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }

INLINE void store_half(uint16_t *p, vf v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

#define HALF_WIDTH LANE_WIDTH
#define HALF_VECTORS 2
#define load_half_h load_half
typedef vf vh;

#include "lanes.h"

/* ---- what maddubs.h asks for ------------------------------------------------------------------------------------- */

typedef __m256i vb;
#define MATVEC_ROWS 4
#define LOOKUP_TOKENS 16

INLINE vb load32(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE vb load_halves(const void *p, const void *q)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p)),
                                   _mm_loadu_si128((const __m128i *)q), 1);
}

INLINE vb zip_low32(vb a, vb b) { return _mm256_unpacklo_epi32(a, b); }
INLINE vb zip_high32(vb a, vb b) { return _mm256_unpackhi_epi32(a, b); }
INLINE vb zip_low64(vb a, vb b) { return _mm256_unpacklo_epi64(a, b); }
INLINE vb zip_high64(vb a, vb b) { return _mm256_unpackhi_epi64(a, b); }
INLINE vb bytes(int x) { return _mm256_set1_epi8((char)x); }
INLINE vb ints(int32_t x) { return _mm256_set1_epi32(x); }
INLINE vb and32(vb a, vb b) { return _mm256_and_si256(a, b); }
INLINE vb shift16(vb a, int n) { return _mm256_srli_epi16(a, n); }
INLINE vb add32(vb a, vb b) { return _mm256_add_epi32(a, b); }
INLINE vb widen16(const int8_t *p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)); }

INLINE vb add_wide(vb wide, vb sums)
{
    return _mm256_add_epi64(wide, _mm256_add_epi64(_mm256_cvtepi32_epi64(_mm256_castsi256_si128(sums)),
                                                   _mm256_cvtepi32_epi64(_mm256_extracti128_si256(sums, 1))));
}

INLINE __m128i fold(vb a) { return _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)); }

#ifdef BITNET_EDGE_VNNI

#define NARROW_STEPS(n) ((n) << 10)

#if defined(__AVXVNNI__)
INLINE vb dot_narrow(vb sums, vb u, vb x) { return _mm256_dpbusd_avx_epi32(sums, u, x); }
INLINE vb dot16(vb sums, vb a, vb b) { return _mm256_dpwssd_avx_epi32(sums, a, b); }
#else /* the same instructions as AVX-512 encodes them: to test the row on processors that have only those */
INLINE vb dot_narrow(vb sums, vb u, vb x) { return _mm256_dpbusd_epi32(sums, u, x); }
INLINE vb dot16(vb sums, vb a, vb b) { return _mm256_dpwssd_epi32(sums, a, b); }
#endif
INLINE vb widen_by(vb sums, int factor) { return factor == 4 ? _mm256_slli_epi32(sums, 2) : sums; }
INLINE vb dot_abs(vb sums, vb a, vb b) { return dot_narrow(sums, _mm256_abs_epi8(a), _mm256_sign_epi8(b, a)); }
INLINE vb dot_wide(vb sums, vb u, vb x) { return dot_narrow(sums, u, x); }

#else

#define NARROW_STEPS(n) (n)

INLINE vb dot16(vb sums, vb a, vb b) { return add32(sums, _mm256_madd_epi16(a, b)); }
INLINE vb dot_narrow(vb sums, vb u, vb x) { return _mm256_add_epi16(sums, _mm256_maddubs_epi16(u, x)); }
INLINE vb widen_by(vb sums, int factor) { return _mm256_madd_epi16(sums, _mm256_set1_epi16((short)factor)); }

/* |a| as unsigned times b with the sign of a: pairs are at most 2 * 127 * 127 = 32258, no saturation.  (a ^ 0x80 as
 * unsigned would reach 2 * 255 * 127 = 64770.) */
INLINE vb dot_abs(vb sums, vb a, vb b)
{
    return add32(sums, widen_by(_mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(b, a)), 1));
}

/* u8 x i8 pairs reach 2 * 255 * 127 = 64770 and would saturate in vpmaddubsw, so the even and the odd bytes of both
 * sides are widened to int16. */
INLINE vb dot_wide(vb sums, vb u, vb x)
{
    vb even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), odd = _mm256_srai_epi16(x, 8);
    return dot16(dot16(sums, even, and32(u, _mm256_set1_epi16(0xff))), odd, shift16(u, 8));
}

#endif

#include "maddubs.h"

#ifdef BITNET_EDGE_VNNI
const struct kernels kernels_avxvnni = {.name = "avxvnni", MADDUBS_KERNELS};
#else
const struct kernels kernels_avx2 = {.name = "avx2", MADDUBS_KERNELS};
#endif

#else
typedef int not_compiled_for_avx2; /* ISO C wants a declaration */
#endif
