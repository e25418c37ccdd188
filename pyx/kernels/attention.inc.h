/* attention.inc.h: attention over one KV page for every vector target, written once, on top of lanes.inc.h.
 *
 * The includer defines, for its instruction set,
 *
 *   HALF_WIDTH, vh, load_half_h   floats per vector in the loops over halves, that vector, halves -> floats
 *   HALF_VECTORS                  such vectors per query in flight
 *
 * and the integer products over n <= QUERIES queries (always inlined with constant n).  Sums come in native vectors;
 * lanes are tokens for keys and dimensions for values:
 *
 *   dot_keys_i8(k, next, head_dim, n, q, s)          s[i] = sum_d q[i][d] * k[d]
 *   dot_values_i8(v, next, head_dim, d, n, u, sum)   sum[i] = sum_t u[i][t] * v[t] for dimensions d .. d + VALUE_DIMS
 *   VALUE_DIMS                                       a multiple of LANE_WIDTH
 *   WEIGHT_PARTS                                     1; or 2, if dot_values_i8 gets the low nibbles of u in rows i and
 *                                                    the high ones in rows QUERIES + i
 *   round_bytes(x, u)                                floats of a page in 0 .. 255 -> bytes, round half to even
 *
 * `next` is the block that will be read after this one: every kernel fetches it, line by line, while it reads this
 * one. */
#ifndef BITNET_EDGE_ATTENTION_H
#define BITNET_EDGE_ATTENTION_H

#include "lanes.inc.h"

enum {
    QUERIES = 4, /* queries that share one pass over a block */
    VALUE_VECTORS = VALUE_DIMS / LANE_WIDTH,
    HALF_TILE = HALF_VECTORS * HALF_WIDTH,
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

/* One number per token of a page. */
INLINE void page_halves(const uint16_t *x, vf y[PAGE_VECTORS])
{
    for (int v = 0; v < PAGE_VECTORS; v++)
        y[v] = load_half(x + v * LANE_WIDTH);
}

INLINE void page_floats(const float *x, vf y[PAGE_VECTORS])
{
    for (int v = 0; v < PAGE_VECTORS; v++)
        y[v] = load_float(x + v * LANE_WIDTH);
}

/* The reductions of four queries end together: of two of them the lanes that come first, and those added to them. */
#define LOW_PAIRS(a, b) PICK(i4, a, b, 0, 4, 1, 5)
#define HIGH_PAIRS(a, b) PICK(i4, a, b, 2, 6, 3, 7)
#define LOW_HALVES(a, b) PICK(i4, a, b, 0, 1, 4, 5)
#define HIGH_HALVES(a, b) PICK(i4, a, b, 2, 3, 6, 7)

/* One sum for each of n queries: lane j takes tokens j and j + 16, then the tree. */
INLINE v4 page_sums(int n, const vf x[QUERIES][PAGE_VECTORS])
{
    v4 sum[QUERIES] = {{0}};
    for (int i = 0; i < n; i++) {
        vf lane[VECTORS];
        v4 q[4];
        for (int v = 0; v < VECTORS; v++)
            lane[v] = x[i][v] + x[i][v + VECTORS];
        quarters(lane, q);
        sum[i] = (q[0] + q[2]) + (q[1] + q[3]);
    }
    v4 a = LOW_PAIRS(sum[0], sum[1]) + HIGH_PAIRS(sum[0], sum[1]);
    v4 b = LOW_PAIRS(sum[2], sum[3]) + HIGH_PAIRS(sum[2], sum[3]);
    return LOW_HALVES(a, b) + HIGH_HALVES(a, b);
}

/* The largest number of each of n queries. */
INLINE v4 page_maxima(int n, const vf x[QUERIES][PAGE_VECTORS])
{
    v4 max[QUERIES] = {{0}};
    for (int i = 0; i < n; i++) {
        vf lane[VECTORS];
        v4 q[4];
        for (int v = 0; v < VECTORS; v++)
            lane[v] = larger(x[i][v], x[i][v + VECTORS]);
        quarters(lane, q);
        max[i] = larger4(larger4(q[0], q[2]), larger4(q[1], q[3]));
    }
    v4 a = larger4(LOW_PAIRS(max[0], max[1]), HIGH_PAIRS(max[0], max[1]));
    v4 b = larger4(LOW_PAIRS(max[2], max[3]), HIGH_PAIRS(max[2], max[3]));
    return larger4(LOW_HALVES(a, b), HIGH_HALVES(a, b));
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* Elements i .. i + HALF_WIDTH of a block of halves, or of floats. */
INLINE vh load_block(const void *block, int half, int64_t i)
{
    vh v;
    if (half)
        return load_half_h((const uint16_t *)block + i);
    memcpy(&v, (const float *)block + i, sizeof v);
    return v;
}

/* An assignment: neighbouring vectors would be copied by memcpy through memory, in smaller pieces. */
INLINE void store_floats(float *p, vh v)
{
    typedef vh anywhere __attribute__((aligned(4), may_alias));
    *(anywhere *)p = v;
}

/* As prefetch_same, at element i: a line holds 32 halves, or 16 floats. */
INLINE void prefetch_block(const void *next, int half, int64_t i)
{
    prefetch_l2((const char *)next + i * (half ? 2 : 4));
}

INLINE void score_floats_some(const void *k, const void *next, int half, int64_t head_dim, int n, const float *q,
                              float *s)
{
    for (int t = 0; t < KV_PAGE; t += HALF_TILE) {
        vh sum[QUERIES][HALF_VECTORS] = {0};
        for (int64_t d = 0; d < head_dim; d++)
            for (int j = 0; j < HALF_VECTORS; j++) {
                vh kv = load_block(k, half, d * KV_PAGE + t + j * HALF_WIDTH);
                if ((t + j * HALF_WIDTH) % (half ? 32 : 16) == 0)
                    prefetch_block(next, half, d * KV_PAGE + t + j * HALF_WIDTH);
                for (int i = 0; i < n; i++)
                    sum[i][j] += kv * q[i * head_dim + d];
            }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
#pragma GCC unroll 4
            for (int j = 0; j < HALF_VECTORS; j++)
                store_floats(s + i * KV_PAGE + t + j * HALF_WIDTH, sum[i][j]);
    }
}

static void score_f16(const void *k, const void *next, int64_t head_dim, int64_t n_q, const float *q, float *s)
{
#define PART(n, i) score_floats_some(k, next, 1, head_dim, n, q + (i) * head_dim, s + (i) * KV_PAGE)
    BY_QUERIES(n_q, PART)
#undef PART
}

static void score_f32(const void *k, const void *next, int64_t head_dim, int64_t n_q, const float *q, float *s)
{
#define PART(n, i) score_floats_some(k, next, 0, head_dim, n, q + (i) * head_dim, s + (i) * KV_PAGE)
    BY_QUERIES(n_q, PART)
#undef PART
}

INLINE void score_i8_some(const int8_t *k, const void *next, int64_t head_dim, int n, const int8_t *q, const float *qs,
                          float *s)
{
    vi dot[QUERIES][PAGE_VECTORS];
    vf ks[PAGE_VECTORS];
    dot_keys_i8(k, next, head_dim, n, q, dot);
    page_halves((const uint16_t *)(k + head_dim * KV_PAGE), ks);
    for (int i = 0; i < n; i++)
        for (int v = 0; v < PAGE_VECTORS; v++)
            store_float(s + i * KV_PAGE + v * LANE_WIDTH, __builtin_convertvector(dot[i][v], vf) * (ks[v] * qs[i]));
}

static void score_i8(const void *k, const void *next, int64_t head_dim, int64_t n_q, const int8_t *q, const float *qs,
                     float *s)
{
#define PART(n, i) score_i8_some(k, next, head_dim, n, q + (i) * head_dim, qs + (i), s + (i) * KV_PAGE)
    BY_QUERIES(n_q, PART)
#undef PART
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* Every step for all n queries before the next one: their reductions overlap. */
INLINE void softmax_some(int64_t head_dim, int n, int all, const vi mask[PAGE_VECTORS], float *s, float *m, float *l,
                         float *o)
{
    const vf none = {0};
    vf p[QUERIES][PAGE_VECTORS];
    v4 before = {0}, sum = {0};
    for (int i = 0; i < n; i++) {
        page_floats(s + i * KV_PAGE, p[i]);
        for (int v = 0; v < PAGE_VECTORS && !all; v++)
            p[i][v] = pick(mask[v], p[i][v], none - INFINITY);
    }
    memcpy(&before, m, (size_t)n * sizeof *m);
    memcpy(&sum, l, (size_t)n * sizeof *l);
    /* -0 becomes +0: which of two zeros is larger is a matter of order */
    v4 top = larger4(page_maxima(n, p), before) + 0.0f;
    for (int i = 0; i < n; i++)
        if (top[i] > before[i]) {
            float c = before[i] == -INFINITY ? 0.0f : kernel_expf(before[i] - top[i]);
            sum[i] *= c;
            for (int64_t d = 0; d < head_dim; d++)
                o[i * head_dim + d] *= c;
        }
    for (int i = 0; i < n; i++) {
        for (int v = 0; v < PAGE_VECTORS; v++)
            p[i][v] -= top[i];
        exp_falling(PAGE_VECTORS, p[i]);
        for (int v = 0; v < PAGE_VECTORS; v++) {
            if (!all)
                p[i][v] = pick(mask[v], p[i][v], none);
            store_float(s + i * KV_PAGE + v * LANE_WIDTH, p[i][v]);
        }
    }
    sum += page_sums(n, p);
    memcpy(m, &top, (size_t)n * sizeof *m);
    memcpy(l, &sum, (size_t)n * sizeof *l);
}

static void softmax_page(int64_t head_dim, int64_t n_q, uint32_t valid, float *s, float *m, float *l, float *o)
{
    int32_t lane[KV_PAGE]; /* all ones where the token is attended */
    vi mask[PAGE_VECTORS];
    for (uint32_t t = 0; t < KV_PAGE; t++)
        lane[t] = -(int32_t)(valid >> t & 1u);
    memcpy(mask, lane, sizeof mask);
#define PART(n, i, all) softmax_some(head_dim, n, all, mask, s + (i) * KV_PAGE, m + (i), l + (i), o + (i) * head_dim)
#define SOME(n, i) PART(n, i, 0)
#define ALL(n, i) PART(n, i, 1)
    if (valid == UINT32_MAX)
        BY_QUERIES(n_q, ALL)
    else
        BY_QUERIES(n_q, SOME)
#undef ALL
#undef SOME
#undef PART
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

INLINE void value_floats_tile(const void *v, const void *next, int half, int64_t head_dim, int64_t d, int n,
                              int vectors, const float *p, float *o)
{
    vh sum[QUERIES][HALF_VECTORS];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < vectors; j++)
            sum[i][j] = load_block(o, 0, i * head_dim + d + j * HALF_WIDTH);
    for (int t = 0; t < KV_PAGE; t++)
        for (int j = 0; j < vectors; j++) {
            vh vv = load_block(v, half, t * head_dim + d + j * HALF_WIDTH);
            if (d % 32 == 0 && j * HALF_WIDTH % (half ? 32 : 16) == 0)
                prefetch_block(next, half, t * head_dim + d + j * HALF_WIDTH);
            for (int i = 0; i < n; i++)
                sum[i][j] += vv * p[i * KV_PAGE + t];
        }
#pragma GCC unroll 4
    for (int i = 0; i < n; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            store_floats(o + i * head_dim + d + j * HALF_WIDTH, sum[i][j]);
}

INLINE void value_floats_some(const void *v, const void *next, int half, int64_t head_dim, int n, const float *p,
                              float *o)
{
    int64_t d = 0;
    for (; d + HALF_TILE <= head_dim; d += HALF_TILE)
        value_floats_tile(v, next, half, head_dim, d, n, HALF_VECTORS, p, o);
    for (; d + HALF_WIDTH <= head_dim; d += HALF_WIDTH)
        value_floats_tile(v, next, half, head_dim, d, n, 1, p, o);
    for (; d < head_dim; d++)
        for (int64_t t = 0; t < KV_PAGE; t++) {
            const int64_t at = t * head_dim + d;
            float vv = half ? half_float(((const uint16_t *)v)[at]) : ((const float *)v)[at];
            for (int i = 0; i < n; i++)
                o[i * head_dim + d] += p[i * KV_PAGE + t] * vv;
        }
}

static void value_f16(const void *v, const void *next, int64_t head_dim, int64_t n_q, const float *p, float *o)
{
#define PART(n, i) value_floats_some(v, next, 1, head_dim, n, p + (i) * KV_PAGE, o + (i) * head_dim)
    BY_QUERIES(n_q, PART)
#undef PART
}

static void value_f32(const void *v, const void *next, int64_t head_dim, int64_t n_q, const float *p, float *o)
{
#define PART(n, i) value_floats_some(v, next, 0, head_dim, n, p + (i) * KV_PAGE, o + (i) * head_dim)
    BY_QUERIES(n_q, PART)
#undef PART
}

/* w[i][t] = p[i][t] * x[t] */
INLINE void weights_times(int n, const float *p, const vf x[PAGE_VECTORS], vf w[QUERIES][PAGE_VECTORS])
{
    for (int i = 0; i < n; i++) {
        page_floats(p + i * KV_PAGE, w[i]);
        for (int v = 0; v < PAGE_VECTORS; v++)
            w[i][v] *= x[v];
    }
}

/* Weights w >= 0 of n queries as bytes, 255 for the largest of each.  Returns the worth of one unit, 0 where all
 * weights are. */
INLINE v4 weigh(int n, const vf w[QUERIES][PAGE_VECTORS], uint8_t (*u)[KV_PAGE])
{
    v4 top = page_maxima(n, w);
    i4 some = top > 1e-30f;
    v4 factor = (v4)((i4)(255.0f / top) & some);
    for (int i = 0; i < n; i++) {
        vf x[PAGE_VECTORS];
        for (int v = 0; v < PAGE_VECTORS; v++)
            x[v] = w[i][v] * factor[i];
        round_bytes(x, u[i]);
    }
    return (v4)((i4)(top / 255.0f) & some);
}

/* A weight that dot_values_i8 gets in parts, as one number again. */
INLINE int32_t weight(const uint8_t (*u)[KV_PAGE], int i, int t)
{
    return WEIGHT_PARTS == 2 ? u[QUERIES + i][t] << 4 | u[i][t] : u[i][t];
}

INLINE void value_i8_some(const int8_t *v, const void *next, int64_t head_dim, int n, const float *p, float *o)
{
    uint8_t u[WEIGHT_PARTS * QUERIES][KV_PAGE];
    vf vs[PAGE_VECTORS], w[QUERIES][PAGE_VECTORS];
    page_halves((const uint16_t *)(v + head_dim * KV_PAGE), vs);
    weights_times(n, p, vs, w);
    v4 unit = weigh(n, w, u);
    if (WEIGHT_PARTS == 2)
        for (int i = 0; i < n; i++)
            for (int t = 0; t < KV_PAGE; t++) {
                u[(WEIGHT_PARTS - 1) * QUERIES + i][t] = u[i][t] >> 4;
                u[i][t] &= 15;
            }
    int64_t d = 0;
    for (; d + VALUE_DIMS <= head_dim; d += VALUE_DIMS) {
        vi sum[QUERIES][VALUE_VECTORS];
        dot_values_i8(v, next, head_dim, d, n, u, sum);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < VALUE_VECTORS; j++) {
                float *at = o + i * head_dim + d + j * LANE_WIDTH;
                store_float(at, load_float(at) + __builtin_convertvector(sum[i][j], vf) * unit[i]);
            }
    }
    for (; d < head_dim; d++)
        for (int i = 0; i < n; i++) {
            int32_t total = 0;
            for (int t = 0; t < KV_PAGE; t++)
                total += weight(u, i, t) * v[(t / 4 * head_dim + d) * 4 + t % 4];
            o[i * head_dim + d] += (float)total * unit[i];
        }
}

static void value_i8(const void *v, const void *next, int64_t head_dim, int64_t n_q, const float *p, float *o)
{
#define PART(n, i) value_i8_some(v, next, head_dim, n, p + (i) * KV_PAGE, o + (i) * head_dim)
    BY_QUERIES(n_q, PART)
#undef PART
}

/* ---- sealing ----------------------------------------------------------------------------------------------------- */

INLINE void page_to_floats(const uint16_t *x, float y[KV_PAGE])
{
    for (int t = 0; t < KV_PAGE; t += LANE_WIDTH)
        store_float(y + t, load_half(x + t));
}

static void seal_keys_i8(const uint16_t *k, int64_t head_dim, void *block)
{
    int8_t *codes = block;
    uint16_t *ks = (uint16_t *)(codes + head_dim * KV_PAGE);
    float max[KV_PAGE] = {0}, scale[KV_PAGE], x[KV_PAGE];
    for (int64_t d = 0; d < head_dim; d++) {
        page_to_floats(k + d * KV_PAGE, x);
        for (int t = 0; t < KV_PAGE; t++)
            max[t] = choose(absf(x[t]) > max[t], absf(x[t]), max[t]);
    }
    for (int t = 0; t < KV_PAGE; t++)
        max[t] /= 127.0f;
    for (int t = 0; t < KV_PAGE; t += LANE_WIDTH)
        store_half(ks + t, load_float(max + t));
    page_to_floats(ks, scale);
    for (int64_t d = 0; d < head_dim; d++) {
        int8_t code[KV_PAGE];
        page_to_floats(k + d * KV_PAGE, x);
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

#endif
