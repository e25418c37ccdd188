/* avx2.c: x86-64 with AVX2 and F16C (Haswell 2013, Zen 2017, Alder Lake-N).
 *
 * The workhorse is vpmaddubsw: unsigned bytes (the codes) times signed bytes (the activations), neighbouring products
 * added into int16 with saturation.  The bounds below show that nothing saturates, also for code 3, which a corrupt
 * file can hold. */
#if defined(__AVX2__) && defined(__F16C__)

#include "x86.h"

/* ---- ternary matrices ------------------------------------------------------------------------------------------- */

INLINE __m256i load256(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }

/* Four vectors of int32 -> their four horizontal sums. */
INLINE __m128i sum4(__m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    return _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
}

INLINE int32_t sum1(__m256i a)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* n rows, read as n streams.  One shift instead of three: bits 1-0 and 5-4 are used at weight 1, bits 3-2 and 7-6 stay
 * in place at weight 4 and collect in their own sums.
 *
 * Bounds of the int16 lanes, |x| <= 127: weight 1 gets 2 products-of-pairs a block, 2 * 2*3*127 = 1524; weight 4 gets
 * 4 * 1524 = 6096.  Five blocks: 7620 and 30480 <= 32767. */
enum { ROW_BLOCKS = 5 };

INLINE void matvec_rows(const uint8_t *codes, int n, int64_t n_block, const int8_t *x, int32_t *acc)
{
    const __m256i low = _mm256_set1_epi8(0x03), high = _mm256_set1_epi8(0x0c);
    const __m256i one = _mm256_set1_epi16(1), four = _mm256_set1_epi16(4);
    const int64_t stride = n_block * TERNARY_BLOCK_BYTES;
    __m256i total[4];
    for (int r = 0; r < n; r++)
        total[r] = _mm256_setzero_si256();
    for (int64_t b = 0; b < n_block; b += ROW_BLOCKS) {
        int64_t nb = n_block - b < ROW_BLOCKS ? n_block - b : ROW_BLOCKS;
        __m256i sum1x[4], sum4x[4];
        for (int r = 0; r < n; r++)
            sum1x[r] = sum4x[r] = _mm256_setzero_si256();
        for (int64_t i = 0; i < nb; i++, x += TERNARY_BLOCK, codes += TERNARY_BLOCK_BYTES) {
            __m256i x0 = load256(x), x1 = load256(x + 32), x2 = load256(x + 64), x3 = load256(x + 96);
            for (int r = 0; r < n; r++) {
                prefetch_stream(codes + r * stride);
                __m256i c = load256(codes + r * stride), s = _mm256_srli_epi16(c, 4);
                sum1x[r] = _mm256_add_epi16(sum1x[r], _mm256_maddubs_epi16(_mm256_and_si256(c, low), x3));
                sum4x[r] = _mm256_add_epi16(sum4x[r], _mm256_maddubs_epi16(_mm256_and_si256(c, high), x2));
                sum1x[r] = _mm256_add_epi16(sum1x[r], _mm256_maddubs_epi16(_mm256_and_si256(s, low), x1));
                sum4x[r] = _mm256_add_epi16(sum4x[r], _mm256_maddubs_epi16(_mm256_and_si256(s, high), x0));
            }
        }
        /* the weight-4 sums are 4 times the true ones: keep the factor in both and divide at the end */
        for (int r = 0; r < n; r++)
            total[r] = _mm256_add_epi32(total[r], _mm256_add_epi32(_mm256_madd_epi16(sum1x[r], four),
                                                                   _mm256_madd_epi16(sum4x[r], one)));
    }
    if (n == 4)
        _mm_storeu_si128((__m128i *)acc, _mm_srai_epi32(sum4(total[0], total[1], total[2], total[3]), 2));
    else
        for (int r = 0; r < n; r++)
            acc[r] = sum1(total[r]) >> 2;
}

static void ternary_matvec(const uint8_t *codes, int64_t n_row, int64_t n_block, const int8_t *x, int32_t *acc)
{
    int64_t r = 0, row_bytes = n_block * TERNARY_BLOCK_BYTES;
    for (; r + 4 <= n_row; r += 4)
        matvec_rows(codes + r * row_bytes, 4, n_block, x, acc + r);
    for (; r < n_row; r++)
        matvec_rows(codes + r * row_bytes, 1, n_block, x, acc + r);
}

/* The int16 sums of one block; at most 8 * 3 * 127 = 3048 in a lane. */
INLINE __m256i block_sums(__m256i c0, __m256i c1, __m256i c2, __m256i c3, const int8_t *x)
{
    __m256i a = _mm256_add_epi16(_mm256_maddubs_epi16(c0, load256(x)), _mm256_maddubs_epi16(c1, load256(x + 32)));
    __m256i b = _mm256_add_epi16(_mm256_maddubs_epi16(c2, load256(x + 64)), _mm256_maddubs_epi16(c3, load256(x + 96)));
    return _mm256_add_epi16(a, b);
}

#define UNPACK(c, c0, c1, c2, c3)                                                                                      \
    const __m256i low = _mm256_set1_epi8(0x03);                                                                        \
    __m256i c0 = _mm256_and_si256(_mm256_srli_epi16(c, 6), low), c1 = _mm256_and_si256(_mm256_srli_epi16(c, 4), low);  \
    __m256i c2 = _mm256_and_si256(_mm256_srli_epi16(c, 2), low), c3 = _mm256_and_si256(c, low)

static void ternary_blocks(const uint8_t *codes, int64_t n_block, const int8_t *x, int32_t *acc)
{
    const __m256i one = _mm256_set1_epi16(1);
    int64_t b = 0;
    for (; b + 4 <= n_block; b += 4) {
        __m256i s[4];
        for (int i = 0; i < 4; i++) {
            __m256i c = load256(codes + (b + i) * TERNARY_BLOCK_BYTES);
            UNPACK(c, c0, c1, c2, c3);
            s[i] = _mm256_madd_epi16(block_sums(c0, c1, c2, c3, x + (b + i) * TERNARY_BLOCK), one);
        }
        _mm_storeu_si128((__m128i *)(acc + b), sum4(s[0], s[1], s[2], s[3]));
    }
    for (; b < n_block; b++) {
        __m256i c = load256(codes + b * TERNARY_BLOCK_BYTES);
        UNPACK(c, c0, c1, c2, c3);
        acc[b] = sum1(_mm256_madd_epi16(block_sums(c0, c1, c2, c3, x + b * TERNARY_BLOCK), one));
    }
}

/* One row against up to eight tokens: the block is unpacked once, each token has one int16 sum.
 * Ten blocks: 10 * 3048 = 30480 <= 32767. */
enum { TILE_ROWS = 1, TILE_BLOCKS = 10 };

INLINE void tile(const uint8_t *codes, int64_t row_bytes, int64_t n_block, const int8_t *x, int64_t x_stride, int n_row,
                 int n_token, int32_t *sum)
{
    const __m256i one = _mm256_set1_epi16(1);
    __m256i total[8];
    (void)row_bytes, (void)n_row;
    for (int t = 0; t < n_token; t++)
        total[t] = _mm256_setzero_si256();
    for (int64_t b = 0; b < n_block; b += TILE_BLOCKS) {
        int64_t nb = n_block - b < TILE_BLOCKS ? n_block - b : TILE_BLOCKS;
        __m256i s[8];
        for (int t = 0; t < n_token; t++)
            s[t] = _mm256_setzero_si256();
        for (int64_t i = b; i < b + nb; i++) {
            __m256i c = load256(codes + i * TERNARY_BLOCK_BYTES);
            UNPACK(c, c0, c1, c2, c3);
            for (int t = 0; t < n_token; t++)
                s[t] = _mm256_add_epi16(s[t], block_sums(c0, c1, c2, c3, x + t * x_stride + i * TERNARY_BLOCK));
        }
        for (int t = 0; t < n_token; t++)
            total[t] = _mm256_add_epi32(total[t], _mm256_madd_epi16(s[t], one));
    }
    if (n_token >= 4)
        for (int t = 0; t < n_token; t += 4)
            _mm_storeu_si128((__m128i *)(sum + t), sum4(total[t], total[t + 1], total[t + 2], total[t + 3]));
    else
        for (int t = 0; t < n_token; t++)
            sum[t] = sum1(total[t]);
}

#include "tiles.h"

/* ---- output head ------------------------------------------------------------------------------------------------ */

INLINE int64_t sum_wide(__m256i a)
{
    int64_t s[4];
    _mm256_storeu_si256((__m256i *)s, a);
    return s[0] + s[1] + s[2] + s[3];
}

/* A lane of int32 gains at most 2 * 128 * 8191 = 2096896 per step of 16 elements; 1024 steps are 2147221504 < 2^31. */
enum { HEAD_STEP = 16, HEAD_STEPS = 1024 };

INLINE void head_rows_i8(const int8_t *w, const float *scale, int n, int64_t k, const int16_t *x, float s,
                         float *logits)
{
    int64_t i = 0;
    __m256i wide[4];
    for (int r = 0; r < n; r++)
        wide[r] = _mm256_setzero_si256();
    while (i + HEAD_STEP <= k) {
        int64_t end = k - i < HEAD_STEP * HEAD_STEPS ? k - HEAD_STEP : i + HEAD_STEP * (HEAD_STEPS - 1);
        __m256i sum[4];
        for (int r = 0; r < n; r++)
            sum[r] = _mm256_setzero_si256();
        for (; i <= end; i += HEAD_STEP) {
            __m256i xv = load256(x + i);
            for (int r = 0; r < n; r++) {
                prefetch_stream(w + r * k + i);
                __m256i wv = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(w + r * k + i)));
                sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(wv, xv));
            }
        }
        for (int r = 0; r < n; r++)
            wide[r] = _mm256_add_epi64(wide[r],
                                       _mm256_add_epi64(_mm256_cvtepi32_epi64(_mm256_castsi256_si128(sum[r])),
                                                        _mm256_cvtepi32_epi64(_mm256_extracti128_si256(sum[r], 1))));
    }
    for (int r = 0; r < n; r++) {
        int64_t total = sum_wide(wide[r]);
        for (int64_t j = i; j < k; j++)
            total += (int32_t)w[r * k + j] * x[j];
        logits[r] = (float)total * (scale[r] / s);
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

/* ---- what planes.h asks for ------------------------------------------------------------------------------------- */

#define PLANE_WIDTH 32
typedef __m256i vbytes;
typedef __m256i vsums;

INLINE vbytes plane_load(const void *p) { return load256(p); }
INLINE vbytes low_nibbles(vbytes c) { return _mm256_and_si256(c, _mm256_set1_epi8(0x0f)); }
INLINE vbytes high_nibbles(vbytes c) { return low_nibbles(_mm256_srli_epi16(c, 4)); }
INLINE vbytes single_bits(vbytes c, int b) { return _mm256_and_si256(_mm256_srli_epi16(c, b), _mm256_set1_epi8(1)); }

/* int16 lanes: 8 * 2 * 15 * 128 = 30720 <= 32767. */
INLINE vsums dot_codes(vsums sums, const vbytes u[8], const int8_t *x)
{
    __m256i s = _mm256_maddubs_epi16(u[0], load256(x));
    for (int m = 1; m < 8; m++)
        s = _mm256_add_epi16(s, _mm256_maddubs_epi16(u[m], load256(x + 64 * m)));
    return _mm256_add_epi32(sums, _mm256_madd_epi16(s, _mm256_set1_epi16(1)));
}

INLINE int32_t sum_lanes(vsums sums) { return sum1(sums); }

#include "planes.h"

/* ---- what lanes.h and pages.h ask for ---------------------------------------------------------------------------- */

#define LANE_WIDTH 8
typedef float vf __attribute__((vector_size(4 * LANE_WIDTH)));

INLINE vf load_half(const uint16_t *p) { return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }

INLINE void store_half(uint16_t *p, vf v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

#define HALF_WIDTH LANE_WIDTH
#define HALF_VECTORS 2
#define load_half_h load_half
typedef vf vh;

#include "lanes.h"

INLINE __m256i broadcast4(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm256_set1_epi32(v);
}

/* |k| as unsigned times q with the sign of k: pairs are at most 2 * 127 * 127 = 32258, no saturation.  (k ^ 0x80 as
 * unsigned would reach 2 * 255 * 127 = 64770.) */
INLINE void dot_keys_i8(const int8_t *k, const int8_t *next, int64_t head_dim, int n, const int8_t *q, vi (*s)[4])
{
    const __m256i one = _mm256_set1_epi16(1);
    for (int t = 0; t < KV_PAGE; t += 16) {
        __m256i a[4], b[4];
        for (int i = 0; i < n; i++)
            a[i] = b[i] = _mm256_setzero_si256();
        for (int64_t d = 0; d < head_dim; d += 4) {
            prefetch_l2(next + d * KV_PAGE + t * 4);
            __m256i k0 = load256(k + d * KV_PAGE + t * 4), k1 = load256(k + d * KV_PAGE + t * 4 + 32);
            __m256i k0_abs = _mm256_abs_epi8(k0), k1_abs = _mm256_abs_epi8(k1);
            for (int i = 0; i < n; i++) {
                __m256i qv = broadcast4(q + i * head_dim + d);
                __m256i m0 = _mm256_maddubs_epi16(k0_abs, _mm256_sign_epi8(qv, k0));
                __m256i m1 = _mm256_maddubs_epi16(k1_abs, _mm256_sign_epi8(qv, k1));
                a[i] = _mm256_add_epi32(a[i], _mm256_madd_epi16(m0, one));
                b[i] = _mm256_add_epi32(b[i], _mm256_madd_epi16(m1, one));
            }
        }
        for (int i = 0; i < n; i++)
            s[i][t / 8] = (vi)a[i], s[i][t / 8 + 1] = (vi)b[i];
    }
}

/* Pairs of products are at most 2 * 15 * 127 = 3810; eight of them, 30480, stay in int16. */
INLINE void dot_keys_i4(const uint8_t *k, const uint8_t *next, int64_t n_quad, int n, const int8_t *q, int64_t ld_q,
                        vi (*s)[4])
{
    const __m256i one = _mm256_set1_epi16(1);
    int32_t start[4];
    for (int i = 0; i < n; i++)
        start[i] = -8 * sum_i8(q + i * ld_q, 4 * n_quad);
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < n; i++)
            s[i][half] = s[i][half + 2] = (vi)_mm256_set1_epi32(start[i]);
        for (int64_t j = 0; j < n_quad; j += 8) {
            int64_t end = n_quad - j < 8 ? n_quad : j + 8;
            __m256i a[4], b[4];
            for (int i = 0; i < n; i++)
                a[i] = b[i] = _mm256_setzero_si256();
            for (int64_t h = j; h < end; h++) {
                if (half == 0)
                    prefetch_l2(next + 64 * h);
                __m256i c = load256(k + 64 * h + 32 * half), k0 = low_nibbles(c), k1 = high_nibbles(c);
                for (int i = 0; i < n; i++) {
                    __m256i qv = broadcast4(q + i * ld_q + 4 * h);
                    a[i] = _mm256_add_epi16(a[i], _mm256_maddubs_epi16(k0, qv));
                    b[i] = _mm256_add_epi16(b[i], _mm256_maddubs_epi16(k1, qv));
                }
            }
            for (int i = 0; i < n; i++) {
                s[i][half] += (vi)_mm256_madd_epi16(a[i], one);
                s[i][half + 2] += (vi)_mm256_madd_epi16(b[i], one);
            }
        }
    }
}

/* u8 x i8 pairs reach 2 * 255 * 127 = 64770 and would saturate in vpmaddubsw, so both sides are widened to int16. */
#define VALUE_DIMS 8
INLINE void dot_values_i8(const int8_t *v, const int8_t *next, int64_t head_dim, int64_t d, int n,
                          const uint8_t (*u)[KV_PAGE], vi (*sum)[1])
{
    __m256i a[4], b[4];
    for (int i = 0; i < n; i++)
        a[i] = b[i] = _mm256_setzero_si256();
    for (int g = 0; g < KV_PAGE / 4; g++) {
        const int8_t *p = v + (g * head_dim + d) * 4;
        if (d % 16 == 0)
            prefetch_l2(next + (p - v));
        __m256i v0 = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
        __m256i v1 = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(p + 16)));
        for (int i = 0; i < n; i++) {
            __m256i w = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(broadcast4(u[i] + 4 * g)));
            a[i] = _mm256_add_epi32(a[i], _mm256_madd_epi16(v0, w));
            b[i] = _mm256_add_epi32(b[i], _mm256_madd_epi16(v1, w));
        }
    }
    for (int i = 0; i < n; i++) /* pairs of a dimension are neighbours; hadd works within 128-bit halves */
        sum[i][0] = (vi)_mm256_permute4x64_epi64(_mm256_hadd_epi32(a[i], b[i]), 0xd8);
}

/* Pairs of products are at most 2 * 255 * 15 = 7650; four of them, 30600, stay in int16. */
INLINE void dot_values_i4(const uint8_t *v, const uint8_t *next, int64_t head_dim, int64_t d, int n,
                          const uint8_t (*u)[KV_PAGE], vi (*sum)[1])
{
    const __m256i one = _mm256_set1_epi16(1);
    __m256i a[4], b[4];
    for (int i = 0; i < n; i++)
        a[i] = b[i] = _mm256_setzero_si256();
    for (int t = 0; t < KV_PAGE / 2; t += 4) {
        if (d % 16 == 0)
            prefetch_l2(next + t * head_dim + d * 4);
        __m256i c = load256(v + t * head_dim + d * 4), v0 = low_nibbles(c), v1 = high_nibbles(c);
        for (int i = 0; i < n; i++) {
            a[i] = _mm256_add_epi16(a[i], _mm256_maddubs_epi16(broadcast4(u[i] + t), v0));
            b[i] = _mm256_add_epi16(b[i], _mm256_maddubs_epi16(broadcast4(u[i] + KV_PAGE / 2 + t), v1));
        }
    }
    for (int i = 0; i < n; i++)
        sum[i][0] = (vi)_mm256_add_epi32(_mm256_madd_epi16(a[i], one), _mm256_madd_epi16(b[i], one));
}

#include "nibbles.h"

const struct kernels kernels_avx2 = {
    .name = "avx2",
    .ternary_matvec = ternary_matvec,
    .ternary_matmul = ternary_matmul,
    .ternary_blocks = ternary_blocks,
    .head_i8 = head_i8,
    LANES_KERNELS,
    PAGES_KERNELS,
    PLANES_KERNELS,
};

#else
typedef int not_compiled_for_avx2; /* ISO C wants a declaration */
#endif
