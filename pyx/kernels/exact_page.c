/* exact_page.c: F32 blocks, reference precision.  Plain C for every processor: they separate the error of storage from
 * the error of arithmetic (oracles and `eval`), and are not for speed. */
#include "kernels.h"

void score_f32(const void *k, int64_t head_dim, int64_t n_q, const float *q, float *s)
{
    const float *keys = k;
    for (int64_t i = 0; i < n_q; i++, q += head_dim, s += KV_PAGE) {
        for (int t = 0; t < KV_PAGE; t++)
            s[t] = 0.0f;
        for (int64_t d = 0; d < head_dim; d++)
            for (int t = 0; t < KV_PAGE; t++)
                s[t] += q[d] * keys[d * KV_PAGE + t];
    }
}

void value_f32(const void *v, int64_t head_dim, int64_t n_q, const float *p, float *o)
{
    const float *values = v;
    for (int64_t i = 0; i < n_q; i++, p += KV_PAGE, o += head_dim)
        for (int t = 0; t < KV_PAGE; t++)
            for (int64_t d = 0; d < head_dim; d++)
                o[d] += p[t] * values[t * head_dim + d];
}
