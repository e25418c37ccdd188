/* lanes.inc.h: the float kernels of every vector target, written once.
 *
 * The includer defines, for its instruction set, the native float vector and the few steps that need intrinsics:
 *
 *   prefetch_l2(p)                fetch the line of p into the second-level cache
 *   fetch(p, n)                   fetch n bytes of a stream that is read once
 *   INLINE                        static inline __attribute__((always_inline))
 *   LANE_WIDTH                    floats per native vector (4, 8 or 16)
 *   typedef ... vf                that vector, __attribute__((vector_size(4 * LANE_WIDTH)))
 *   vf   load_half(const uint16_t *)            halves -> floats
 *   void store_half(uint16_t *, vf)             floats -> halves, round to nearest even
 *   LARGER(a, b)                                a > b ? a : b of every lane, if there is an instruction for it;
 *                                               LARGER4 of four
 *
 * Loops are element-wise or keep FLOAT_LANES separate sums, so vectorising them changes no bit.  Everything is static:
 * see numbers.h. */
#ifndef BITNET_EDGE_LANES_H
#define BITNET_EDGE_LANES_H

#include "template.h"

#include <math.h>

enum {
    LANES = FLOAT_LANES,
    VECTORS = FLOAT_LANES / LANE_WIDTH,  /* native vectors that hold the lanes                */
    PAGE_VECTORS = KV_PAGE / LANE_WIDTH, /* those that hold a number for each token of a page */
    HEAD_ROWS = 4,                       /* rows of a float head that share the activations   */
};

INLINE vf load_float(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store_float(float *p, vf v) { memcpy(p, &v, sizeof v); }

typedef int32_t vi __attribute__((vector_size(4 * LANE_WIDTH)));
typedef uint32_t vu __attribute__((vector_size(4 * LANE_WIDTH)));
typedef float v4 __attribute__((vector_size(16)));
typedef int32_t i4 __attribute__((vector_size(16)));

/* int32 -> float */
INLINE vf load_int(const int32_t *p)
{
    vi v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, vf);
}

INLINE vf pick(vi mask, vf yes, vf no) { return (vf)(((vi)yes & mask) | ((vi)no & ~mask)); }

/* The larger of two vectors, lane by lane; b where one is NaN. */
#ifdef LARGER
INLINE vf larger(vf a, vf b) { return (vf)LARGER(a, b); }
#else
INLINE vf larger(vf a, vf b)
{
    vi above = a > b;
#if defined(__clang__) && defined(__aarch64__)
    __asm__("" : "+w"(above)); /* clang would make it fmaxnm, which a signalling NaN wins */
#endif
    return pick(above, a, b);
}
#endif

/* The lanes as quarters, so that the last steps of a reduction are written once for every vector width. */
INLINE void quarters(const vf v[VECTORS], v4 q[4]) { memcpy(q, v, sizeof(v4[4])); }

/* Pairwise: (i, i+8), (i, i+4), (i, i+2), (i, i+1). */
INLINE float tree_sum(const vf v[VECTORS])
{
    v4 q[4];
    quarters(v, q);
    q[0] = (q[0] + q[2]) + (q[1] + q[3]);
    return (q[0][0] + q[0][2]) + (q[0][1] + q[0][3]);
}

INLINE v4 larger4(v4 a, v4 b)
{
#ifdef LARGER4
    return (v4)LARGER4(a, b);
#else
    i4 mask = a > b;
    return (v4)(((i4)a & mask) | ((i4)b & ~mask));
#endif
}

/* The largest lane, if larger than m.  (Any order gives the same bits, but for the sign of a zero.) */
INLINE float tree_max(const vf v[VECTORS], float m)
{
    v4 q[4];
    quarters(v, q);
    q[0] = larger4(larger4(q[0], q[2]), larger4(q[1], q[3]));
    m = q[0][0] > m ? q[0][0] : m;
    m = q[0][1] > m ? q[0][1] : m;
    m = q[0][2] > m ? q[0][2] : m;
    return q[0][3] > m ? q[0][3] : m;
}

/* kernel_expf of every lane of n vectors, at most PAGE_VECTORS, no lane above 88.  Every step for all of them: a
 * processor looks ahead no further than two or three of these chains. */
INLINE void exp_falling(int n, vf *x)
{
    const vf none = {0};
    vf scale[PAGE_VECTORS], r[PAGE_VECTORS], p[PAGE_VECTORS];
#define EACH for (int i = 0; i < n; i++)
    EACH r[i] = larger(none - 87.0f, x[i]);
    EACH scale[i] = r[i] * 1.44269504088896341f + 12582912.0f;
    EACH p[i] = scale[i] - 12582912.0f;
    EACH r[i] = (r[i] - p[i] * 0.693359375f) + p[i] * 2.12194440e-4f;
    EACH scale[i] = (vf)(((vu)scale[i] - 0x4b400000u + 127u) << 23);
    EACH p[i] = (none + 1.9875691500e-4f) * r[i] + 1.3981999507e-3f;
    EACH p[i] = p[i] * r[i] + 8.3334519073e-3f;
    EACH p[i] = p[i] * r[i] + 4.1665795894e-2f;
    EACH p[i] = p[i] * r[i] + 1.6666665459e-1f;
    EACH p[i] = p[i] * r[i] + 5.0000001201e-1f;
    EACH p[i] = (p[i] * (r[i] * r[i]) + r[i]) + 1.0f;
    EACH x[i] = pick(x[i] < -87.0f, none, p[i] * scale[i]);
#undef EACH
}

/* kernel_expf of every lane. */
INLINE vf exp_lanes(vf x)
{
    vf none = {0}, y = pick(x > 88.0f, none + 88.0f, x);
    exp_falling(1, &y);
    return pick(x > 88.0f, none + INFINITY, y);
}

/* ---- scales per group -------------------------------------------------------------------------------------------- */

enum {
    PANEL_VECTORS = PANEL_ROWS / LANE_WIDTH, /* of one number for each row           */
    GROUP_ROWS = 16,                         /* rows of a tile, straight from groups */
};

/* Panels are one stream, read faster than rows, and so fetched farther ahead.  A processor fetches it into its
 * second-level cache by itself, too: where it does so well that rows may be fetched apart, lines of panels are only
 * taken from there. */
INLINE int64_t panel_ahead(void) { return kernels_chosen.fetch == FETCH_ROWS ? 320 : 2 * kernels_chosen.ahead; }

INLINE void panel_fetch(const uint8_t *lines, int n, int n_token)
{
    if (n_token > 1 || kernels_chosen.fetch == FETCH_ROWS)
        for (int i = 0; i < n; i += 64)
            __builtin_prefetch(lines + i, 0, 3);
    else
        fetch(lines, n);
}

/* The next lines of `ahead`, for as many bytes as one group of 16 rows has. */
INLINE void group_fetch(const uint8_t *ahead, int64_t g, int group_bytes)
{
    if (ahead)
        fetch(ahead + 16 * g * group_bytes, 16 * group_bytes);
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

static float abs_max(const float *x, int64_t n)
{
    enum { CHAINS = 4 }; /* a comparison and a choice take several times as long to end as to begin */
    vf max[CHAINS * VECTORS] = {0};
    float m = 0.0f;
    int64_t i = 0;
    for (; i + CHAINS * LANES <= n; i += CHAINS * LANES)
        for (int v = 0; v < CHAINS * VECTORS; v++)
            max[v] = larger((vf)((vi)load_float(x + i + v * LANE_WIDTH) & 0x7fffffff), max[v]);
    for (int v = VECTORS; v < CHAINS * VECTORS; v++)
        max[v % VECTORS] = larger(max[v], max[v % VECTORS]);
    for (; i < n; i++)
        m = choose(absf(x[i]) > m, absf(x[i]), m);
    return tree_max(max, m);
}

static float quantize_i8(const float *x, int64_t n, int8_t *q, int64_t n_pad, int32_t *sum)
{
    float m = abs_max(x, n);
    float s = 127.0f / (m > 1e-5f ? m : 1e-5f);
    int32_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t code = round_clamped(x[i] * s, 127.0f);
        q[i] = (int8_t)code;
        total += code;
    }
    if (n_pad > n)
        memset(q + n, 0, (size_t)(n_pad - n));
    *sum = total;
    return s;
}

static void rmsnorm(const float *x, const float *w, float eps, int64_t n, float *out)
{
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        prefetch_l2(w + i); /* last used a whole token ago */
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)x[i + j] * (double)x[i + j];
    }
    for (int j = 0; i + j < n; j++)
        lane[j] += (double)x[i + j] * (double)x[i + j];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] += lane[j + half];
    float factor = (float)(1.0 / sqrt(lane[0] / (double)n + (double)eps));
    for (i = 0; i < n; i++)
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
    int64_t i = 0;
    for (; i + LANE_WIDTH <= n; i += LANE_WIDTH) {
        vf g = load_float(gate + i);
        store_float(out + i, (g / (1.0f + exp_lanes(-g))) * load_float(up + i));
    }
    for (; i < n; i++)
        out[i] = (gate[i] / (1.0f + kernel_expf(-gate[i]))) * up[i];
}

static void gate_gelu(const float *gate, const float *up, int64_t n, float *out)
{
    int64_t i = 0;
    for (; i + LANE_WIDTH <= n; i += LANE_WIDTH) {
        vf g = load_float(gate + i);
        store_float(out + i, (g / (1.0f + exp_lanes(-g * (GELU_1 + GELU_3 * (g * g))))) * load_float(up + i));
    }
    for (; i < n; i++) {
        float g = gate[i];
        out[i] = (g / (1.0f + kernel_expf(-g * (GELU_1 + GELU_3 * (g * g))))) * up[i];
    }
}

static void gate_sigmoid(const float *gate, const float *up, int64_t n, float *out)
{
    int64_t i = 0;
    for (; i + LANE_WIDTH <= n; i += LANE_WIDTH)
        store_float(out + i, (1.0f / (1.0f + exp_lanes(-load_float(gate + i)))) * load_float(up + i));
    for (; i < n; i++)
        out[i] = (1.0f / (1.0f + kernel_expf(-gate[i]))) * up[i];
}

static void rope_half(float *x, int64_t n_rot, const float *cs, const float *sn)
{
    float *y = x + n_rot / 2;
    for (int64_t j = 0; j < n_rot / 2; j++) {
        float a = x[j], b = y[j];
        x[j] = a * cs[j] - b * sn[j];
        y[j] = b * cs[j] + a * sn[j];
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
    const vf none = {0};
    int64_t r = 0;
    for (; r + LANE_WIDTH <= n; r += LANE_WIDTH) {
        vi a;
        memcpy(&a, acc + r, sizeof a);
        vf y = __builtin_convertvector(a - sum, vf) / s * (step ? load_float(scale + r) : none + scale[0]);
        store_float(out + r, add ? load_float(out + r) + y : y);
    }
    for (; r < n; r++) {
        float y = (float)(acc[r] - sum) / s * scale[step * r];
        out[r] = add ? out[r] + y : y;
    }
}

static float quantize_i16(const float *x, int64_t n, int16_t *q)
{
    float m = abs_max(x, n);
    float s = (float)HEAD_XMAX / (m > 1e-30f ? m : 1e-30f);
    for (int64_t i = 0; i < n; i++)
        q[i] = (int16_t)round_clamped(x[i] * s, (float)HEAD_XMAX);
    return s;
}

static void quantize_by(const float *x, int64_t n, float scale, int8_t *q)
{
    if (scale > 0.0f)
        for (int64_t i = 0; i < n; i++)
            q[i] = (int8_t)round_clamped(x[i] / scale, 127.0f);
    else if (n > 0)
        memset(q, 0, (size_t)n);
}

static void quantize_row_i8(const float *w, int64_t k, int8_t *q, float *scale)
{
    float m = abs_max(w, k), s = 127.0f / (m > 1e-30f ? m : 1e-30f);
    *scale = m / 127.0f;
    for (int64_t i = 0; i < k; i++)
        q[i] = (int8_t)round_small(w[i] * s);
}

static float quantize_q(const float *q, int64_t n, int8_t *q8)
{
    float qs = abs_max(q, n) / 127.0f;
    quantize_by(q, n, qs, q8);
    return qs;
}

/* ---- conversions ------------------------------------------------------------------------------------------------- */

static void half_to_float(const uint16_t *x, int64_t n, float *y)
{
    int64_t i = 0;
    for (; i + LANE_WIDTH <= n; i += LANE_WIDTH)
        store_float(y + i, load_half(x + i));
    for (; i < n; i++)
        y[i] = half_float(x[i]);
}

static void float_to_half(const float *x, int64_t n, uint16_t *y)
{
    int64_t i = 0;
    for (; i + LANE_WIDTH <= n; i += LANE_WIDTH)
        store_half(y + i, load_float(x + i));
    for (; i < n; i++)
        y[i] = float_half(x[i]);
}

/* ---- float output heads ------------------------------------------------------------------------------------------ */

/* n rows; is_half and n are constants where this is inlined. */
INLINE void head_rows(const void *w, int is_half, int n, int64_t k, const float *x, float *logits)
{
    const uint16_t *wh = w;
    const float *wf = w;
    const int size = is_half ? 2 : 4;
    const char *next = (const char *)w + n * k * size;
    vf sum[HEAD_ROWS][VECTORS] = {0};
    int64_t i = 0;
    for (; i + LANES <= k; i += LANES, next += n * LANES * size) {
        fetch_rows((const char *)w + i * size, k * size, n, next, LANES * size);
        for (int v = 0; v < VECTORS; v++) {
            vf xv = load_float(x + i + v * LANE_WIDTH);
            for (int r = 0; r < n; r++) {
                int64_t at = r * k + i + v * LANE_WIDTH;
                sum[r][v] += (is_half ? load_half(wh + at) : load_float(wf + at)) * xv;
            }
        }
    }
    for (int r = 0; r < n; r++) {
        float lane[LANES];
        memcpy(lane, sum[r], sizeof lane);
        for (int j = 0; i + j < k; j++)
            lane[j] += (is_half ? half_float(wh[r * k + i + j]) : wf[r * k + i + j]) * x[i + j];
        memcpy(sum[r], lane, sizeof lane);
        logits[r] = tree_sum(sum[r]);
    }
}

INLINE void head_all(const void *w, int is_half, int64_t n_row, int64_t k, const float *x, float *logits)
{
    const int64_t row_bytes = k * (is_half ? 2 : 4);
    const int side = rows_at_once(row_bytes);
#define PART(n) head_rows((const char *)w + r * row_bytes, is_half, n, k, x, logits + r)
    BY_ROWS(side, n_row, PART)
#undef PART
}

static void head_f16(const uint16_t *w, int64_t n_row, int64_t k, const float *x, float *logits)
{
    head_all(w, 1, n_row, k, x, logits);
}

static void head_f32(const float *w, int64_t n_row, int64_t k, const float *x, float *logits)
{
    head_all(w, 0, n_row, k, x, logits);
}

#endif
