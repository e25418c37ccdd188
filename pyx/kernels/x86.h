/* x86.h: what the x86-64 targets share.  Everything is static: see numbers.h. */
#ifndef BITNET_EDGE_X86_H
#define BITNET_EDGE_X86_H

#include "template.h"

#include <immintrin.h>

/* Models with shorter rows stay in the caches: there, prefetching every line several times takes longer than the
 * products (1.6 times as long for a head of 256 elements a row). */
INLINE int is_stream(int64_t k) { return k > 1024; }

#define LARGER4(a, b) _mm_max_ps((__m128)(a), (__m128)(b))

/* ---- KV pages ---------------------------------------------------------------------------------------------------- */

/* A loop that stays one: GCC unrolls what is short, and then keeps neither sums nor weights in registers. */
#ifdef __clang__
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define ROLLED _Pragma("GCC unroll 1")
#endif

/* Sum of n signed bytes, n a multiple of 4. */
INLINE int32_t sum_i8(const int8_t *x, int64_t n)
{
    const __m128i flip = _mm_set1_epi8((char)0x80);
    __m128i sum = _mm_setzero_si128();
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m128i v = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(x + i)), flip);
        sum = _mm_add_epi32(sum, _mm_sad_epu8(v, _mm_setzero_si128()));
    }
    int32_t total = _mm_cvtsi128_si32(sum) + _mm_extract_epi32(sum, 2) - 128 * (int32_t)i;
    for (; i < n; i++)
        total += x[i];
    return total;
}

#endif
