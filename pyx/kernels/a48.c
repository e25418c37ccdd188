/* a48.c: the activations of BitNet a4.8 (arXiv 2411.04965, section 3.1), for models trained with them.
 *
 * Inputs of attention and feed-forward are 4-bit codes, inputs of the two output projections 8-bit codes of which the
 * smaller half is dropped before the attention output.  Codes are int8 either way, so the ternary kernels run as they
 * are.  Portable C: both functions are a small part of a step, and their order of sums is fixed, so all targets
 * agree. */
#include "kernels.h"
#include "numbers.h"

#include <math.h>

float quantize_i4(const float *x, int64_t n, int8_t *q, int64_t n_pad, int32_t *sum)
{
    double lane[FLOAT_LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i % FLOAT_LANES] += (double)absf(x[i]);
    for (int half = FLOAT_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    float s = 2.6457513f / ((float)(lane[0] / (double)n) + 1e-5f); /* sqrt(7): the grid fits a Gaussian */
    int32_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t code = round_clamped(x[i] * s, 8.0f);
        q[i] = (int8_t)(code > 7 ? 7 : code);
        total += q[i];
    }
    for (int64_t i = n; i < n_pad; i++)
        q[i] = 0;
    *sum = total;
    return s;
}

void keep_larger_half(int8_t *q, int64_t n, int32_t *sum)
{
    int64_t count[128] = {0}, kept = 0;
    for (int64_t i = 0; i < n; i++)
        count[q[i] < 0 ? -q[i] : q[i]]++;
    int least = 127;
    while (least > 0 && (kept += count[least]) < (n + 1) / 2)
        least--;
    int32_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        q[i] = (q[i] < 0 ? -q[i] : q[i]) >= least ? q[i] : 0;
        total += q[i];
    }
    *sum = total;
}
