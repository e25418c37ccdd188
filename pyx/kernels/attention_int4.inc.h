/* attention_int4.inc.h: attention over 4-bit KV blocks for every vector target, on top of attention.inc.h.
 * The includer defines
 *
 *   dot_keys_i4(k, next, n_quad, n, q, ld_q, s)      s[i] = sum of q[i * ld_q + d] * (nibble[d] - 8), d < 4 * n_quad
 *   dot_values_i4(v, next, head_dim, d, n, u, sum)   sum[i] = sum_t u[i][t] * nibble[t] of d .. d + VALUE_DIMS
 */
#ifndef BITNET_EDGE_ATTENTION_INT4_H
#define BITNET_EDGE_ATTENTION_INT4_H

#include "attention.inc.h"

/* ---- scores ------------------------------------------------------------------------------------------------------ */

INLINE void score_i4_some(const uint8_t *k, const uint8_t *next, int64_t head_dim, int n, const int8_t *q,
                          const float *qs, float *s)
{
    const uint16_t *scales = (const uint16_t *)(k + head_dim * KV_PAGE / 2);
    const int64_t group = kv_group(head_dim);
    vf sum[QUERIES][PAGE_VECTORS] = {0}, ks[PAGE_VECTORS];
    for (int64_t d = 0; d < head_dim; d += group, scales += KV_PAGE) {
        vi dot[QUERIES][PAGE_VECTORS];
        dot_keys_i4(k + d * KV_PAGE / 2, next + d * KV_PAGE / 2, group / 4, n, q + d, head_dim, dot);
        prefetch_same(scales, k, next);
        page_halves(scales, ks);
        for (int i = 0; i < n; i++)
            for (int v = 0; v < PAGE_VECTORS; v++)
                sum[i][v] += __builtin_convertvector(dot[i][v], vf) * ks[v];
    }
    for (int i = 0; i < n; i++)
        for (int v = 0; v < PAGE_VECTORS; v++)
            store_float(s + i * KV_PAGE + v * LANE_WIDTH, sum[i][v] * qs[i]);
}

static void score_i4(const void *k, const void *next, int64_t head_dim, int64_t n_q, const int8_t *q, const float *qs,
                     float *s)
{
#define PART(n, i) score_i4_some(k, next, head_dim, n, q + (i) * head_dim, qs + (i), s + (i) * KV_PAGE)
    BY_QUERIES(n_q, PART)
#undef PART
}

/* A query times the scales of the channels, as int8; and what it makes of the middle of their ranges.  Returns the
 * worth of one unit. */
INLINE float fold_scales(const uint16_t *ks, const uint16_t *km, int64_t head_dim, const float *q, int8_t *q8,
                         float *base)
{
    vf max[VECTORS] = {0}, sum[VECTORS] = {0};
    float x[MAX_HEAD_DIM], lane[LANES], top = 0.0f;
    int64_t d = 0;
    for (; d + LANES <= head_dim; d += LANES)
        for (int v = 0; v < VECTORS; v++) {
            int64_t at = d + v * LANE_WIDTH;
            vf scale = load_half(ks + at), qv = load_float(q + at), folded = qv * scale;
            store_float(x + at, folded);
            max[v] = larger((vf)((vi)folded & 0x7fffffff), max[v]);
            sum[v] += qv * (load_half(km + at) + 8.0f * scale);
        }
    memcpy(lane, sum, sizeof lane);
    for (int j = 0; d < head_dim; d++, j++) {
        float scale = half_float(ks[d]);
        x[d] = q[d] * scale;
        top = absf(x[d]) > top ? absf(x[d]) : top;
        lane[j] += q[d] * (half_float(km[d]) + 8.0f * scale);
    }
    memcpy(sum, lane, sizeof lane);
    *base = tree_sum(sum);
    top = tree_max(max, top);
    if (!(top > 1e-30f)) {
        memset(q8, 0, (size_t)head_dim);
        return 0.0f;
    }
    float r = 127.0f / top;
    for (d = 0; d < head_dim; d++)
        q8[d] = (int8_t)round_small(x[d] * r);
    return top / 127.0f;
}

INLINE void score_i4c_some(const uint8_t *k, const uint8_t *next, int64_t head_dim, int n, const float *q, float *s)
{
    const uint16_t *ks = (const uint16_t *)(k + head_dim * KV_PAGE / 2), *km = ks + head_dim;
    int8_t q8[QUERIES][MAX_HEAD_DIM];
    float unit[QUERIES], base[QUERIES];
    vi dot[QUERIES][PAGE_VECTORS];
    for (int i = 0; i < n; i++)
        unit[i] = fold_scales(ks, km, head_dim, q + i * head_dim, q8[i], base + i);
    for (int64_t d = 0; d < 2 * head_dim; d += 32)
        prefetch_same(ks + d, k, next);
    dot_keys_i4(k, next, head_dim / 4, n, q8[0], MAX_HEAD_DIM, dot);
    for (int i = 0; i < n; i++)
        for (int v = 0; v < PAGE_VECTORS; v++)
            store_float(s + i * KV_PAGE + v * LANE_WIDTH, __builtin_convertvector(dot[i][v], vf) * unit[i] + base[i]);
}

static void score_i4c(const void *k, const void *next, int64_t head_dim, int64_t n_q, const float *q, float *s)
{
#define PART(n, i) score_i4c_some(k, next, head_dim, n, q + (i) * head_dim, s + (i) * KV_PAGE)
    BY_QUERIES(n_q, PART)
#undef PART
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* sum_t u[t] * nibble[t] of one dimension, for those that fill no vector. */
INLINE int32_t dot_value_i4(const uint8_t *v, int64_t head_dim, int64_t d, const uint8_t u[KV_PAGE])
{
    int32_t total = 0;
    for (int t = 0; t < KV_PAGE / 2; t++) {
        uint8_t code = v[(t / 4 * head_dim + d) * 4 + t % 4];
        total += u[t] * (code & 15) + u[t + KV_PAGE / 2] * (code >> 4);
    }
    return total;
}

INLINE void value_i4_some(const uint8_t *v, const uint8_t *next, int64_t head_dim, int n, const float *p, float *o)
{
    const int64_t group = kv_group(head_dim);
    const uint16_t *scales = (const uint16_t *)(v + head_dim * KV_PAGE / 2);
    const uint16_t *least = scales + head_dim / group * KV_PAGE;
    for (int64_t g = 0; g < head_dim; g += group, scales += KV_PAGE, least += KV_PAGE) {
        uint8_t u[QUERIES][KV_PAGE];
        vf x[PAGE_VECTORS], w[QUERIES][PAGE_VECTORS];
        prefetch_same(scales, v, next);
        prefetch_same(least, v, next);
        page_halves(least, x);
        weights_times(n, p, x, w);
        v4 base = page_sums(n, w);
        page_halves(scales, x);
        weights_times(n, p, x, w);
        v4 unit = weigh(n, w, u);
        int64_t d = g;
        for (; d + VALUE_DIMS <= g + group; d += VALUE_DIMS) {
            vi sum[QUERIES][VALUE_VECTORS];
            dot_values_i4(v, next, head_dim, d, n, u, sum);
            for (int i = 0; i < n; i++)
                for (int j = 0; j < VALUE_VECTORS; j++) {
                    float *at = o + i * head_dim + d + j * LANE_WIDTH;
                    vf part = __builtin_convertvector(sum[i][j], vf) * unit[i] + base[i];
                    store_float(at, load_float(at) + part);
                }
        }
        for (; d < g + group; d++)
            for (int i = 0; i < n; i++)
                o[i * head_dim + d] += (float)dot_value_i4(v, head_dim, d, u[i]) * unit[i] + base[i];
    }
}

static void value_i4(const void *v, const void *next, int64_t head_dim, int64_t n_q, const float *p, float *o)
{
#define PART(n, i) value_i4_some(v, next, head_dim, n, p + (i) * KV_PAGE, o + (i) * head_dim)
    BY_QUERIES(n_q, PART)
#undef PART
}

INLINE void value_i4c_some(const uint8_t *v, const uint8_t *next, int64_t head_dim, int n, const float *p, float *o)
{
    const uint16_t *vs = (const uint16_t *)(v + head_dim * KV_PAGE / 2), *vm = vs + head_dim;
    uint8_t u[QUERIES][KV_PAGE];
    vf w[QUERIES][PAGE_VECTORS];
    for (int i = 0; i < n; i++)
        page_floats(p + i * KV_PAGE, w[i]);
    v4 all = page_sums(n, w), unit = weigh(n, w, u);
    for (int64_t d = 0; d < 2 * head_dim; d += 32)
        prefetch_same(vs + d, v, next);
    int64_t d = 0;
    for (; d + VALUE_DIMS <= head_dim; d += VALUE_DIMS) {
        vi sum[QUERIES][VALUE_VECTORS];
        dot_values_i4(v, next, head_dim, d, n, u, sum);
        for (int j = 0; j < VALUE_VECTORS; j++) {
            vf scale = load_half(vs + d + j * LANE_WIDTH), least = load_half(vm + d + j * LANE_WIDTH);
            for (int i = 0; i < n; i++) {
                float *at = o + i * head_dim + d + j * LANE_WIDTH;
                vf part = __builtin_convertvector(sum[i][j], vf) * unit[i] * scale + least * all[i];
                store_float(at, load_float(at) + part);
            }
        }
    }
    for (; d < head_dim; d++)
        for (int i = 0; i < n; i++)
            o[i * head_dim + d] += (float)dot_value_i4(v, head_dim, d, u[i]) * unit[i] * half_float(vs[d]) +
                                   half_float(vm[d]) * all[i];
}

static void value_i4c(const void *v, const void *next, int64_t head_dim, int64_t n_q, const float *p, float *o)
{
#define PART(n, i) value_i4c_some(v, next, head_dim, n, p + (i) * KV_PAGE, o + (i) * head_dim)
    BY_QUERIES(n_q, PART)
#undef PART
}

#endif
