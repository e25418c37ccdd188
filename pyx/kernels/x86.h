/* x86.h: what the x86-64 targets share.  Everything is static: see numbers.h. */
#ifndef BITNET_EDGE_X86_H
#define BITNET_EDGE_X86_H

#include "template.h"

#include <immintrin.h>

/* ---- streams that are read once ---------------------------------------------------------------------------------- */

/* Into the second-level cache: the first level has too few miss buffers to cover the latency of memory. */
INLINE void prefetch_l2(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T1); }

/* What lies ahead of p in its stream.  A processor drops a prefetch when its queue of misses is full, and a line that
 * was never fetched stops the loop for the whole latency; so each line is prefetched more than once.  Loops
 * over vectors of 32 bytes and less pass each line several times anyway; those over whole lines prefetch again half
 * the way. */
INLINE void prefetch_stream(const void *p)
{
    prefetch_l2((const char *)p + kernels_chosen.ahead);
#if defined(__AVX512F__)
    prefetch_l2((const char *)p + kernels_chosen.ahead / 2);
#endif
}

/* Models with shorter rows stay in the caches: there, prefetching every line several times takes longer than the
 * products (1.6 times as long for a head of 256 elements a row). */
INLINE int is_stream(int64_t k) { return k > 1024; }

/* Panels are one stream, which the processor fetches into its second-level cache by itself; lines are only taken from
 * there.  Asking memory for lines far ahead keeps 0.73 to 0.85 of a plain sum's rate, this 0.82 to 0.95
 * (benchmarks/SPEED.md). */
enum { PANEL_CLOSE = 320 };

INLINE const uint8_t *panel_ahead(const uint8_t *panel, const uint8_t *ahead)
{
    (void)ahead;
    return panel + PANEL_CLOSE;
}

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
