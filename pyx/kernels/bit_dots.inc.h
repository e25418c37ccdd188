/* bit_dots.inc.h: dot products of rows of four or one bit a code with int8 vectors, written once for every vector
 * target.
 *
 * The includer defines, for its instruction set,
 *   BIT_WIDTH                bytes per native vector (16, 32 or 64)
 *   typedef ... vbytes       that vector of bytes
 *   typedef ... vsums        a vector of int32 sums, zero-initialised by {0}
 *   vbytes load_codes(p)     BIT_WIDTH bytes from an unaligned address
 *   vbytes low_nibbles(c)    bits 3-0 of every byte
 *   vbytes high_nibbles(c)   bits 7-4
 *   vbytes single_bits(c, b) bit b of every byte; b is a constant.  Or BIT_SUMS, dot_bits and bit_total as below, where
 *                            bits are better not shifted to the end of their bytes
 *   vsums dot_codes(sums, u, x)
 *                            sums + sum of u[m] * x[64 m ...], m = 0..7: eight vectors of codes 0..15 against int8
 *   int32_t sum_lanes(sums)  the sum of all lanes
 *
 * Both packings put 512 codes into whole cache lines such that vector m of a line group belongs to x[64 m ...]: four
 * lines of nibbles (low and high), or one line of bits (bit 0 to 7).  So one loop serves both. */
#ifndef BITNET_EDGE_BIT_DOTS_H
#define BITNET_EDGE_BIT_DOTS_H

#include "template.h"

enum {
    BIT_VECTOR_SUMS = BIT_WIDTH == 64 ? 16 : 8, /* sums kept in registers: rows times vectors of a tile */
    BIT_ROWS = 4,                          /* most rows of a tile */
    BIT_AHEAD = 24, /* rows of a list to ask for ahead, as no processor guesses their order, and half the way again */
};

#ifndef BIT_SUMS
enum { BIT_SUMS = 1 }; /* sums of single bits that a row has for each vector */

/* Adds the products of bits 0 to 7 of c with x[64 m ...], m = 0..7. */
INLINE void dot_bits(vsums sum[BIT_SUMS], vbytes c, const int8_t *x)
{
    vbytes u[8] = {single_bits(c, 0), single_bits(c, 1), single_bits(c, 2), single_bits(c, 3),
                   single_bits(c, 4), single_bits(c, 5), single_bits(c, 6), single_bits(c, 7)};
    sum[0] = dot_codes(sum[0], u, x);
}

INLINE vsums bit_total(const vsums sum[BIT_SUMS]) { return sum[0]; }
#endif

/* n_row rows against n_x vectors; bits, n_row and n_x are constants where this is inlined.
 * far, near: rows of single bits that come later; asked for line by line, since a burst fills the queue of misses. */
INLINE void code_tile(const uint8_t *const row[BIT_ROWS], const uint8_t *const far[BIT_ROWS],
                       const uint8_t *const near[BIT_ROWS], int bits, int64_t k, const int8_t *x, int n_row, int n_x,
                       int32_t *acc, int64_t ld)
{
    const uint8_t *next = row[n_row - 1] + k / 8 * bits; /* of rows that are a stream */
    vsums sum[BIT_VECTOR_SUMS][BIT_SUMS] = {0};
    for (int64_t i = 0; i < k; i += BIT_BLOCK)
        for (int half = 0; half < 64; half += BIT_WIDTH)
            for (int r = 0; r < n_row; r++) {
                const uint8_t *p = row[r] + i / 8 * bits + half;
                const int8_t *xp = x + i + half;
                if (bits == 4) {
                    vbytes u[8];
                    if (half == 0) {
                        n_x > 1 ? fetch_plain(next, BIT_BLOCK / 2) : fetch_rows(p, 0, 1, next, BIT_BLOCK / 2);
                        next += BIT_BLOCK / 2;
                    }
                    for (int m = 0; m < 4; m++) {
                        vbytes c = load_codes(p + 64 * m);
                        u[2 * m] = low_nibbles(c), u[2 * m + 1] = high_nibbles(c);
                    }
                    for (int j = 0; j < n_x; j++)
                        sum[r * n_x + j][0] = dot_codes(sum[r * n_x + j][0], u, xp + j * k);
                } else {
                    if (half == 0) {
                        prefetch_l2(far[r] + i / 8);
                        prefetch_l2(near[r] + i / 8);
                    }
                    vbytes c = load_codes(p);
                    for (int j = 0; j < n_x; j++)
                        dot_bits(sum[r * n_x + j], c, xp + j * k);
                }
            }
    for (int r = 0; r < n_row; r++)
        for (int j = 0; j < n_x; j++)
            acc[j * ld + r] = sum_lanes(bits == 4 ? sum[r * n_x + j][0] : bit_total(sum[r * n_x + j]));
}

/* list: which rows, or NULL for the first n_row. */
INLINE void code_rows(const uint8_t *rows, const int32_t *list, int bits, int64_t n_row, int64_t k, const int8_t *x,
                       int n_x, int32_t *acc, int64_t ld)
{
    const int64_t row_bytes = k / 8 * bits;
    const int most = BIT_VECTOR_SUMS / (bits == 1 ? n_x * BIT_SUMS : n_x);
    const int tile = most > BIT_ROWS ? BIT_ROWS : most > 1 ? most : 1;
    for (int64_t r = 0; list && r < n_row && r < BIT_AHEAD; r++)
        for (int64_t b = 0; b < row_bytes; b += 64)
            prefetch_l2(rows + list[r] * row_bytes + b);
    for (int64_t r = 0, n; r < n_row; r += n) {
        const uint8_t *row[BIT_ROWS] = {0}, *far[BIT_ROWS] = {0}, *near[BIT_ROWS] = {0};
        n = n_row - r >= tile ? tile : 1;
        for (int64_t i = r; i < r + n; i++) {
            row[i - r] = rows + (list ? list[i] : i) * row_bytes;
            if (list) {
                int64_t ahead = n_row - 1 - i < BIT_AHEAD ? n_row - 1 - i : BIT_AHEAD;
                far[i - r] = rows + list[i + ahead] * row_bytes;
                near[i - r] = rows + list[i + ahead / 2] * row_bytes;
            }
        }
        if (n == tile)
            code_tile(row, far, near, bits, k, x, tile, n_x, acc + r, ld);
        else
            code_tile(row, far, near, bits, k, x, 1, n_x, acc + r, ld);
    }
}

INLINE void code_dots(const uint8_t *rows, const int32_t *list, int bits, int64_t n_row, int64_t k, const int8_t *x,
                       int64_t n_x, int32_t *acc, int64_t ld)
{
    for (; n_x >= 8; n_x -= 8, x += 8 * k, acc += 8 * ld)
        code_rows(rows, list, bits, n_row, k, x, 8, acc, ld);
    for (; n_x >= 4; n_x -= 4, x += 4 * k, acc += 4 * ld)
        code_rows(rows, list, bits, n_row, k, x, 4, acc, ld);
    for (; n_x >= 2; n_x -= 2, x += 2 * k, acc += 2 * ld)
        code_rows(rows, list, bits, n_row, k, x, 2, acc, ld);
    if (n_x > 0)
        code_rows(rows, list, bits, n_row, k, x, 1, acc, ld);
}

static void nibble_dots(const uint8_t *nibbles, int64_t n_row, int64_t k, const int8_t *x, int64_t n_x, int32_t *acc,
                        int64_t ld)
{
    code_dots(nibbles, 0, 4, n_row, k, x, n_x, acc, ld);
}

static void bit_dots(const uint8_t *bits, const int32_t *list, int64_t n_row, int64_t k, const int8_t *x, int64_t n_x,
                     int32_t *acc, int64_t ld)
{
    code_dots(bits, list, 1, n_row, k, x, n_x, acc, ld);
}

#endif
