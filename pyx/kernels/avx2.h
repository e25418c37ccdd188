/* avx2.h: what avx2.c and avxvnni.c share: vectors of 32 bytes.  They differ in their dot products. */
#ifndef BITNET_EDGE_AVX2_H
#define BITNET_EDGE_AVX2_H

#include "x86.h"

/* ---- needed by lanes.inc.h and attention.inc.h ------------------------------------------------------------------- */

#define LANE_WIDTH 8
typedef float vf __attribute__((vector_size(4 * LANE_WIDTH)));

INLINE vf load_half(const uint16_t *p) { return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }

INLINE void store_half(uint16_t *p, vf v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

#define LARGER(a, b) _mm256_max_ps((__m256)(a), (__m256)(b))

INLINE __m256i round_pair(vf a, vf b)
{
    return _mm256_packs_epi32(_mm256_cvtps_epi32((__m256)a), _mm256_cvtps_epi32((__m256)b));
}

INLINE void round_bytes(const vf x[4], uint8_t *u)
{
    __m256i packed = _mm256_packus_epi16(round_pair(x[0], x[1]), round_pair(x[2], x[3]));
    packed = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)); /* packs work in halves */
    _mm256_storeu_si256((__m256i *)u, packed);
}

#define HALF_WIDTH LANE_WIDTH
#define HALF_VECTORS 2
#define load_half_h load_half
typedef vf vh;

#include "lanes.inc.h"

/* ---- needed by delta.inc.h: with VECTORS vectors each, as many sums as registers hold ---------------------------- */

#define DELTA_TILE 4
#include "delta.inc.h"

/* ---- needed by maddubs.inc.h ------------------------------------------------------------------------------------- */

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
INLINE void put_sums(vi *at, vb sums) { at[0] = (vi)sums; }
INLINE vb shift16(vb a, int n) { return _mm256_srli_epi16(a, n); }
INLINE vb add32(vb a, vb b) { return _mm256_add_epi32(a, b); }
INLINE vb keep(vb a)
{
    __asm__("" : "+x"(a));
    return a;
}
INLINE vb quarter32(vb a) { return _mm256_srai_epi32(a, 2); }
INLINE vb widen16(const int8_t *p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)); }

INLINE vb add_wide(vb wide, vb sums)
{
    return _mm256_add_epi64(wide, _mm256_add_epi64(_mm256_cvtepi32_epi64(_mm256_castsi256_si128(sums)),
                                                   _mm256_cvtepi32_epi64(_mm256_extracti128_si256(sums, 1))));
}

INLINE __m128i fold(vb a) { return _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)); }

#endif
