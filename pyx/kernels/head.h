/* head.h: rows of the output heads of eight bits, written once for every vector row.
 *
 * The includer defines, for its instruction set,
 *   prefetch_stream(p)        as in x86.h and arm.h
 *   is_stream(k)              whether rows of k elements are to be prefetched
 *   HEAD_STEP                 elements multiplied at a time (16 or 32)
 *   HEAD_STEPS                steps after which a lane of int32 may be full, for |w| <= 128 and |x| <= 8191
 *   typedef ... head_x        HEAD_STEP elements of the hidden vector, ready to be multiplied
 *   typedef ... head_sums     int32 sums, zero-initialised by {0}
 *   head_x head_load(x)       such elements of memory
 *   head_sums head_dot(sums, w, x)  sums + HEAD_STEP bytes of memory times x
 *   int64_t head_total(sums)  all lanes added
 *   void head_totals(sums[4], narrow, total[4])  the same of four rows, added to total; narrow: they fit an int32
 * and includes lanes.h before. */
#ifndef BITNET_EDGE_HEAD_H
#define BITNET_EDGE_HEAD_H

#include "kernels.h"

/* Elements of a row whose sum fits an int32: 2048 * 128 * 8191 = 2147221504 < 2^31. */
enum { HEAD_NARROW = 2048 };

/* n rows, read as n streams; n and stream are constants where this is inlined. */
INLINE void head_rows_i8(const int8_t *w, const float *scale, int n, int64_t k, int stream, const int16_t *x, float s,
                         float *logits)
{
    int64_t i = 0, total[4] = {0};
    while (i + HEAD_STEP <= k) {
        int64_t end = k - i < (int64_t)HEAD_STEP * HEAD_STEPS ? k - HEAD_STEP : i + HEAD_STEP * (HEAD_STEPS - 1);
        head_sums sums[4] = {0};
        for (; i <= end; i += HEAD_STEP) {
            head_x xv = head_load(x + i);
            for (int r = 0; r < n; r++) {
                if (stream)
                    prefetch_stream(w + r * k + i);
                sums[r] = head_dot(sums[r], w + r * k + i, xv);
            }
        }
        if (n == 4)
            head_totals(sums, k <= HEAD_NARROW, total);
        else
            for (int r = 0; r < n; r++)
                total[r] += head_total(sums[r]);
    }
    for (int r = 0; r < n; r++)
        for (int64_t j = i; j < k; j++)
            total[r] += (int32_t)w[r * k + j] * x[j];
    for (int r = 0; r < n; r++)
        logits[r] = (float)total[r] * (scale[r] / s);
}

INLINE void head_all_i8(const int8_t *w, const float *scale, int64_t n_row, int64_t k, int stream, const int16_t *x,
                        float s, float *logits)
{
    int64_t r = 0;
    for (; r + 4 <= n_row; r += 4)
        head_rows_i8(w + r * k, scale + r, 4, k, stream, x, s, logits + r);
    for (; r < n_row; r++)
        head_rows_i8(w + r * k, scale + r, 1, k, stream, x, s, logits + r);
}

static void head_i8(const int8_t *w, const float *scale, int64_t n_row, int64_t k, const int16_t *x, float s,
                    float *logits)
{
    if (is_stream(k))
        head_all_i8(w, scale, n_row, k, 1, x, s, logits);
    else
        head_all_i8(w, scale, n_row, k, 0, x, s, logits);
}

#ifndef HEAD_QUAD
/* The totals of four rows that fit an int32 each; x86-64 has shorter ways. */
INLINE void head_quad(const head_sums sums[4], int32_t total[4])
{
    for (int r = 0; r < 4; r++)
        total[r] = (int32_t)head_total(sums[r]);
}
#endif

/* n rows of Q8_0 blocks; n and stream are constants where this is inlined.  16 blocks at a time, one for each lane; the
 * rows lie side by side, as their totals come. */
INLINE void head_rows_q8_0(const uint8_t *w, int n, int64_t n_block, int stream, const int16_t *x, float s,
                           float *logits)
{
    const int64_t stride = n_block * Q8_BLOCK_BYTES;
    vf lanes[4 * VECTORS] = {{0}};
    float lane[LANES * 4];
    for (int64_t first = 0; first < n_block; first += LANES) {
        int count = n_block - first < LANES ? (int)(n_block - first) : LANES;
        uint16_t d[LANES * 4] = {0}; /* lanes without a block gain 0 * 0 */
        int32_t total[LANES * 4] = {0};
        for (int b = 0; b < count; b++, w += Q8_BLOCK_BYTES, x += Q8_BLOCK) {
            head_sums sums[4] = {0};
            for (int i = 0; i < Q8_BLOCK; i += HEAD_STEP) {
                head_x xv = head_load(x + i);
                for (int r = 0; r < n; r++) {
                    if (stream)
                        prefetch_stream(w + r * stride + i);
                    sums[r] = head_dot(sums[r], (const int8_t *)w + r * stride + 2 + i, xv);
                }
            }
            if (n == 4)
                head_quad(sums, total + 4 * b);
            else
                for (int r = 0; r < n; r++)
                    total[4 * b + r] = (int32_t)head_total(sums[r]);
            for (int r = 0; r < n; r++)
                memcpy(d + 4 * b + r, w + r * stride, 2);
        }
        for (int v = 0; v < 4 * VECTORS; v++)
            lanes[v] += load_int(total + v * LANE_WIDTH) * load_half(d + v * LANE_WIDTH);
    }
    memcpy(lane, lanes, sizeof lane);
    for (int half = LANES * 2; half >= 4; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    for (int r = 0; r < n; r++)
        logits[r] = lane[r] / s;
}

INLINE void head_all_q8_0(const uint8_t *w, int64_t n_row, int64_t n_block, int stream, const int16_t *x, float s,
                          float *logits)
{
    int64_t r = 0;
    for (; r + 4 <= n_row; r += 4)
        head_rows_q8_0(w + r * n_block * Q8_BLOCK_BYTES, 4, n_block, stream, x, s, logits + r);
    for (; r < n_row; r++)
        head_rows_q8_0(w + r * n_block * Q8_BLOCK_BYTES, 1, n_block, stream, x, s, logits + r);
}

static void head_q8_0(const uint8_t *w, int64_t n_row, int64_t k, const int16_t *x, float s, float *logits)
{
    if (is_stream(k))
        head_all_q8_0(w, n_row, k / Q8_BLOCK, 1, x, s, logits);
    else
        head_all_q8_0(w, n_row, k / Q8_BLOCK, 0, x, s, logits);
}

#endif
