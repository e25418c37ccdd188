/* sse41.c: x86-64 with SSE4.1 (Core 2 of 2008, Bulldozer 2011, Atoms since Silvermont 2013).
 *
 * The loops are those of AVX2 over pairs of 16 bytes; conversions of halves are integer arithmetic. */
#if defined(__SSE4_1__)

#include "x86.h"

/* ---- needed by lanes.inc.h and attention.inc.h ------------------------------------------------------------------- */

#define LANE_WIDTH 4
typedef float vf __attribute__((vector_size(4 * LANE_WIDTH)));

/* half_float of every lane. */
INLINE vf load_half(const uint16_t *p)
{
    typedef int32_t lanes __attribute__((vector_size(16)));
    lanes h = (lanes)_mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)p)), em = h & 0x7fff;
    lanes normal = (em << 13) + (112 << 23);
    lanes special = (em << 13) | 0x7f800000 | ((em > 0x7c00) & 0x00400000);
    lanes small = (lanes)(__builtin_convertvector(em, vf) * 0x1p-24f);
    lanes is_small = em < 0x0400, is_special = em >= 0x7c00;
    lanes u = (small & is_small) | (special & is_special) | (normal & ~(is_small | is_special));
    return (vf)(u | (h & 0x8000) << 16);
}

INLINE void store_half(uint16_t *p, vf v)
{
    for (int i = 0; i < LANE_WIDTH; i++)
        p[i] = float_half(v[i]);
}

#define LARGER(a, b) _mm_max_ps((__m128)(a), (__m128)(b))

INLINE void round_bytes(const vf x[8], uint8_t *u)
{
    for (int i = 0; i < 8; i += 4) {
        __m128i a = _mm_packs_epi32(_mm_cvtps_epi32((__m128)x[i]), _mm_cvtps_epi32((__m128)x[i + 1]));
        __m128i b = _mm_packs_epi32(_mm_cvtps_epi32((__m128)x[i + 2]), _mm_cvtps_epi32((__m128)x[i + 3]));
        _mm_storeu_si128((__m128i *)(u + 4 * i), _mm_packus_epi16(a, b));
    }
}

#define HALF_WIDTH LANE_WIDTH
#define HALF_VECTORS 2
#define load_half_h load_half
typedef vf vh;

#include "lanes.inc.h"

/* ---- needed by delta.inc.h: with VECTORS vectors each, as many sums as registers hold ---------------------------- */

#define DELTA_TILE 2
#include "delta.inc.h"

/* ---- needed by panels.h ------------------------------------------------------------------------------------------ */

INLINE __m128i five_ninths(__m128i c)
{
    const __m128i even = _mm_set1_epi16(0xff), odd = _mm_set1_epi16((short)0xff00), k = _mm_set1_epi16(7282);
    __m128i high = _mm_and_si128(_mm_mulhi_epu16(_mm_and_si128(c, odd), k), odd);
    return _mm_or_si128(_mm_mulhi_epu16(_mm_and_si128(c, even), k), high);
}

/* Where bit 7 of a place is set, a shuffle gives 0. */
INLINE __m128i five_look2(__m128i t0, __m128i t1, __m128i i)
{
    __m128i first = _mm_shuffle_epi8(t0, _mm_add_epi8(i, _mm_set1_epi8(0x70)));
    return _mm_or_si128(first, _mm_shuffle_epi8(t1, _mm_sub_epi8(i, _mm_set1_epi8(0x10))));
}

#define FIVE_NINTHS(c) five_ninths((__m128i)(c))
#define FIVE_LOOK(table, i) _mm_shuffle_epi8((__m128i)(table), (__m128i)(i))
#define FIVE_LOOK2(t0, t1, i) five_look2((__m128i)(t0), (__m128i)(t1), (__m128i)(i))

/* ---- needed by maddubs.inc.h ------------------------------------------------------------------------------------- */

typedef struct {
    __m128i lo, hi;
} vb;

#define MATVEC_ROWS 2
#define LOOKUP_TOKENS 8
#define NARROW_STEPS(n) (n)
#define BOTH(op, a, ...) ((vb){op((a).lo, __VA_ARGS__), op((a).hi, __VA_ARGS__)})
#define PAIRS(op, a, b) ((vb){op((a).lo, (b).lo), op((a).hi, (b).hi)})

INLINE __m128i load16(const void *p) { return _mm_loadu_si128((const __m128i *)p); }
INLINE vb twice(__m128i a) { return (vb){a, a}; }
INLINE vb load32(const void *p) { return (vb){load16(p), load16((const char *)p + 16)}; }
INLINE vb load_halves(const void *p, const void *q) { return (vb){load16(p), load16(q)}; }
INLINE vb zip_low32(vb a, vb b) { return PAIRS(_mm_unpacklo_epi32, a, b); }
INLINE vb zip_high32(vb a, vb b) { return PAIRS(_mm_unpackhi_epi32, a, b); }
INLINE vb zip_low64(vb a, vb b) { return PAIRS(_mm_unpacklo_epi64, a, b); }
INLINE vb zip_high64(vb a, vb b) { return PAIRS(_mm_unpackhi_epi64, a, b); }
INLINE vb bytes(int x) { return twice(_mm_set1_epi8((char)x)); }
INLINE vb ints(int32_t x) { return twice(_mm_set1_epi32(x)); }
INLINE vb and32(vb a, vb b) { return PAIRS(_mm_and_si128, a, b); }
INLINE void put_sums(vi *at, vb sums) { at[0] = (vi)sums.lo, at[1] = (vi)sums.hi; }
INLINE vb shift16(vb a, int n) { return BOTH(_mm_srli_epi16, a, n); }
INLINE vb add32(vb a, vb b) { return PAIRS(_mm_add_epi32, a, b); }
INLINE vb keep(vb a)
{
    __asm__("" : "+x"(a.lo), "+x"(a.hi));
    return a;
}
INLINE vb quarter32(vb a) { return BOTH(_mm_srai_epi32, a, 2); }

INLINE vb widen16(const int8_t *p)
{
    __m128i v = load16(p);
    return (vb){_mm_cvtepi8_epi16(v), _mm_cvtepi8_epi16(_mm_srli_si128(v, 8))};
}

INLINE __m128i add_int64(__m128i wide, __m128i a)
{
    wide = _mm_add_epi64(wide, _mm_cvtepi32_epi64(a));
    return _mm_add_epi64(wide, _mm_cvtepi32_epi64(_mm_srli_si128(a, 8)));
}

INLINE vb add_wide(vb wide, vb sums) { return PAIRS(add_int64, wide, sums); }
INLINE __m128i fold(vb a) { return _mm_add_epi32(a.lo, a.hi); }

INLINE vb dot16(vb sums, vb a, vb b) { return add32(sums, PAIRS(_mm_madd_epi16, a, b)); }
INLINE vb widen_by(vb sums, int factor) { return BOTH(_mm_madd_epi16, sums, _mm_set1_epi16((short)factor)); }

INLINE vb dot_narrow(vb sums, vb u, vb x)
{
    vb products = PAIRS(_mm_maddubs_epi16, u, x);
    return PAIRS(_mm_add_epi16, sums, products);
}

/* As in avx2.c. */
INLINE vb dot_abs(vb sums, vb a, vb b)
{
    vb magnitude = {_mm_abs_epi8(a.lo), _mm_abs_epi8(a.hi)}, with_sign = PAIRS(_mm_sign_epi8, b, a);
    return add32(sums, widen_by(PAIRS(_mm_maddubs_epi16, magnitude, with_sign), 1));
}

#include "maddubs.inc.h"

const struct kernels kernels_sse41 = {.name = "sse41", MADDUBS_KERNELS};

#else
typedef int not_compiled_for_sse41; /* ISO C requires a declaration */
#endif
