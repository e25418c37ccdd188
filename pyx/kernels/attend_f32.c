/* attend_f32.c: the F32 page, reference precision: float k[D][32], then float v[32][D].
 * Plain C for every processor: it exists to separate the error of storage from the error of arithmetic (oracles and
 * `eval`), not for speed.  The arithmetic is that of attend_f16 in kernels.h. */
#include "kernels.h"
#include "numbers.h"

void store_f32(void *page, int64_t head_dim, int64_t t, const float *k, const float *v)
{
    float *keys = page, *values = keys + head_dim * KV_PAGE;
    for (int64_t d = 0; d < head_dim; d++) keys[d * KV_PAGE + t] = k[d];
    for (int64_t d = 0; d < head_dim; d++) values[t * head_dim + d] = v[d];
}

void attend_f32(const void *page, int64_t head_dim, int64_t n_q, uint32_t valid, const float *q, float *m, float *l,
                float *o)
{
    const float *keys = page, *values = keys + head_dim * KV_PAGE;
    for (int64_t g = 0; g < n_q; g++, q += head_dim, o += head_dim) {
        float s[KV_PAGE] = {0}, lane[FLOAT_LANES], most = m[g];
        for (int64_t d = 0; d < head_dim; d++)
            for (int t = 0; t < KV_PAGE; t++) s[t] += q[d] * keys[d * KV_PAGE + t];
        for (int t = 0; t < KV_PAGE; t++)
            if (valid >> t & 1 && s[t] > most) most = s[t];
        if (most > m[g]) {
            float shrink = l[g] != 0 ? kernel_expf(m[g] - most) : 0;
            l[g] *= shrink;
            for (int64_t d = 0; d < head_dim; d++) o[d] *= shrink;
            m[g] = most;
        }
        for (int t = 0; t < KV_PAGE; t++) s[t] = valid >> t & 1 ? kernel_expf(s[t] - most) : 0;
        for (int i = 0; i < FLOAT_LANES; i++) lane[i] = s[i] + s[i + FLOAT_LANES];
        for (int half = FLOAT_LANES / 2; half; half /= 2)
            for (int i = 0; i < half; i++) lane[i] += lane[i + half];
        l[g] += lane[0];
        for (int t = 0; t < KV_PAGE; t++)
            if (valid >> t & 1)
                for (int64_t d = 0; d < head_dim; d++) o[d] += s[t] * values[t * head_dim + d];
    }
}
