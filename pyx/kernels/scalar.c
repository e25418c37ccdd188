/* scalar.c: the specification.  Every kernel in plain C; kernels.h defines what each one computes.  Every other target
 * must equal this one bit for bit, so the order of float operations below is part of the contract. */
#include "kernels.h"
#include "numbers.h"

#include <math.h>

enum { LANES = FLOAT_LANES };

/* ---- ternary matrices -------------------------------------------------------------------------------------------- */

static int32_t block_dot(const uint8_t *b, const int8_t *x)
{
    int32_t sum = 0;
    for (int p = 0; p < TERNARY_BLOCK_BYTES; p++)
        sum += (b[p] >> 6) * x[p] + (b[p] >> 4 & 3) * x[p + 32] + (b[p] >> 2 & 3) * x[p + 64] + (b[p] & 3) * x[p + 96];
    return sum;
}

static void ternary_matvec(const uint8_t *codes, int64_t n_row, int64_t n_block, const int8_t *x, int32_t *acc)
{
    for (int64_t r = 0; r < n_row; r++) {
        int32_t sum = 0;
        for (int64_t b = 0; b < n_block; b++)
            sum += block_dot(codes + (r * n_block + b) * TERNARY_BLOCK_BYTES, x + b * TERNARY_BLOCK);
        acc[r] = sum;
    }
}

static void ternary_matmul(const uint8_t *codes, int64_t n_row, int64_t n_block, const int8_t *x, int64_t n_token,
                           int32_t *acc, int64_t ld_acc, void *work)
{
    (void)work;
    for (int64_t t = 0; t < n_token; t++)
        ternary_matvec(codes, n_row, n_block, x + t * n_block * TERNARY_BLOCK, acc + t * ld_acc);
}

static float abs_max(const float *x, int64_t n)
{
    float m = 0.0f;
    for (int64_t i = 0; i < n; i++)
        m = absf(x[i]) > m ? absf(x[i]) : m;
    return m;
}

/* ---- scales per group -------------------------------------------------------------------------------------------- */

static void quantize_groups(const float *x, int64_t n, int group, int8_t *q, float *d, int32_t *sum)
{
    for (int64_t g = 0; g * group < n; g++, x += group, q += group) {
        int64_t some = n - g * group < group ? n - g * group : group;
        float m = abs_max(x, some), s = 127.0f / (m > 1e-30f ? m : 1e-30f);
        d[g] = m / 127.0f;
        sum[g] = 0;
        for (int e = 0; e < group; e++) {
            int32_t code = e < some ? round_clamped(x[e] * s, 127.0f) : 0;
            q[place_in_group(group, e)] = (int8_t)code;
            sum[g] += code;
        }
    }
}

static void group_matmul(const uint8_t *rows, int group_bytes, int64_t n_row, int64_t n_group, const int8_t *q,
                         const float *d, const int32_t *sum, int64_t n_token, int add, float *out, int64_t ld_out,
                         void *work)
{
    (void)work;
    for (int64_t t = 0; t < n_token; t++)
        for (int64_t r = 0; r < n_row; r++) {
            float y = 0.0f;
            for (int64_t g = 0; g < n_group; g++) {
                const uint8_t *group = rows + (r * n_group + g) * group_bytes;
                const int8_t *x = q + (t * n_group + g) * GROUP;
                int32_t dot = 0;
                for (int p = 0; p < 32; p++) {
                    int byte = group[p < 16 ? 2 + p : p - 32 + group_bytes];
                    for (int f = 0; f < 4; f++)
                        dot += (byte >> 2 * f & 3) * x[32 * f + p];
                }
                float scale = half_float((uint16_t)(group[0] | group[1] << 8));
                y += (float)(dot - sum[t * n_group + g]) * (scale * d[t * n_group + g]);
            }
            out[t * ld_out + r] = add ? out[t * ld_out + r] + y : y;
        }
}

static void panel_matmul(const uint8_t *panels, int64_t row0, int64_t row1, int64_t n_group, int group, int n_plane,
                         const int8_t *q, const float *d, const int32_t *sum, int64_t n_token, int add, float *out,
                         int64_t ld_out)
{
    for (int64_t t = 0; t < n_token; t++)
        for (int64_t r = row0; r < row1; r++) {
            const int lane = (int)(r % 16), field = (int)(r % PANEL_ROWS / 16);
            const uint8_t *panel = panels + r / PANEL_ROWS * n_group * n_plane * PANEL_BYTES(group);
            float y = 0.0f;
            for (int64_t g = 0; g < n_group; g++) {
                const int8_t *x = q + (t * n_group + g) * group;
                for (int p = 0; p < n_plane; p++, panel += PANEL_BYTES(group)) {
                    const uint8_t *codes = panel + 2 * PANEL_ROWS + 4 * lane;
                    const uint8_t *half = panel + r % PANEL_ROWS * 2;
                    int32_t dot = 0;
                    for (int i = 0; i < group; i++)
                        dot += (codes[i / 4 * 64 + i % 4] >> 2 * field & 3) * x[i];
                    float scale = half_float((uint16_t)(half[0] | half[1] << 8));
                    y += (float)(dot - sum[t * n_group + g]) * (scale * d[t * n_group + g]);
                }
            }
            float *to = out + t * ld_out + r - row0;
            *to = add ? *to + y : y;
        }
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

static float quantize_i8(const float *x, int64_t n, int8_t *q, int64_t n_pad, int32_t *sum)
{
    float m = abs_max(x, n);
    float s = 127.0f / (m > 1e-5f ? m : 1e-5f);
    int32_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        q[i] = (int8_t)round_clamped(x[i] * s, 127.0f);
        total += q[i];
    }
    for (int64_t i = n; i < n_pad; i++)
        q[i] = 0;
    *sum = total;
    return s;
}

static void rmsnorm(const float *x, const float *w, float eps, int64_t n, float *out)
{
    double lane[LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i % LANES] += (double)x[i] * (double)x[i];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    float factor = (float)(1.0 / sqrt(lane[0] / (double)n + (double)eps));
    for (int64_t i = 0; i < n; i++)
        out[i] = (x[i] * factor) * w[i];
}

static void gate_relu2(const float *gate, const float *up, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        float r = choose(gate[i] > 0.0f, gate[i], 0.0f);
        out[i] = (r * r) * up[i];
    }
}

static void gate_silu(const float *gate, const float *up, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (gate[i] / (1.0f + kernel_expf(-gate[i]))) * up[i];
}

static void gate_gelu(const float *gate, const float *up, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        float g = gate[i];
        out[i] = (g / (1.0f + kernel_expf(-g * (GELU_1 + GELU_3 * (g * g))))) * up[i];
    }
}

static void gate_sigmoid(const float *gate, const float *up, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (1.0f / (1.0f + kernel_expf(-gate[i]))) * up[i];
}

static void rope_half(float *x, int64_t n_rot, const float *cs, const float *sn)
{
    for (int64_t j = 0; j < n_rot / 2; j++) {
        float a = x[j], b = x[j + n_rot / 2];
        x[j] = a * cs[j] - b * sn[j];
        x[j + n_rot / 2] = b * cs[j] + a * sn[j];
    }
}

static void rope_interleaved(float *x, int64_t n_rot, const float *cs, const float *sn)
{
    for (int64_t j = 0; j < n_rot / 2; j++) {
        float a = x[2 * j], b = x[2 * j + 1];
        x[2 * j] = a * cs[j] - b * sn[j];
        x[2 * j + 1] = b * cs[j] + a * sn[j];
    }
}

static void scale_sums(const int32_t *acc, int64_t n, int32_t sum, float s, const float *scale, int64_t step, int add,
                       float *out)
{
    for (int64_t r = 0; r < n; r++) {
        float y = (float)(acc[r] - sum) / s * scale[step * r];
        out[r] = add ? out[r] + y : y;
    }
}

/* ---- rotated bases ----------------------------------------------------------------------------------------------- */

static void change_basis(const float *x, const float *before, const float *after, int64_t n, int64_t block, float *out)
{
    const float factor = (float)(1.0 / sqrt((double)block));
    for (int64_t i = 0; i < n; i++)
        out[i] = before ? before[i] * x[i] : x[i];
    for (int64_t half = 1; half < block; half *= 2)
        for (int64_t i = 0; i < n; i++)
            if (!(i & half)) {
                float a = out[i], b = out[i + half];
                out[i] = a + b;
                out[i + half] = a - b;
            }
    for (int64_t i = 0; i < n; i++)
        out[i] = after ? after[i] * (out[i] * factor) : out[i] * factor;
}

/* ---- output head ------------------------------------------------------------------------------------------------- */

static float quantize_i16(const float *x, int64_t n, int16_t *q)
{
    float m = abs_max(x, n);
    float s = (float)HEAD_XMAX / (m > 1e-30f ? m : 1e-30f);
    for (int64_t i = 0; i < n; i++)
        q[i] = (int16_t)round_clamped(x[i] * s, (float)HEAD_XMAX);
    return s;
}

static void head_i8(const int8_t *w, const float *scale, int64_t n_row, int64_t k, const int16_t *x, int64_t n_x,
                    const float *s, float *const *logits)
{
    for (int64_t j = 0; j < n_x; j++, x += k)
        for (int64_t r = 0; r < n_row; r++) {
            int64_t sum = 0;
            for (int64_t i = 0; i < k; i++)
                sum += (int32_t)w[r * k + i] * x[i];
            logits[j][r] = (float)sum * (scale[r] / s[j]);
        }
}

static float tree_sum(float lane[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static void head_q8_0(const uint8_t *w, int64_t n_row, int64_t k, const int16_t *x, int64_t n_x, const float *s,
                      float *const *logits)
{
    for (int64_t j = 0; j < n_x; j++, x += k)
        for (int64_t r = 0; r < n_row; r++) {
            const uint8_t *block = w + r * (k / Q8_BLOCK) * Q8_BLOCK_BYTES;
            float lane[LANES] = {0};
            for (int64_t b = 0; b < k / Q8_BLOCK; b++, block += Q8_BLOCK_BYTES) {
                uint16_t d = (uint16_t)(block[0] | block[1] << 8);
                int32_t sum = 0;
                for (int i = 0; i < Q8_BLOCK; i++)
                    sum += (int8_t)block[2 + i] * x[b * Q8_BLOCK + i];
                lane[b % LANES] += (float)sum * half_float(d);
            }
            logits[j][r] = tree_sum(lane) / s[j];
        }
}

static void head_f16(const uint16_t *w, int64_t n_row, int64_t k, const float *x, float *logits)
{
    for (int64_t r = 0; r < n_row; r++) {
        float lane[LANES] = {0};
        for (int64_t i = 0; i < k; i++)
            lane[i % LANES] += half_float(w[r * k + i]) * x[i];
        logits[r] = tree_sum(lane);
    }
}

static void head_f32(const float *w, int64_t n_row, int64_t k, const float *x, float *logits)
{
    for (int64_t r = 0; r < n_row; r++) {
        float lane[LANES] = {0};
        for (int64_t i = 0; i < k; i++)
            lane[i % LANES] += w[r * k + i] * x[i];
        logits[r] = tree_sum(lane);
    }
}

/* q = clamp(round_half_even(x / scale), -127, 127); the clamp matters only where the scale is subnormal. */
static void quantize_by(const float *x, int64_t n, float scale, int8_t *q)
{
    for (int64_t i = 0; i < n; i++)
        q[i] = scale > 0.0f ? (int8_t)round_clamped(x[i] / scale, 127.0f) : 0;
}

static void quantize_row_i8(const float *w, int64_t k, int8_t *q, float *scale)
{
    float m = abs_max(w, k), s = 127.0f / (m > 1e-30f ? m : 1e-30f);
    *scale = m / 127.0f;
    for (int64_t i = 0; i < k; i++)
        q[i] = (int8_t)round_small(w[i] * s);
}

static void nibble_dots(const uint8_t *nibbles, int64_t n_row, int64_t k, const int8_t *x, int64_t n_x, int32_t *acc,
                        int64_t ld)
{
    for (int64_t j = 0; j < n_x; j++)
        for (int64_t r = 0; r < n_row; r++) {
            int32_t sum = 0;
            for (int64_t i = 0; i < k; i++)
                sum += (nibbles[r * (k / 2) + i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15) * x[j * k + i];
            acc[j * ld + r] = sum;
        }
}

static void bit_dots(const uint8_t *bits, const int32_t *list, int64_t n_row, int64_t k, const int8_t *x, int64_t n_x,
                     int32_t *acc, int64_t ld)
{
    for (int64_t j = 0; j < n_x; j++)
        for (int64_t r = 0; r < n_row; r++) {
            int32_t sum = 0;
            for (int64_t i = 0; i < k; i++)
                sum += (bits[list[r] * (k / 8) + i / 512 * 64 + i % 64] >> (i % 512 / 64) & 1) * x[j * k + i];
            acc[j * ld + r] = sum;
        }
}

static void byte_dots(const int8_t *w, int64_t n_row, int64_t k, const int8_t *x, int64_t n_x, int32_t *const *sums)
{
    for (int64_t j = 0; j < n_x; j++)
        for (int64_t r = 0; r < n_row; r++) {
            int32_t sum = 0;
            for (int64_t i = 0; i < k; i++)
                sum += w[r * k + i] * x[j * k + i];
            sums[j][r] = sum;
        }
}

/* ---- gated delta rule -------------------------------------------------------------------------------------------- */

static void conv_silu(const float *const *x, const float *w, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        float y = x[0][i] * w[i];
        for (int tap = 1; tap < CONV_TAPS; tap++)
            y += x[tap][i] * w[tap * n + i];
        out[i] = y / (1.0f + kernel_expf(-y));
    }
}

static float dot(const float *a, const float *b, int64_t n)
{
    float lane[LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i % LANES] += a[i] * b[i];
    return tree_sum(lane);
}

/* The share of what token s has added that is left at token t. */
static float left_of(const double *c, int64_t s, int64_t t) { return kernel_expf((float)(c[t] - c[s])); }

static void delta_chunk(const float *state, int64_t dk, int64_t dv, int64_t first, int64_t n, const float *k,
                        const double *c, const float *q, int64_t ld_q, const float *v, int64_t ld_v, const float *beta,
                        int64_t ld_beta, float *d, float *o, int64_t ld_o)
{
    for (int64_t t = first; t < first + n; t++, q += ld_q, v += ld_v, beta += ld_beta, o += ld_o) {
        const float e = kernel_expf((float)c[t]);
        float of_key[DELTA_CHUNK], of_query[DELTA_CHUNK];
        for (int64_t s = 0; s <= t; s++) {
            of_key[s] = left_of(c, s, t) * dot(k + t * dk, k + s * dk, dk);
            of_query[s] = left_of(c, s, t) * dot(q, k + s * dk, dk);
        }
        for (int64_t j = 0; j < dv; j++) {
            const float *column = state + j / DELTA_STRIP * dk * DELTA_STRIP + j % DELTA_STRIP;
            float *added = d + j / DELTA_STRIP * DELTA_CHUNK * DELTA_STRIP + j % DELTA_STRIP;
            float y = 0.0f, z = 0.0f;
            for (int64_t i = 0; i < dk; i++) {
                y += column[i * DELTA_STRIP] * k[t * dk + i];
                z += column[i * DELTA_STRIP] * q[i];
            }
            y = e * y;
            z = e * z;
            for (int64_t s = 0; s < t; s++)
                y += of_key[s] * added[s * DELTA_STRIP];
            added[t * DELTA_STRIP] = beta[0] * (v[j] - y);
            for (int64_t s = 0; s <= t; s++)
                z += of_query[s] * added[s * DELTA_STRIP];
            o[j] = z;
        }
    }
}

static void delta_seal(const float *state, int64_t dk, int64_t dv, const float *k, const double *c, const float *d,
                       float *to)
{
    const int64_t last = DELTA_CHUNK - 1;
    float left[DELTA_CHUNK];
    for (int64_t s = 0; s <= last; s++)
        left[s] = left_of(c, s, last);
    const float e = kernel_expf((float)c[last]);
    for (int64_t j = 0; j < dv; j++)
        for (int64_t i = 0; i < dk; i++) {
            const float *added = d + j / DELTA_STRIP * DELTA_CHUNK * DELTA_STRIP + j % DELTA_STRIP;
            const int64_t at = (j / DELTA_STRIP * dk + i) * DELTA_STRIP + j % DELTA_STRIP;
            float x = e * state[at];
            for (int64_t s = 0; s <= last; s++)
                x += (left[s] * k[s * dk + i]) * added[s * DELTA_STRIP];
            to[at] = x;
        }
}

/* ---- conversions ------------------------------------------------------------------------------------------------- */

static void half_to_float(const uint16_t *x, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = half_float(x[i]);
}

static void float_to_half(const float *x, int64_t n, uint16_t *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = float_half(x[i]);
}

/* ---- attention over one KV page ---------------------------------------------------------------------------------- */

static void score_f16(const void *k, const void *next, int64_t head_dim, int64_t n_q, const float *q, float *s)
{
    (void)next;
    for (int64_t i = 0; i < n_q; i++, q += head_dim, s += KV_PAGE)
        for (int t = 0; t < KV_PAGE; t++) {
            s[t] = 0.0f;
            for (int64_t d = 0; d < head_dim; d++)
                s[t] += q[d] * half_float(((const uint16_t *)k)[d * KV_PAGE + t]);
        }
}

static void score_f32(const void *k, const void *next, int64_t head_dim, int64_t n_q, const float *q, float *s)
{
    (void)next;
    for (int64_t i = 0; i < n_q; i++, q += head_dim, s += KV_PAGE)
        for (int t = 0; t < KV_PAGE; t++) {
            s[t] = 0.0f;
            for (int64_t d = 0; d < head_dim; d++)
                s[t] += q[d] * ((const float *)k)[d * KV_PAGE + t];
        }
}

static void score_i8(const void *k, const void *next, int64_t head_dim, int64_t n_q, const int8_t *q, const float *qs,
                     float *s)
{
    const int8_t *codes = k;
    const uint16_t *ks = (const uint16_t *)(codes + head_dim * KV_PAGE);
    (void)next;
    for (int64_t i = 0; i < n_q; i++, q += head_dim, s += KV_PAGE)
        for (int t = 0; t < KV_PAGE; t++) {
            int32_t sum = 0;
            for (int64_t d = 0; d < head_dim; d++)
                sum += q[d] * codes[(d / 4 * KV_PAGE + t) * 4 + d % 4];
            s[t] = (float)sum * (half_float(ks[t]) * qs[i]);
        }
}

/* Dimension d of token t among nibbles of keys. */
static int32_t key_nibble(const uint8_t *k, int64_t d, int t)
{
    uint8_t code = k[(d / 4 * (KV_PAGE / 2) + t % (KV_PAGE / 2)) * 4 + d % 4];
    return t < KV_PAGE / 2 ? code & 15 : code >> 4;
}

static int32_t value_nibble(const uint8_t *v, int64_t head_dim, int t, int64_t d)
{
    uint8_t code = v[(t % (KV_PAGE / 2) / 4 * head_dim + d) * 4 + t % 4];
    return t < KV_PAGE / 2 ? code & 15 : code >> 4;
}

static void score_i4(const void *k, const void *next, int64_t head_dim, int64_t n_q, const int8_t *q, const float *qs,
                     float *s)
{
    const int64_t group = kv_group(head_dim);
    const uint16_t *ks = (const uint16_t *)((const uint8_t *)k + head_dim * KV_PAGE / 2);
    (void)next;
    for (int64_t i = 0; i < n_q; i++, q += head_dim, s += KV_PAGE)
        for (int t = 0; t < KV_PAGE; t++) {
            s[t] = 0.0f;
            for (int64_t g = 0; g < head_dim / group; g++) {
                int32_t sum = 0;
                for (int64_t d = g * group; d < (g + 1) * group; d++)
                    sum += q[d] * (key_nibble(k, d, t) - 8);
                s[t] += (float)sum * half_float(ks[g * KV_PAGE + t]);
            }
            s[t] *= qs[i];
        }
}

static void score_i4c(const void *k, const void *next, int64_t head_dim, int64_t n_q, const float *q, float *s)
{
    const uint16_t *ks = (const uint16_t *)((const uint8_t *)k + head_dim * KV_PAGE / 2), *km = ks + head_dim;
    float x[MAX_HEAD_DIM];
    (void)next;
    for (int64_t i = 0; i < n_q; i++, q += head_dim, s += KV_PAGE) {
        float lane[LANES] = {0};
        for (int64_t d = 0; d < head_dim; d++) {
            x[d] = q[d] * half_float(ks[d]);
            lane[d % LANES] += q[d] * (half_float(km[d]) + 8.0f * half_float(ks[d]));
        }
        float base = tree_sum(lane), top = abs_max(x, head_dim);
        float r = top > 1e-30f ? 127.0f / top : 0.0f, unit = top > 1e-30f ? top / 127.0f : 0.0f;
        for (int t = 0; t < KV_PAGE; t++) {
            int32_t sum = 0;
            for (int64_t d = 0; d < head_dim; d++)
                sum += round_small(x[d] * r) * (key_nibble(k, d, t) - 8);
            s[t] = (float)sum * unit + base;
        }
    }
}

static void softmax_page(int64_t head_dim, int64_t n_q, uint32_t valid, float *s, float *m, float *l, float *o)
{
    for (int64_t i = 0; i < n_q; i++, s += KV_PAGE, o += head_dim) {
        float top = m[i], lane[LANES];
        for (int t = 0; t < KV_PAGE; t++)
            if (valid >> t & 1)
                top = s[t] > top ? s[t] : top;
        top += 0.0f; /* -0 becomes +0: which of two zeros is the maximum is a matter of order */
        if (top > m[i]) {
            float c = m[i] == -INFINITY ? 0.0f : kernel_expf(m[i] - top);
            l[i] *= c;
            for (int64_t d = 0; d < head_dim; d++)
                o[d] *= c;
            m[i] = top;
        }
        for (int t = 0; t < KV_PAGE; t++)
            s[t] = valid >> t & 1 ? kernel_expf(s[t] - top) : 0.0f;
        for (int j = 0; j < LANES; j++)
            lane[j] = s[j] + s[j + LANES];
        l[i] += tree_sum(lane);
    }
}

static void value_f16(const void *v, const void *next, int64_t head_dim, int64_t n_q, const float *p, float *o)
{
    (void)next;
    for (int64_t i = 0; i < n_q; i++, p += KV_PAGE, o += head_dim)
        for (int t = 0; t < KV_PAGE; t++)
            for (int64_t d = 0; d < head_dim; d++)
                o[d] += p[t] * half_float(((const uint16_t *)v)[t * head_dim + d]);
}

static void value_f32(const void *v, const void *next, int64_t head_dim, int64_t n_q, const float *p, float *o)
{
    (void)next;
    for (int64_t i = 0; i < n_q; i++, p += KV_PAGE, o += head_dim)
        for (int t = 0; t < KV_PAGE; t++)
            for (int64_t d = 0; d < head_dim; d++)
                o[d] += p[t] * ((const float *)v)[t * head_dim + d];
}

/* Weights w >= 0 as 0..255, 255 for the largest.  Returns the worth of one unit. */
static float weigh(const float w[KV_PAGE], int32_t u[KV_PAGE])
{
    float top = 0.0f;
    for (int t = 0; t < KV_PAGE; t++)
        top = w[t] > top ? w[t] : top;
    for (int t = 0; t < KV_PAGE; t++)
        u[t] = top > 1e-30f ? round_small(w[t] * (255.0f / top)) : 0; /* 255 / top stays finite */
    return top > 1e-30f ? top / 255.0f : 0.0f;
}

/* Lane j takes tokens j and j + 16. */
static float page_sum(const float x[KV_PAGE])
{
    float lane[LANES];
    for (int j = 0; j < LANES; j++)
        lane[j] = x[j] + x[j + LANES];
    return tree_sum(lane);
}

static void value_i8(const void *v, const void *next, int64_t head_dim, int64_t n_q, const float *p, float *o)
{
    const int8_t *codes = v;
    const uint16_t *vs = (const uint16_t *)(codes + head_dim * KV_PAGE);
    (void)next;
    for (int64_t i = 0; i < n_q; i++, p += KV_PAGE, o += head_dim) {
        float w[KV_PAGE];
        int32_t u[KV_PAGE];
        for (int t = 0; t < KV_PAGE; t++)
            w[t] = p[t] * half_float(vs[t]);
        float unit = weigh(w, u);
        for (int64_t d = 0; d < head_dim; d++) {
            int32_t sum = 0;
            for (int t = 0; t < KV_PAGE; t++)
                sum += u[t] * codes[(t / 4 * head_dim + d) * 4 + t % 4];
            o[d] += (float)sum * unit;
        }
    }
}

static void value_i4(const void *v, const void *next, int64_t head_dim, int64_t n_q, const float *p, float *o)
{
    const int64_t group = kv_group(head_dim);
    const uint16_t *vs = (const uint16_t *)((const uint8_t *)v + head_dim * KV_PAGE / 2);
    const uint16_t *vm = vs + head_dim / group * KV_PAGE;
    (void)next;
    for (int64_t i = 0; i < n_q; i++, p += KV_PAGE, o += head_dim)
        for (int64_t g = 0; g < head_dim / group; g++) {
            float w[KV_PAGE], b[KV_PAGE];
            int32_t u[KV_PAGE];
            for (int t = 0; t < KV_PAGE; t++) {
                w[t] = p[t] * half_float(vs[g * KV_PAGE + t]);
                b[t] = p[t] * half_float(vm[g * KV_PAGE + t]);
            }
            float base = page_sum(b), unit = weigh(w, u);
            for (int64_t d = g * group; d < (g + 1) * group; d++) {
                int32_t sum = 0;
                for (int t = 0; t < KV_PAGE; t++)
                    sum += u[t] * value_nibble(v, head_dim, t, d);
                o[d] += (float)sum * unit + base;
            }
        }
}

static void value_i4c(const void *v, const void *next, int64_t head_dim, int64_t n_q, const float *p, float *o)
{
    const uint16_t *vs = (const uint16_t *)((const uint8_t *)v + head_dim * KV_PAGE / 2), *vm = vs + head_dim;
    (void)next;
    for (int64_t i = 0; i < n_q; i++, p += KV_PAGE, o += head_dim) {
        int32_t u[KV_PAGE];
        float all = page_sum(p), unit = weigh(p, u);
        for (int64_t d = 0; d < head_dim; d++) {
            int32_t sum = 0;
            for (int t = 0; t < KV_PAGE; t++)
                sum += u[t] * value_nibble(v, head_dim, t, d);
            o[d] += (float)sum * unit * half_float(vs[d]) + half_float(vm[d]) * all;
        }
    }
}

static void seal_keys_i8(const uint16_t *k, int64_t head_dim, void *block)
{
    int8_t *codes = block;
    uint16_t *ks = (uint16_t *)(codes + head_dim * KV_PAGE);
    for (int t = 0; t < KV_PAGE; t++) {
        float max = 0.0f;
        for (int64_t d = 0; d < head_dim; d++) {
            float a = absf(half_float(k[d * KV_PAGE + t]));
            max = a > max ? a : max;
        }
        ks[t] = float_half(max / 127.0f);
        for (int64_t d = 0; d < head_dim; d++) {
            float x = half_float(k[d * KV_PAGE + t]);
            quantize_by(&x, 1, half_float(ks[t]), &codes[(d / 4 * KV_PAGE + t) * 4 + d % 4]);
        }
    }
}

static void seal_values_i8(const uint16_t *v, int64_t head_dim, void *block)
{
    int8_t *codes = block;
    uint16_t *vs = (uint16_t *)(codes + head_dim * KV_PAGE);
    for (int t = 0; t < KV_PAGE; t++) {
        float max = 0.0f;
        for (int64_t d = 0; d < head_dim; d++) {
            float a = absf(half_float(v[t * head_dim + d]));
            max = a > max ? a : max;
        }
        vs[t] = float_half(max / 127.0f);
        for (int64_t d = 0; d < head_dim; d++) {
            float x = half_float(v[t * head_dim + d]);
            quantize_by(&x, 1, half_float(vs[t]), &codes[(t / 4 * head_dim + d) * 4 + t % 4]);
        }
    }
}

static float quantize_q(const float *q, int64_t n, int8_t *q8)
{
    float qs = abs_max(q, n) / 127.0f;
    quantize_by(q, n, qs, q8);
    return qs;
}

const struct kernels kernels_scalar = {
    .name = "scalar",
    .own = {4, FETCH_L1, 2 << 10},
    .many_tokens = 16,
    .byte_vectors = 4,
    KERNEL_FUNCTIONS,
};
