/* lookup_row.inc.h: the inner step of lookup.inc.h: entries of tables added to the sums of one row.
 *
 * The includer of lookup.inc.h has included the header of its intrinsics and defines
 *   LOOKUP_TOKENS   lanes of int16 in a vector, 8 or 16; 16 are two registers on aarch64, so that finding an address
 *                   serves both */
#ifndef BITNET_EDGE_LOOKUP_ROW_H
#define BITNET_EDGE_LOOKUP_ROW_H

#if !defined(LOOKUP_TOKENS)
#error "lookup_row.inc.h needs LOOKUP_TOKENS, from the target that includes it"
#endif

#include "template.h"

enum {
    LOOKUP_RUN = 128 / LOOKUP_TOKENS, /* bytes of codes, one table each */
    LOOKUP_RUNS = TERNARY_BLOCK_BYTES / LOOKUP_RUN,
};

typedef int16_t lanes16 __attribute__((vector_size(2 * LOOKUP_TOKENS)));
typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint16_t words8 __attribute__((vector_size(16)));

/* table[index[i]] for each i; an index is below 16. */
INLINE bytes16 bytes_at(bytes16 table, bytes16 index)
{
#ifdef __aarch64__
    return (bytes16)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)index);
#else
    return (bytes16)_mm_shuffle_epi8((__m128i)table, (__m128i)index);
#endif
}

/* Word i of four. */
INLINE uint64_t lookup_word(uint64_t four, int i)
{
#if defined(__BMI2__) && defined(__OPTIMIZE__) /* shifts would copy it first, and this loop is as fast as
                                                     instructions are issued; immediates need the optimiser */
    __asm__("rorx %2, %1, %0\n\tmovzwl %w0, %k0" : "=r"(four) : "r"(four), "i"(16 * i));
    return four;
#else
    return (uint16_t)(four >> 16 * i);
#endif
}

/* s + the entries at LOOKUP_RUN offsets. */
INLINE lanes16 lookup_row(const char *table, const uint16_t *offset, lanes16 s)
{
#pragma GCC unroll 4
    for (int i = 0; i < LOOKUP_RUN; i += 4) {
        uint64_t four;
        memcpy(&four, offset + i, 8);
#ifdef __aarch64__ /* whole addresses, for ldp; in pairs, as processors that issue in order wait for every sum */
        const char *at[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            at[j] = table + (uint16_t)(four >> 16 * j);
            __asm__("" : "+r"(at[j]));
        }
        s += (*(const lanes16 *)at[0] + *(const lanes16 *)at[1]) + (*(const lanes16 *)at[2] + *(const lanes16 *)at[3]);
#else
        __asm__("" : "+r"(four)); /* else words of several rows are taken out of vectors, through memory */
        s += *(const lanes16 *)(table + (uint16_t)four);
        s += *(const lanes16 *)(table + lookup_word(four, 1));
        s += *(const lanes16 *)(table + lookup_word(four, 2));
        s += *(const lanes16 *)(table + (four >> 48));
#endif
    }
    return s;
}

#endif
