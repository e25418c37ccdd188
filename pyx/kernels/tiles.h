/* tiles.h: how the vector rows walk a ternary matrix for several tokens at once.
 *
 * The includer defines
 *   ternary_matvec, prefetch_l2        as in the other vector rows
 *   TILE_ROWS                          rows of its full tile (the remainder runs with one row)
 *   tile(codes, row_bytes, n_block, x, x_stride, n_row, n_token, sum)
 *                                      sum[r * n_token + t] = row r . token t over n_block blocks, always inlined with
 *                                      constant n_row in {TILE_ROWS, 1} and n_token in {8, 4, 2, 1}
 *   LOOKUP_TOKENS or PACK_LINES        only where lookup.h or packs.h is faster for many tokens
 *
 * Eight tokens of CHUNK blocks are 24 KiB, so the activations of a tile stay in a 32 KiB first-level cache while PANEL
 * rows of weights pass; a panel of weights is read from memory once for all tokens. */
#ifndef BITNET_EDGE_TILES_H
#define BITNET_EDGE_TILES_H

#include "kernels.h"

enum { TILE_TOKENS = 8, CHUNK = 24, PANEL = 32 };

static inline __attribute__((always_inline)) void tile_rows(const uint8_t *codes, int64_t row_bytes, int64_t n_row,
                                                            int64_t n_block, const int8_t *x, int64_t x_stride,
                                                            int n_token, int first, int64_t ahead, int32_t *acc,
                                                            int64_t ld_acc)
{
    int32_t sum[TILE_ROWS * TILE_TOKENS];
    int64_t r = 0;
    while (r < n_row) {
        int n = n_row - r >= TILE_ROWS ? TILE_ROWS : 1;
        for (int i = 0; ahead && i < n; i++)
            for (int64_t b = 0; b < n_block * TERNARY_BLOCK_BYTES; b += 64)
                prefetch_l2(codes + (r + i) * row_bytes + ahead + b);
        if (n == TILE_ROWS)
            tile(codes + r * row_bytes, row_bytes, n_block, x, x_stride, TILE_ROWS, n_token, sum);
        else
            tile(codes + r * row_bytes, row_bytes, n_block, x, x_stride, 1, n_token, sum);
        for (int t = 0; t < n_token; t++)
            for (int i = 0; i < n; i++) {
                int32_t *a = acc + t * ld_acc + r + i;
                *a = (first ? 0 : *a) + sum[i * n_token + t];
            }
        r += n;
    }
}

static void tiled_matmul(const uint8_t *codes, int64_t n_row, int64_t n_block, const int8_t *x, int64_t n_token,
                         int32_t *acc, int64_t ld_acc)
{
    if (n_token == 1) {
        ternary_matvec(codes, n_row, n_block, x, acc);
        return;
    }
    int64_t row_bytes = n_block * TERNARY_BLOCK_BYTES, x_stride = n_block * TERNARY_BLOCK;
    int64_t n_chunk = n_block > 0 ? (n_block + CHUNK - 1) / CHUNK : 1;
    int64_t chunk = (n_block + n_chunk - 1) / n_chunk; /* equal chunks: no short last one */
    for (int64_t r = 0; r < n_row; r += PANEL) {
        int64_t rows = n_row - r < PANEL ? n_row - r : PANEL;
        for (int64_t t = 0, n; t < n_token; t += n) {
            int64_t left = n_token - t;
            n = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
            int32_t *a = acc + t * ld_acc + r;
            int64_t ahead = t == 0 ? PANEL * row_bytes : 0; /* the next panel, while the first tokens use this one */
            int64_t b = 0;
            do {
                int64_t nb = n_block - b < chunk ? n_block - b : chunk;
                const uint8_t *c = codes + r * row_bytes + b * TERNARY_BLOCK_BYTES;
                const int8_t *xt = x + t * x_stride + b * TERNARY_BLOCK;
                if (n == 8)
                    tile_rows(c, row_bytes, rows, nb, xt, x_stride, 8, b == 0, ahead, a, ld_acc);
                else if (n == 4)
                    tile_rows(c, row_bytes, rows, nb, xt, x_stride, 4, b == 0, ahead, a, ld_acc);
                else if (n == 2)
                    tile_rows(c, row_bytes, rows, nb, xt, x_stride, 2, b == 0, ahead, a, ld_acc);
                else
                    tile_rows(c, row_bytes, rows, nb, xt, x_stride, 1, b == 0, ahead, a, ld_acc);
                b += nb;
            } while (b < n_block);
        }
    }
}

/* The row of the table, unless there is a faster one. */
#if defined(LOOKUP_TOKENS)
#include "lookup.h"
#elif defined(PACK_LINES)
#include "packs.h"
#else
static void ternary_matmul(const uint8_t *codes, int64_t n_row, int64_t n_block, const int8_t *x, int64_t n_token,
                           int32_t *acc, int64_t ld_acc, void *work)
{
    (void)work;
    tiled_matmul(codes, n_row, n_block, x, n_token, acc, ld_acc);
}
#endif

#endif
