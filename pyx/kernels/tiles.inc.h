/* tiles.inc.h: how the vector targets walk a ternary matrix for several tokens at once.
 *
 * The includer defines
 *   ternary_matvec, is_stream          as in x86.h and arm.h
 *   TILE_ROWS, TILE_TOKENS             rows of its full tile (the remainder runs with one row), and tokens, 4 or 8
 *   tile(codes, row_bytes, n_block, x, x_stride, n_row, n_token, stream, sum)
 *                                      sum[t * TILE_ROWS + r] = row r . token t over n_block blocks, always inlined
 *                                      with constant n_row in {TILE_ROWS, 1}, n_token in 1 .. TILE_TOKENS and stream:
 *                                      1 to fetch what lies ahead of the codes
 *
 *   TILE_WHOLE                         only where rows are not cut into chunks, see below: the bytes of activations
 *                                      that a tile can read again and again at its speed
 *
 * The activations of a tile are up to 24 KiB and stay in a first-level cache of 32 KiB while PANEL rows of weights
 * pass; longer rows are cut into chunks for that.  Pieces of rows stream worse than rows: what is fetched ahead belongs
 * to another piece.  So x86-64 keeps rows whole, and tiles of long rows have fewer tokens
 * (benchmarks/log#avx2-few-rows).  A panel of weights is read from memory once, by the first tokens, for all. */
#ifndef BITNET_EDGE_TILES_H
#define BITNET_EDGE_TILES_H

#include "template.h"

enum { TILE_INPUTS = 24 << 10, PANEL = 32 };

INLINE void tile_rows(const uint8_t *codes, int64_t row_bytes, int64_t n_row, int64_t n_block, const int8_t *x,
                      int64_t x_stride, int n_token, int stream, int first, int32_t *acc, int64_t ld_acc)
{
    int32_t sum[TILE_TOKENS * TILE_ROWS];
    int64_t r = 0;
    while (r < n_row) {
        int n = n_row - r >= TILE_ROWS ? TILE_ROWS : 1;
        if (n == TILE_ROWS)
            tile(codes + r * row_bytes, row_bytes, n_block, x, x_stride, TILE_ROWS, n_token, stream, sum);
        else
            tile(codes + r * row_bytes, row_bytes, n_block, x, x_stride, 1, n_token, stream, sum);
        for (int t = 0; t < n_token; t++)
            for (int i = 0; i < n; i++) {
                int32_t *a = acc + t * ld_acc + r + i;
                *a = (first ? 0 : *a) + sum[t * TILE_ROWS + i];
            }
        r += n;
    }
}

INLINE void tile_tokens(const uint8_t *codes, int64_t row_bytes, int64_t n_row, int64_t n_block, const int8_t *x,
                        int64_t x_stride, int n_token, int stream, int first, int32_t *acc, int64_t ld_acc)
{
    if (stream)
        tile_rows(codes, row_bytes, n_row, n_block, x, x_stride, n_token, 1, first, acc, ld_acc);
    else
        tile_rows(codes, row_bytes, n_row, n_block, x, x_stride, n_token, 0, first, acc, ld_acc);
}

static void tiled_matmul(const uint8_t *codes, int64_t n_row, int64_t n_block, const int8_t *x, int64_t n_token,
                         int32_t *acc, int64_t ld_acc, void *work)
{
    (void)work; /* for a target that lays tokens out: i8mm.c */
    if (n_token == 1) {
        ternary_matvec(codes, n_row, n_block, x, acc);
        return;
    }
    int64_t row_bytes = n_block * TERNARY_BLOCK_BYTES, x_stride = n_block * TERNARY_BLOCK;
#ifdef TILE_WHOLE
    int64_t chunk = n_block, most = x_stride > 0 ? TILE_WHOLE / x_stride : TILE_TOKENS;
    most = most < 2 ? 2 : most < TILE_TOKENS ? most : TILE_TOKENS;
    int64_t n_group = (n_token + most - 1) / most;
#else
    int64_t n_group = (n_token + TILE_TOKENS - 1) / TILE_TOKENS;
    int64_t most = TILE_INPUTS / TERNARY_BLOCK / ((n_token + n_group - 1) / n_group);
    int64_t n_chunk = n_block > 0 ? (n_block + most - 1) / most : 1;
    int64_t chunk = (n_block + 2 * n_chunk - 1) / (2 * n_chunk) * 2; /* equal chunks of whole pairs of blocks */
#endif
    for (int64_t r = 0; r < n_row; r += PANEL) {
        int64_t rows = n_row - r < PANEL ? n_row - r : PANEL;
        for (int64_t g = 0; g < n_group; g++) {
            int64_t t = n_token * g / n_group, n = n_token * (g + 1) / n_group - t; /* equal groups, too */
            int stream = g == 0 && is_stream(x_stride);
            int32_t *a = acc + t * ld_acc + r;
            int64_t b = 0;
            do {
                int64_t nb = n_block - b < chunk ? n_block - b : chunk;
                const uint8_t *c = codes + r * row_bytes + b * TERNARY_BLOCK_BYTES;
                const int8_t *xt = x + t * x_stride + b * TERNARY_BLOCK;
#define CASE(n)                                                                                                        \
    case n: tile_tokens(c, row_bytes, rows, nb, xt, x_stride, n, stream, b == 0, a, ld_acc); break
                switch (n) {
                CASE(1);
                CASE(2);
                CASE(3);
                CASE(4);
#if TILE_TOKENS > 4
                CASE(5);
                CASE(6);
                CASE(7);
                CASE(8);
#endif
                }
#undef CASE
                b += nb;
            } while (b < n_block);
        }
    }
}

#endif
