/* byte_dots.inc.h: dot products of rows of int8 with several int8 vectors, written once for every vector target.
 *
 * The includer includes bit_dots.inc.h before, whose vectors these are, and defines
 *   BYTE_LEAST_VECTORS        see byte_vectors in kernels.h
 *   BYTE_VECTORS              vectors that are multiplied at a time, so that their sums of four rows stay in registers
 *   vbytes byte_row(w)        BIT_WIDTH bytes of a row as byte_dot wants them
 *   vsums byte_dot(sums, w, x)  sums + w times BIT_WIDTH bytes of a vector
 *   int32_t byte_base(x, k)   what byte_row adds to a row changes its product with x by; to be added to it
 *   void byte_quad(sums[4], total[4])  the lanes of four sums */
#ifndef BITNET_EDGE_BYTE_DOTS_H
#define BITNET_EDGE_BYTE_DOTS_H

enum { BYTE_PANEL = 32 }; /* rows */

/* n rows by n_x vectors; meanwhile half as many are fetched from next on, if it is not NULL.  n, n_x, stream (1:
 * the bytes after the rows are fetched) and next being NULL or not are constants where this is inlined. */
INLINE void byte_tile(const int8_t *w, int n, int64_t k, int stream, const int8_t *x, int n_x, const int32_t *base,
                      int32_t *const *sums, int64_t row, const int8_t *next)
{
    vsums sum[BYTE_VECTORS][4] = {0};
    int64_t i = 0;
    for (; i + BIT_WIDTH <= k; i += BIT_WIDTH) {
        vbytes xv[BYTE_VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < n_x; j++)
            xv[j] = load_codes(x + j * k + i);
        if (stream)
            fetch_plain(w + n * (k + i), n * BIT_WIDTH);
#pragma GCC unroll 4
        for (int r = 0; r < n; r++) {
            if (next && r < n / 2) {
                prefetch_l2(next + r * k + i);
                prefetch_l2(next + (r - BYTE_PANEL * 3 / 8) * k + i); /* again, as some requests are dropped */
            }
            vbytes wv = byte_row(load_codes(w + r * k + i));
#pragma GCC unroll 4
            for (int j = 0; j < n_x; j++)
                sum[j][r] = byte_dot(sum[j][r], wv, xv[j]);
        }
    }
    for (int j = 0; j < n_x; j++) {
        int32_t total[4];
        if (n == 4)
            byte_quad(sum[j], total);
        else
            total[0] = sum_lanes(sum[j][0]);
        for (int r = 0; r < n; r++) {
            total[r] += base[j];
            for (int64_t l = i; l < k; l++)
                total[r] += w[r * k + l] * x[j * k + l];
        }
        memcpy(sums[j] + row, total, (size_t)n * sizeof *total);
    }
}

INLINE void byte_rows(const int8_t *w, int64_t n_row, int64_t k, int stream, const int8_t *x, int n_x,
                      const int32_t *base, int32_t *const *sums, int64_t row, const int8_t *next)
{
    int64_t r = 0;
    for (; r + 4 <= n_row; r += 4)
        byte_tile(w + r * k, 4, k, stream, x, n_x, base, sums, row + r, next ? next + r / 2 * k : 0);
    for (; r < n_row; r++)
        byte_tile(w + r * k, 1, k, stream, x, n_x, base, sums, row + r, 0);
}

/* A panel of rows is read from memory once and stays in the cache for all vectors.  If there are twice BYTE_VECTORS,
 * products take longer than reading: each half of them fetches half of the next panel. */
static void byte_dots(const int8_t *w, int64_t n_row, int64_t k, const int8_t *x, int64_t n_x, int32_t *const *sums)
{
    const int halves = n_x >= 2 * BYTE_VECTORS;
    int32_t base[BYTE_DOTS_MOST];
    for (int64_t j = 0; j < n_x; j++)
        base[j] = byte_base(x + j * k, k / BIT_WIDTH * BIT_WIDTH);
    for (int64_t row = 0; row < n_row; row += BYTE_PANEL) {
        const int64_t n = n_row - row < BYTE_PANEL ? n_row - row : BYTE_PANEL;
        const int8_t *wp = w + row * k, *next = wp + BYTE_PANEL * k;
        for (int64_t j = 0, left; (left = n_x - j) > 0; j += left >= BYTE_VECTORS ? BYTE_VECTORS : 1)
            if (left < BYTE_VECTORS)
                byte_rows(wp, n, k, 0, x + j * k, 1, base + j, sums + j, row, 0);
            else if (halves && j <= BYTE_VECTORS)
                byte_rows(wp, n, k, 0, x + j * k, BYTE_VECTORS, base + j, sums + j, row, j ? next + n / 2 * k : next);
            else if (j == 0)
                byte_rows(wp, n, k, 1, x, BYTE_VECTORS, base, sums, row, 0);
            else
                byte_rows(wp, n, k, 0, x + j * k, BYTE_VECTORS, base + j, sums + j, row, 0);
    }
}

#endif
