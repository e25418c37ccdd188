/* head.inc.h: rows of the output heads of eight bits, written once for every vector target.
 *
 * The includer defines, for its instruction set,
 *   is_stream(k)              whether rows of k elements are to be prefetched
 *   HEAD_STEP                 elements multiplied at a time (16 or 32)
 *   HEAD_STEPS                steps after which a lane of int32 may be full, for |w| <= 128 and |x| <= 8191
 *   typedef ... head_x        HEAD_STEP elements of the hidden vector, ready to be multiplied
 *   typedef ... head_sums     int32 sums, zero-initialised by {0}
 *   head_x head_load(x)       such elements of memory
 *   head_sums head_dot(sums, w, x)  sums + HEAD_STEP bytes of memory times x
 *   int64_t head_total(sums)  all lanes added
 *   void head_totals(sums[4], narrow, total[4])  the same of four rows, added to total; narrow: rows of up to
 *                             HEAD_NARROW elements
 *   HEAD_VECTORS              hidden vectors that are multiplied at a time, so that their sums stay in registers (2, 4)
 * and includes lanes.inc.h before.
 *
 * Several vectors: a panel of rows is read from memory once, by the first HEAD_VECTORS of them, and stays in the cache
 * for the others. */
#ifndef BITNET_EDGE_HEAD_H
#define BITNET_EDGE_HEAD_H

#include "template.h"

/* Elements of a row whose sum fits an int32: 2048 * 128 * 8191 = 2147221504 < 2^31. */
#ifndef HEAD_NARROW
#define HEAD_NARROW 2048
#endif

enum { HEAD_PANEL = 32 };

/* Bytes of rows that the caches may keep from one token to the next. */
enum { HEAD_KEPT = 4 << 20 };

/* 1 if rows are to be prefetched: long ones, and many short ones (0.79 instead of 0.26 of a plain sum's rate for
 * 49152 rows of 576: benchmarks/log#planes). */
INLINE int head_streams(int64_t n_row, int64_t k) { return is_stream(k) || n_row * k > HEAD_KEPT; }

/* n rows side by side; n, n_x and stream are constants where this is inlined. */
INLINE void head_rows_i8(const int8_t *w, const float *scale, int n, int64_t k, int stream, const int16_t *x, int n_x,
                         const float *s, float *const *logits, int64_t row)
{
    const int8_t *next = w + n * k;
    int64_t i = 0, total[HEAD_VECTORS][4] = {0};
    while (i + HEAD_STEP <= k) {
        int64_t end = k - i < (int64_t)HEAD_STEP * HEAD_STEPS ? k - HEAD_STEP : i + HEAD_STEP * (HEAD_STEPS - 1);
        head_sums sums[HEAD_VECTORS][4] = {0};
        for (; i <= end; i += HEAD_STEP) {
            head_x xv[HEAD_VECTORS];
            if (stream)
                n_x > 1 ? fetch_plain(next + n * i, n * HEAD_STEP) : fetch_rows(w + i, k, n, next + n * i, HEAD_STEP);
#pragma GCC unroll 4
            for (int j = 0; j < n_x; j++)
                xv[j] = head_load(x + j * k + i);
#pragma GCC unroll 4
            for (int r = 0; r < n; r++) {
#pragma GCC unroll 4
                for (int j = 0; j < n_x; j++)
                    sums[j][r] = head_dot(sums[j][r], w + r * k + i, xv[j]);
            }
        }
#pragma GCC unroll 4
        for (int j = 0; j < n_x; j++)
            if (n == 4)
                head_totals(sums[j], k <= HEAD_NARROW, total[j]);
            else
                for (int r = 0; r < n; r++)
                    total[j][r] += head_total(sums[j][r]);
    }
    for (int j = 0; j < n_x; j++) {
        float *const out = logits[j] + row;
        const float s_j = s[j]; /* what is stored cannot change it */
        for (int r = 0; r < n; r++)
            for (int64_t l = i; l < k; l++)
                total[j][r] += (int32_t)w[r * k + l] * x[j * k + l];
        float made[4];
        for (int r = 0; r < n; r++)
            made[r] = (float)total[j][r] * (scale[r] / s_j);
        for (int r = 0; r < n; r++)
            out[r] = made[r];
    }
}

/* Rows [row, row + n_row), which w and scale begin with. */
INLINE void head_all_i8(const int8_t *w, const float *scale, int64_t n_row, int64_t k, int stream, const int16_t *x,
                        int n_x, const float *s, float *const *logits, int64_t row)
{
    const int side = stream && n_x == 1 ? rows_at_once(k) : 4;
#define PART(n) head_rows_i8(w + r * k, scale + r, n, k, stream, x, n_x, s, logits, row + r)
    BY_ROWS(side, n_row, PART)
#undef PART
}

OUT_OF_LINE void head_one_i8(const int8_t *w, const float *scale, int64_t n_row, int64_t k, const int16_t *x,
                             const float *s, float *const *logits)
{
    if (head_streams(n_row, k))
        head_all_i8(w, scale, n_row, k, 1, x, 1, s, logits, 0);
    else
        head_all_i8(w, scale, n_row, k, 0, x, 1, s, logits, 0);
}

/* HEAD_VECTORS vectors. */
OUT_OF_LINE void head_several_i8(const int8_t *w, const float *scale, int64_t n_row, int64_t k, int stream,
                                 const int16_t *x, const float *s, float *const *logits, int64_t row)
{
    if (stream)
        head_all_i8(w, scale, n_row, k, 1, x, HEAD_VECTORS, s, logits, row);
    else
        head_all_i8(w, scale, n_row, k, 0, x, HEAD_VECTORS, s, logits, row);
}

static void head_i8(const int8_t *w, const float *scale, int64_t n_row, int64_t k, const int16_t *x, int64_t n_x,
                    const float *s, float *const *logits)
{
    if (n_x == 1) {
        head_one_i8(w, scale, n_row, k, x, s, logits);
        return;
    }
    for (int64_t row = 0; row < n_row; row += HEAD_PANEL) {
        const int64_t n = n_row - row < HEAD_PANEL ? n_row - row : HEAD_PANEL;
        const int8_t *wp = w + row * k;
        int stream = head_streams(n_row, k);
        for (int64_t j = 0, left; (left = n_x - j) > 0; stream = 0) {
            if (left >= HEAD_VECTORS) {
                head_several_i8(wp, scale + row, n, k, stream, x + j * k, s + j, logits + j, row);
                j += HEAD_VECTORS;
                continue;
            }
#if HEAD_VECTORS > 2
            if (left == 3)
                head_all_i8(wp, scale + row, n, k, stream, x + j * k, 3, s + j, logits + j, row);
            else if (left == 2)
                head_all_i8(wp, scale + row, n, k, stream, x + j * k, 2, s + j, logits + j, row);
            else
#endif
                head_all_i8(wp, scale + row, n, k, stream, x + j * k, 1, s + j, logits + j, row);
            break;
        }
    }
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
    const uint8_t *next = w + n * stride;
    vf lanes[4 * VECTORS] = {{0}};
    float lane[LANES * 4];
    for (int64_t first = 0; first < n_block; first += LANES) {
        int count = n_block - first < LANES ? (int)(n_block - first) : LANES;
        uint16_t d[LANES * 4] = {0}; /* lanes without a block gain 0 * 0 */
        int32_t total[LANES * 4] = {0};
        for (int b = 0; b < count; b++, w += Q8_BLOCK_BYTES, x += Q8_BLOCK) {
            head_sums sums[4] = {0};
            if (stream)
                fetch_rows(w, stride, n, next, Q8_BLOCK_BYTES);
            next += n * Q8_BLOCK_BYTES;
            for (int i = 0; i < Q8_BLOCK; i += HEAD_STEP) {
                head_x xv = head_load(x + i);
                for (int r = 0; r < n; r++) {
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
    const int side = stream ? rows_at_once(n_block * Q8_BLOCK_BYTES) : 4;
#define PART(n) head_rows_q8_0(w + r * n_block * Q8_BLOCK_BYTES, n, n_block, stream, x, s, logits + r)
    BY_ROWS(side, n_row, PART)
#undef PART
}

static void head_q8_0(const uint8_t *w, int64_t n_row, int64_t k, const int16_t *x, int64_t n_x, const float *s,
                      float *const *logits)
{
    const int64_t n_block = k / Q8_BLOCK, panel = n_x == 1 ? n_row : HEAD_PANEL;
    for (int64_t row = 0; row < n_row; row += panel) {
        const int64_t n = n_row - row < panel ? n_row - row : panel;
        const uint8_t *wp = w + row * n_block * Q8_BLOCK_BYTES;
        for (int64_t j = 0; j < n_x; j++)
            if (j == 0 && head_streams(n_row, k))
                head_all_q8_0(wp, n, n_block, 1, x, s[0], logits[0] + row);
            else
                head_all_q8_0(wp, n, n_block, 0, x + j * k, s[j], logits[j] + row);
    }
}

#endif
