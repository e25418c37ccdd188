/* head.h: rows of the int8 output head, written once for every vector row.
 *
 * The includer defines, for its instruction set,
 *   prefetch_stream(p)        as in x86.h and arm.h
 *   HEAD_STEP                 elements multiplied at a time (16 or 32)
 *   HEAD_STEPS                steps after which a lane of int32 may be full, for |w| <= 128 and |x| <= 8191
 *   typedef ... head_x        HEAD_STEP elements of the hidden vector, ready to be multiplied
 *   typedef ... head_sums     int32 sums, zero-initialised by {0}
 *   head_x head_load(x)       such elements of memory
 *   head_sums head_dot(sums, w, x)  sums + HEAD_STEP bytes of memory times x
 *   int64_t head_total(sums)  all lanes added */
#ifndef BITNET_EDGE_HEAD_H
#define BITNET_EDGE_HEAD_H

#include "kernels.h"

/* n rows, read as n streams; n is a constant where this is inlined. */
INLINE void head_rows_i8(const int8_t *w, const float *scale, int n, int64_t k, const int16_t *x, float s,
                         float *logits)
{
    int64_t i = 0, total[4] = {0};
    while (i + HEAD_STEP <= k) {
        int64_t end = k - i < (int64_t)HEAD_STEP * HEAD_STEPS ? k - HEAD_STEP : i + HEAD_STEP * (HEAD_STEPS - 1);
        head_sums sums[4] = {0};
        for (; i <= end; i += HEAD_STEP) {
            head_x xv = head_load(x + i);
            for (int r = 0; r < n; r++) {
                prefetch_stream(w + r * k + i);
                sums[r] = head_dot(sums[r], w + r * k + i, xv);
            }
        }
        for (int r = 0; r < n; r++)
            total[r] += head_total(sums[r]);
    }
    for (int r = 0; r < n; r++) {
        for (int64_t j = i; j < k; j++)
            total[r] += (int32_t)w[r * k + j] * x[j];
        logits[r] = (float)total[r] * (scale[r] / s);
    }
}

static void head_i8(const int8_t *w, const float *scale, int64_t n_row, int64_t k, const int16_t *x, float s,
                    float *logits)
{
    int64_t r = 0;
    for (; r + 4 <= n_row; r += 4)
        head_rows_i8(w + r * k, scale + r, 4, k, x, s, logits + r);
    for (; r < n_row; r++)
        head_rows_i8(w + r * k, scale + r, 1, k, x, s, logits + r);
}

#endif
