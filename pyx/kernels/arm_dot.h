/* arm_dot.h: what the aarch64 targets with dot products share: rows of ternary matrices, heads and KV pages by sdot.
 * Included after arm.h, compiled with +dotprod. */
#ifndef BITNET_EDGE_ARM_DOT_H
#define BITNET_EDGE_ARM_DOT_H

#include "arm.h"

#ifdef __clang__
#define IN_ORDER OUT_OF_LINE
#else /* GCC's scheduler would load everything at once and push sums out of their registers */
#define IN_ORDER __attribute__((optimize("no-schedule-insns"))) OUT_OF_LINE
#endif

/* n rows side by side.  Bits 3-2 and 5-4 are used in place, at weight 4 and 16, and collect in their own sums;
 * the products are multiples of 4 and 16, so the shifts at the end are exact.
 * int32 lanes: the largest sum gains 2 * 4 * 48 * 127 = 48768 a block, enough for K = 5.6 million. */
INLINE void matvec_rows(const uint8_t *codes, int n, int64_t n_block, const int8_t *x, int32_t *acc)
{
    const int64_t stride = n_block * TERNARY_BLOCK_BYTES;
    const uint8_t *next = codes + n * stride;
    int32x4_t sum1x[4], sum4x[4], sum16x[4];
    for (int r = 0; r < n; r++)
        sum1x[r] = sum4x[r] = sum16x[r] = vdupq_n_s32(0);
    for (int64_t b = 0; b < n_block; b++, x += TERNARY_BLOCK, codes += TERNARY_BLOCK_BYTES) {
        fetch_rows(codes, stride, n, next, TERNARY_BLOCK_BYTES);
        next += n * TERNARY_BLOCK_BYTES;
        for (int half = 0; half < 32; half += 16) {
            int8x16_t x0 = vld1q_s8(x + half), x1 = vld1q_s8(x + half + 32);
            int8x16_t x2 = vld1q_s8(x + half + 64), x3 = vld1q_s8(x + half + 96);
            for (int r = 0; r < n; r++) {
                __asm__ volatile("" ::: "memory"); /* row by row: all loads at once would push sums out of registers */
                uint8x16_t c = vld1q_u8(codes + r * stride + half);
                int8x16_t c1 = vreinterpretq_s8_u8(vandq_u8(c, vdupq_n_u8(0x30)));
                int8x16_t c2 = vreinterpretq_s8_u8(vandq_u8(c, vdupq_n_u8(0x0c)));
                sum1x[r] = vdotq_s32(sum1x[r], codes_67(c), x0);
                sum16x[r] = vdotq_s32(sum16x[r], c1, x1);
                sum4x[r] = vdotq_s32(sum4x[r], c2, x2);
                sum1x[r] = vdotq_s32(sum1x[r], codes_01(c), x3);
            }
        }
    }
    for (int r = 0; r < n; r++)
        acc[r] = vaddvq_s32(vaddq_s32(sum1x[r], vaddq_s32(vshrq_n_s32(sum4x[r], 2), vshrq_n_s32(sum16x[r], 4))));
}

static void ternary_matvec(const uint8_t *codes, int64_t n_row, int64_t n_block, const int8_t *x, int32_t *acc)
{
    const int64_t row_bytes = n_block * TERNARY_BLOCK_BYTES;
    const int side = rows_at_once(row_bytes);
#define PART(n) matvec_rows(codes + r * row_bytes, n, n_block, x, acc + r)
    BY_ROWS(side, n_row, PART)
#undef PART
}

/* Up to two rows against up to eight tokens: 16 sums, 8 vectors of codes, every activation vector used for each row.
 * sum[t * ld_sum + r] as in tiles.inc.h. */
INLINE void dot_tile(const uint8_t *codes, int64_t row_bytes, int64_t n_block, const int8_t *x, int64_t x_stride,
                     int n_row, int n_token, int stream, int ld_sum, int32_t *sum)
{
    const uint8_t *next = codes + n_row * row_bytes;
    int32x4_t s[2][8];
    for (int r = 0; r < n_row; r++)
        for (int t = 0; t < n_token; t++)
            s[r][t] = vdupq_n_s32(0);
    for (int64_t b = 0; b < n_block; b++, x += TERNARY_BLOCK, codes += TERNARY_BLOCK_BYTES) {
        if (stream)
            fetch_plain(next, n_row * TERNARY_BLOCK_BYTES);
        next += n_row * TERNARY_BLOCK_BYTES;
        for (int half = 0; half < 32; half += 16) {
            int8x16_t c[2][4];
            for (int r = 0; r < n_row; r++) {
                uint8x16_t v = vld1q_u8(codes + r * row_bytes + half);
                c[r][0] = codes_67(v), c[r][1] = codes_45(v), c[r][2] = codes_23(v), c[r][3] = codes_01(v);
            }
            for (int t = 0; t < n_token; t++)
                for (int i = 0; i < 4; i++) {
                    int8x16_t xv = vld1q_s8(x + t * x_stride + half + 32 * i);
                    for (int r = 0; r < n_row; r++)
                        s[r][t] = vdotq_s32(s[r][t], c[r][i], xv);
                }
        }
    }
    for (int r = 0; r < n_row; r++)
        for (int t = 0; t < n_token; t++)
            sum[t * ld_sum + r] = vaddvq_s32(s[r][t]);
}

/* ---- needed by head.inc.h ---------------------------------------------------------------------------------------- */

/* x = 256 * high + low with both halves signed bytes (|x| <= 8191, so |high| <= 32), two dot products instead of four
 * widening multiplies.  A lane of int32 gains at most 4 * 128 * 128 = 65536 per step of 16 elements; 16384 steps are
 * 2^30. */
enum { HEAD_STEP = 16, HEAD_STEPS = 16384 };

typedef int8x16x2_t head_x; /* low, high */
typedef int32x4x2_t head_sums;

INLINE head_x head_load(const int16_t *x)
{
    int16x8_t a = vld1q_s16(x), b = vld1q_s16(x + 8), half = vdupq_n_s16(128);
    return (head_x){{vuzp1q_s8(vreinterpretq_s8_s16(a), vreinterpretq_s8_s16(b)),
                     vuzp2q_s8(vreinterpretq_s8_s16(vaddq_s16(a, half)), vreinterpretq_s8_s16(vaddq_s16(b, half)))}};
}

INLINE head_sums head_dot(head_sums sums, const int8_t *w, head_x x)
{
    int8x16_t wv = vld1q_s8(w);
    sums.val[0] = vdotq_s32(sums.val[0], wv, x.val[0]);
    sums.val[1] = vdotq_s32(sums.val[1], wv, x.val[1]);
    return sums;
}

INLINE int64_t head_total(head_sums sums) { return vaddlvq_s32(sums.val[0]) + 256 * vaddlvq_s32(sums.val[1]); }

HEAD_TOTALS
#include "head.inc.h"

/* ---- KV pages ---------------------------------------------------------------------------------------------------- */

/* Four tokens by four dimensions a vector: one dot product each. */
INLINE void dot_keys_i8(const int8_t *k, const int8_t *next, int64_t head_dim, int n, const int8_t *q, vi (*s)[8])
{
    for (int t = 0; t < KV_PAGE; t += 16) {
        int32x4_t a[4][4];
        for (int i = 0; i < n; i++)
            for (int j = 0; j < 4; j++)
                a[i][j] = vdupq_n_s32(0);
        for (int64_t d = 0; d < head_dim; d += 4) {
            int8x16_t kv[4];
            prefetch_l2(next + d * KV_PAGE + t * 4);
            for (int j = 0; j < 4; j++)
                kv[j] = vld1q_s8(k + d * KV_PAGE + t * 4 + 16 * j);
            for (int i = 0; i < n; i++) {
                int8x16_t qv = vreinterpretq_s8_u8(broadcast4(q + i * head_dim + d));
                for (int j = 0; j < 4; j++)
                    a[i][j] = vdotq_s32(a[i][j], kv[j], qv);
            }
        }
        for (int i = 0; i < n; i++)
            for (int j = 0; j < 4; j++)
                s[i][t / 4 + j] = (vi)a[i][j];
    }
}

INLINE void dot_keys_i4(const uint8_t *k, const uint8_t *next, int64_t n_quad, int n, const int8_t *q, int64_t ld_q,
                        vi (*s)[8])
{
    int32_t start[4];
    for (int i = 0; i < n; i++)
        start[i] = -8 * sum_i8(q + i * ld_q, 4 * n_quad);
    for (int t = 0; t < KV_PAGE / 2; t += 8) {
        int32x4_t a[4][4];
        for (int i = 0; i < n; i++)
            for (int j = 0; j < 4; j++)
                a[i][j] = vdupq_n_s32(start[i]);
        for (int64_t h = 0; h < n_quad; h++) {
            uint8x16_t c0 = vld1q_u8(k + 64 * h + 4 * t), c1 = vld1q_u8(k + 64 * h + 4 * t + 16);
            const int8x16_t kv[4] = {
                vreinterpretq_s8_u8(low_nibbles(c0)), vreinterpretq_s8_u8(low_nibbles(c1)),
                vreinterpretq_s8_u8(high_nibbles(c0)), vreinterpretq_s8_u8(high_nibbles(c1))};
            if (t == 0)
                prefetch_l2(next + 64 * h);
            for (int i = 0; i < n; i++) {
                int8x16_t qv = vreinterpretq_s8_u8(broadcast4(q + i * ld_q + 4 * h));
                for (int j = 0; j < 4; j++)
                    a[i][j] = vdotq_s32(a[i][j], kv[j], qv);
            }
        }
        for (int i = 0; i < n; i++)
            for (int j = 0; j < 2; j++)
                s[i][t / 4 + j] = (vi)a[i][j], s[i][4 + t / 4 + j] = (vi)a[i][2 + j];
    }
}

#define VALUE_DIMS 16
#define WEIGHT_PARTS 1
/* Both sides are unsigned. */
INLINE void dot_values_i4(const uint8_t *v, const uint8_t *next, int64_t head_dim, int64_t d, int n,
                          const uint8_t (*u)[KV_PAGE], vi (*sum)[4])
{
    uint32x4_t a[4][4];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 4; j++)
            a[i][j] = vdupq_n_u32(0);
    for (int t = 0; t < KV_PAGE / 2; t += 4) {
        uint8x16_t c[4];
        prefetch_l2(next + t * head_dim + d * 4);
        for (int j = 0; j < 4; j++)
            c[j] = vld1q_u8(v + t * head_dim + d * 4 + 16 * j);
        for (int i = 0; i < n; i++) {
            uint8x16_t w0 = broadcast4(u[i] + t), w1 = broadcast4(u[i] + KV_PAGE / 2 + t);
            for (int j = 0; j < 4; j++)
                a[i][j] = vdotq_u32(vdotq_u32(a[i][j], low_nibbles(c[j]), w0), high_nibbles(c[j]), w1);
        }
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 4; j++)
            sum[i][j] = (vi)a[i][j];
}

#endif
