/* pages.h: attention over one KV page for every vector row, written once, on top of lanes.h.
 *
 * The includer defines, for its instruction set, the two integer products (n <= QUERIES queries, always inlined with
 * constant n):
 *
 *   void dot_keys(k, next, head_dim, n, q, s)         s[i][t] = sum_d q[i][d] * k8[d][t]
 *   void dot_values(v, next, head_dim, d, n, u, sum)  sum[i][j] = sum_t u[i][t] * v8[t][d + j], j < VALUE_DIMS
 *   VALUE_DIMS                    dimensions per dot_values
 *   typedef ... value_weight      how dot_values wants u: uint8_t or int16_t
 *
 * `next` is the block that will be read after this one: every kernel fetches it, line by line, while it reads this
 * one, at the same distance from its start.
 *
 * Every block is stored by token lanes: one vector holds the same dimension (or four of them) of neighbouring tokens,
 * so a score is finished in its lane and nothing is added across lanes. */
#ifndef BITNET_EDGE_PAGES_H
#define BITNET_EDGE_PAGES_H

#include "lanes.h"

enum {
    QUERIES = 4, /* queries that share one pass over a block */
    PAGE_VECTORS = KV_PAGE / LANE_WIDTH,
};

/* part(n, i) for the queries i .. i + n - 1 with constant n <= QUERIES, until all n_q are done. */
#define BY_QUERIES(n_q, part)                                                                                          \
    for (int64_t i_ = 0; i_ < (n_q); i_ += QUERIES)                                                                    \
        switch ((n_q) - i_) {                                                                                          \
        case 1: part(1, i_); break;                                                                                    \
        case 2: part(2, i_); break;                                                                                    \
        case 3: part(3, i_); break;                                                                                    \
        default: part(4, i_);                                                                                          \
        }

/* The same byte of the next block. */
INLINE void prefetch_same(const void *at, const void *block, const void *next)
{
    prefetch_l2((const char *)next + ((const char *)at - (const char *)block));
}

/* One half per token of a page. */
INLINE void page_to_float(const uint16_t *x, float *y)
{
    for (int t = 0; t < KV_PAGE; t += LANE_WIDTH)
        store_float(y + t, load_half(x + t));
}

INLINE void page_to_half(const float *x, uint16_t *y)
{
    for (int t = 0; t < KV_PAGE; t += LANE_WIDTH)
        store_half(y + t, load_float(x + t));
}

/* ---- scores ----------------------------------------------------------------------------------------------------- */

INLINE void score_f16_some(const uint16_t *k, const void *next, int64_t head_dim, int n, const float *q, float *s)
{
    for (int t = 0; t < KV_PAGE; t += LANES) {
        vf sum[QUERIES][VECTORS] = {0};
        for (int64_t d = 0; d < head_dim; d++)
            for (int j = 0; j < VECTORS; j++) {
                const uint16_t *at = k + d * KV_PAGE + t + j * LANE_WIDTH;
                vf kv = load_half(at);
                if (t == 0 && j == 0)
                    prefetch_same(at, k, next);
                for (int i = 0; i < n; i++)
                    sum[i][j] += kv * q[i * head_dim + d];
            }
        for (int i = 0; i < n; i++)
            for (int j = 0; j < VECTORS; j++)
                store_float(s + i * KV_PAGE + t + j * LANE_WIDTH, sum[i][j]);
    }
}

static void score_f16(const void *k, const void *next, int64_t head_dim, int64_t n_q, const float *q, float *s)
{
#define PART(n, i) score_f16_some(k, next, head_dim, n, q + (i) * head_dim, s + (i) * KV_PAGE)
    BY_QUERIES(n_q, PART)
#undef PART
}

INLINE void score_i8_some(const int8_t *k, const void *next, int64_t head_dim, int n, const float ks[KV_PAGE],
                          const int8_t *q, const float *qs, float *s)
{
    int32_t dot[QUERIES][KV_PAGE];
    dot_keys(k, next, head_dim, n, q, dot);
    for (int i = 0; i < n; i++)
        for (int t = 0; t < KV_PAGE; t += LANE_WIDTH)
            store_float(s + i * KV_PAGE + t, load_int(dot[i] + t) * (load_float(ks + t) * qs[i]));
}

static void score_i8(const void *k, const void *next, int64_t head_dim, int64_t n_q, const int8_t *q, const float *qs,
                     float *s)
{
    float ks[KV_PAGE];
    page_to_float((const uint16_t *)((const int8_t *)k + head_dim * KV_PAGE), ks);
#define PART(n, i) score_i8_some(k, next, head_dim, n, ks, q + (i) * head_dim, qs + (i), s + (i) * KV_PAGE)
    BY_QUERIES(n_q, PART)
#undef PART
}

/* ---- softmax ---------------------------------------------------------------------------------------------------- */

static void softmax_page(int64_t head_dim, int64_t n_q, uint32_t valid, float *s, float *m, float *l, float *o)
{
    const vf none = {0};
    int32_t valid_lane[KV_PAGE]; /* all ones where the token is attended */
    vi mask[PAGE_VECTORS];
    for (uint32_t t = 0; t < KV_PAGE; t++)
        valid_lane[t] = -(int32_t)(valid >> t & 1u);
    memcpy(mask, valid_lane, sizeof mask);
    for (int64_t i = 0; i < n_q; i++, s += KV_PAGE) {
        vf p[PAGE_VECTORS], lane[VECTORS];
        for (int v = 0; v < PAGE_VECTORS; v++)
            p[v] = load_float(s + v * LANE_WIDTH);
        for (int v = 0; v < VECTORS; v++)
            lane[v] = larger(pick(mask[v], p[v], none - INFINITY),
                             pick(mask[v + VECTORS], p[v + VECTORS], none - INFINITY));
        float top = tree_max(lane, m[i]) + 0.0f; /* -0 becomes +0: which of two zeros is larger is a matter of order */
        if (top > m[i]) {
            float c = m[i] == -INFINITY ? 0.0f : kernel_expf(m[i] - top);
            l[i] *= c;
            for (int64_t d = 0; d < head_dim; d++)
                o[i * head_dim + d] *= c;
            m[i] = top;
        }
        for (int v = 0; v < PAGE_VECTORS; v++) {
            p[v] = pick(mask[v], exp_lanes(p[v] - top), none);
            store_float(s + v * LANE_WIDTH, p[v]);
        }
        for (int v = 0; v < VECTORS; v++)
            lane[v] = p[v] + p[v + VECTORS];
        l[i] += tree_sum(lane);
    }
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

INLINE void value_f16_some(const uint16_t *v, const void *next, int64_t head_dim, int n, const float *p, float *o)
{
    int64_t d = 0;
    for (; d + LANES <= head_dim; d += LANES) {
        vf sum[QUERIES][VECTORS];
        for (int i = 0; i < n; i++)
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] = load_float(o + i * head_dim + d + j * LANE_WIDTH);
        for (int t = 0; t < KV_PAGE; t++)
            for (int j = 0; j < VECTORS; j++) {
                const uint16_t *at = v + t * head_dim + d + j * LANE_WIDTH;
                vf vv = load_half(at);
                if (j == 0 && d % 32 == 0)
                    prefetch_same(at, v, next);
                for (int i = 0; i < n; i++)
                    sum[i][j] += vv * p[i * KV_PAGE + t];
            }
        for (int i = 0; i < n; i++)
            for (int j = 0; j < VECTORS; j++)
                store_float(o + i * head_dim + d + j * LANE_WIDTH, sum[i][j]);
    }
    for (; d < head_dim; d++)
        for (int t = 0; t < KV_PAGE; t++) {
            float vv = half_float(v[t * head_dim + d]);
            for (int i = 0; i < n; i++)
                o[i * head_dim + d] += p[i * KV_PAGE + t] * vv;
        }
}

static void value_f16(const void *v, const void *next, int64_t head_dim, int64_t n_q, const float *p, float *o)
{
#define PART(n, i) value_f16_some(v, next, head_dim, n, p + (i) * KV_PAGE, o + (i) * head_dim)
    BY_QUERIES(n_q, PART)
#undef PART
}

/* Probabilities times value scales as bytes, 255 for the largest.  Returns what one unit of u is worth, or -1 where
 * nothing is to be added, not even +0 to a -0. */
INLINE float weigh_values(const float *p, const float vs[KV_PAGE], value_weight u[KV_PAGE])
{
    float w[KV_PAGE];
    vf wv[PAGE_VECTORS], lane[VECTORS];
    for (int j = 0; j < PAGE_VECTORS; j++) {
        wv[j] = load_float(p + j * LANE_WIDTH) * load_float(vs + j * LANE_WIDTH);
        store_float(w + j * LANE_WIDTH, wv[j]);
    }
    for (int j = 0; j < VECTORS; j++)
        lane[j] = larger(wv[j], wv[j + VECTORS]);
    float top = tree_max(lane, 0.0f);
    if (!(top > 1e-30f)) {
        memset(u, 0, KV_PAGE * sizeof u[0]);
        return -1.0f;
    }
    float r = 255.0f / top;
    for (int t = 0; t < KV_PAGE; t++)
        u[t] = (value_weight)round_clamped(w[t] * r, 255.0f);
    return top / 255.0f;
}

INLINE void value_i8_some(const int8_t *v, const void *next, int64_t head_dim, int n, const float vs[KV_PAGE],
                          const float *p, float *o)
{
    int32_t sum[QUERIES][VALUE_DIMS];
    float unit[QUERIES];
    value_weight u[QUERIES][KV_PAGE];
    for (int i = 0; i < n; i++)
        unit[i] = weigh_values(p + i * KV_PAGE, vs, u[i]);
    int64_t d = 0;
    for (; d + VALUE_DIMS <= head_dim; d += VALUE_DIMS) {
        dot_values(v, next, head_dim, d, n, (const value_weight(*)[KV_PAGE])u, sum);
        for (int i = 0; i < n; i++)
            if (unit[i] >= 0.0f)
                for (int j = 0; j < VALUE_DIMS; j += LANE_WIDTH) {
                    float *at = o + i * head_dim + d + j;
                    store_float(at, load_float(at) + load_int(sum[i] + j) * unit[i]);
                }
    }
    for (; d < head_dim; d++)
        for (int i = 0; i < n; i++) {
            int32_t total = 0;
            for (int t = 0; t < KV_PAGE; t++)
                total += u[i][t] * v[(t / 4 * head_dim + d) * 4 + t % 4];
            if (unit[i] >= 0.0f)
                o[i * head_dim + d] += (float)total * unit[i];
        }
}

static void value_i8(const void *v, const void *next, int64_t head_dim, int64_t n_q, const float *p, float *o)
{
    float vs[KV_PAGE];
    page_to_float((const uint16_t *)((const int8_t *)v + head_dim * KV_PAGE), vs);
#define PART(n, i) value_i8_some(v, next, head_dim, n, vs, p + (i) * KV_PAGE, o + (i) * head_dim)
    BY_QUERIES(n_q, PART)
#undef PART
}

/* ---- sealing ---------------------------------------------------------------------------------------------------- */

static void seal_keys_i8(const uint16_t *k, int64_t head_dim, void *block)
{
    int8_t *codes = block;
    uint16_t *ks = (uint16_t *)(codes + head_dim * KV_PAGE);
    float max[KV_PAGE] = {0}, scale[KV_PAGE], x[KV_PAGE];
    for (int64_t d = 0; d < head_dim; d++) {
        page_to_float(k + d * KV_PAGE, x);
        for (int t = 0; t < KV_PAGE; t++)
            max[t] = choose(absf(x[t]) > max[t], absf(x[t]), max[t]);
    }
    for (int t = 0; t < KV_PAGE; t++)
        max[t] /= 127.0f;
    page_to_half(max, ks);
    page_to_float(ks, scale);
    for (int64_t d = 0; d < head_dim; d++) {
        int8_t code[KV_PAGE];
        page_to_float(k + d * KV_PAGE, x);
        for (int t = 0; t < KV_PAGE; t++)
            code[t] = (int8_t)(round_clamped(x[t] / scale[t], 127.0f) & -(scale[t] > 0.0f));
        for (int t = 0; t < KV_PAGE; t++)
            codes[(d / 4 * KV_PAGE + t) * 4 + d % 4] = code[t];
    }
}

static void seal_values_i8(const uint16_t *v, int64_t head_dim, void *block)
{
    enum { DIMS = 64 };
    int8_t *codes = block;
    uint16_t *vs = (uint16_t *)(codes + head_dim * KV_PAGE);
    for (int t = 0; t < KV_PAGE; t++) {
        const uint16_t *row = v + t * head_dim;
        float y[DIMS], row_max = 0.0f;
        int8_t code[DIMS];
        for (int64_t d = 0; d < head_dim; d += DIMS) {
            int64_t n = head_dim - d < DIMS ? head_dim - d : DIMS;
            half_to_float(row + d, n, y);
            float a = abs_max(y, n);
            row_max = a > row_max ? a : row_max;
        }
        vs[t] = float_half(row_max / 127.0f);
        for (int64_t d = 0; d < head_dim; d += DIMS) {
            int64_t n = head_dim - d < DIMS ? head_dim - d : DIMS;
            half_to_float(row + d, n, y);
            quantize_by(y, n, half_float(vs[t]), code);
            for (int64_t j = 0; j < n; j++)
                codes[(t / 4 * head_dim + d + j) * 4 + t % 4] = code[j];
        }
    }
}

/* The members of the table that this header provides. */
#define PAGES_KERNELS                                                                                                  \
    .score_f16 = score_f16, .score_i8 = score_i8, .softmax_page = softmax_page, .value_f16 = value_f16,                \
    .value_i8 = value_i8, .seal_keys_i8 = seal_keys_i8, .seal_values_i8 = seal_values_i8

#endif
