/* arm.h: what the aarch64 targets share.  Included by neon.c, dotprod.c and i8mm.c, each with its own flags; the parts
 * that need the dot-product instructions exist only where the flags allow them.  Everything is static: see numbers.h.
 */
#ifndef BITNET_EDGE_ARM_H
#define BITNET_EDGE_ARM_H

#include "template.h"

#include <arm_neon.h>

/* How weights are read unless it was measured.  Nothing of this was measured on a board. */
#define ARM_OWN {4, FETCH_L1, 2 << 10}

/* Every model: the caches of small boards hold not even a small one. */
INLINE int is_stream(int64_t k) { return k > 0; }

/* ---- needed by lanes.inc.h and attention.inc.h ------------------------------------------------------------------- */

#define LANE_WIDTH 4
typedef float vf __attribute__((vector_size(4 * LANE_WIDTH)));

INLINE vf load_half(const uint16_t *p) { return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }

INLINE void store_half(uint16_t *p, vf v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v))); }

INLINE uint16x8_t round_pair(vf a, vf b)
{
    return vcombine_u16(vmovn_u32(vcvtnq_u32_f32((float32x4_t)a)), vmovn_u32(vcvtnq_u32_f32((float32x4_t)b)));
}

INLINE void round_bytes(const vf x[8], uint8_t *u)
{
    for (int i = 0; i < 8; i += 2)
        vst1_u8(u + 4 * i, vmovn_u16(round_pair(x[i], x[i + 1])));
}

#define HALF_WIDTH LANE_WIDTH
#define HALF_VECTORS 4
#define load_half_h load_half
typedef vf vh;

#include "lanes.inc.h"

/* ---- needed by delta.inc.h: with VECTORS vectors each, as many sums as registers hold ---------------------------- */

#define DELTA_TILE 4
#include "delta.inc.h"

/* A sum of the head is two registers, and four rows of two vectors fill half of the 32. */
#define HEAD_VECTORS 2

/* Head sums of four rows; a row's lanes are added by one instruction anyway. */
#define HEAD_TOTALS                                                                                                    \
    INLINE void head_totals(const head_sums sums[4], int narrow, int64_t total[4])                                     \
    {                                                                                                                  \
        (void)narrow;                                                                                                  \
        for (int r = 0; r < 4; r++)                                                                                    \
            total[r] += head_total(sums[r]);                                                                           \
    }

/* Four bytes in every lane. */
INLINE uint8x16_t broadcast4(const void *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return vreinterpretq_u8_u32(vdupq_n_u32(v));
}

/* ---- needed by bit_dots.inc.h ---------------------------------------------------------------------------------- */

#define BIT_WIDTH 16
typedef uint8x16_t vbytes;
typedef int32x4_t vsums;

INLINE vbytes load_codes(const void *p) { return vld1q_u8(p); }
INLINE vbytes low_nibbles(vbytes c) { return vandq_u8(c, vdupq_n_u8(15)); }
INLINE vbytes high_nibbles(vbytes c) { return vshrq_n_u8(c, 4); }

/* A shift by a variable: without optimisation, the counter of an inlined loop is not a constant for vshrq_n_u8. */
INLINE vbytes single_bits(vbytes c, int b)
{
    return vandq_u8(vshlq_u8(c, vdupq_n_s8((int8_t)-b)), vdupq_n_u8(1));
}

/* Without dot products: int16 lanes gain 16 products of at most 15 * 128, 30720 <= 32767. */
INLINE vsums dot_codes(vsums sums, const vbytes u[8], const int8_t *x)
{
#if defined(__ARM_FEATURE_DOTPROD)
    for (int m = 0; m < 8; m++)
        sums = vdotq_s32(sums, vreinterpretq_s8_u8(u[m]), vld1q_s8(x + 64 * m));
    return sums;
#else
    int16x8_t s = vdupq_n_s16(0);
    for (int m = 0; m < 8; m++) {
        int8x16_t uv = vreinterpretq_s8_u8(u[m]), xv = vld1q_s8(x + 64 * m);
        s = vmlal_high_s8(vmlal_s8(s, vget_low_s8(uv), vget_low_s8(xv)), uv, xv);
    }
    return vpadalq_s16(sums, s);
#endif
}

INLINE int32_t sum_lanes(vsums sums) { return vaddvq_s32(sums); }

/* ---- needed by byte_dots.inc.h: sums of four rows by four vectors, half of the 32 registers ---------------------- */

#define BYTE_VECTORS 4
#define BYTE_LEAST_VECTORS 4

INLINE vbytes byte_row(vbytes w) { return w; }
INLINE int32_t byte_base(const int8_t *x, int64_t k) { return (void)x, (void)k, 0; }

/* Without dot products: int16 lanes gain 2 products of at most 128 * 127, 32512 <= 32767. */
INLINE vsums byte_dot(vsums sums, vbytes w, vbytes x)
{
    int8x16_t wv = vreinterpretq_s8_u8(w), xv = vreinterpretq_s8_u8(x);
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(sums, wv, xv);
#else
    return vpadalq_s16(sums, vmlal_high_s8(vmull_s8(vget_low_s8(wv), vget_low_s8(xv)), wv, xv));
#endif
}

INLINE void byte_quad(const vsums sums[4], int32_t total[4])
{
    vst1q_s32(total, vpaddq_s32(vpaddq_s32(sums[0], sums[1]), vpaddq_s32(sums[2], sums[3])));
}

/* ---- KV pages, shared -------------------------------------------------------------------------------------------- */

/* Sum of n signed bytes, n a multiple of 4. */
INLINE int32_t sum_i8(const int8_t *x, int64_t n)
{
    int32x4_t sum = vdupq_n_s32(0);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        sum = vpadalq_s16(sum, vpaddlq_s8(vld1q_s8(x + i)));
    int32_t total = vaddvq_s32(sum);
    for (; i < n; i++)
        total += x[i];
    return total;
}

/* ---- ternary codes ----------------------------------------------------------------------------------------------- */

INLINE int8x16_t codes_67(uint8x16_t c) { return vreinterpretq_s8_u8(vshrq_n_u8(c, 6)); }
INLINE int8x16_t codes_45(uint8x16_t c) { return vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(c, 4), vdupq_n_u8(3))); }
INLINE int8x16_t codes_23(uint8x16_t c) { return vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(c, 2), vdupq_n_u8(3))); }
INLINE int8x16_t codes_01(uint8x16_t c) { return vreinterpretq_s8_u8(vandq_u8(c, vdupq_n_u8(3))); }

INLINE int8x16_t codes_at(uint8x16_t c, int i)
{
    return i == 0 ? codes_67(c) : i == 1 ? codes_45(c) : i == 2 ? codes_23(c) : codes_01(c);
}

/* ---- needed by groups.inc.h -------------------------------------------------------------------------------------- */

#define GROUP_SOME 1
#define GROUP_MANY 2
#define PANEL_OWN 0

/* The scales of 4 rows. */
INLINE float32x4_t group_scales(const uint8_t *row, int64_t stride)
{
    uint16x4_t h = vdup_n_u16(0);
    h = vld1_lane_u16((const uint16_t *)(const void *)row, h, 0);
    h = vld1_lane_u16((const uint16_t *)(const void *)(row + 1 * stride), h, 1);
    h = vld1_lane_u16((const uint16_t *)(const void *)(row + 2 * stride), h, 2);
    h = vld1_lane_u16((const uint16_t *)(const void *)(row + 3 * stride), h, 3);
    return vcvt_f32_f16(vreinterpret_f16_u16(h));
}

/* total + the sums of 4 rows as floats, times their scales. */
INLINE float32x4_t group_add(float32x4_t total, int32x4_t sums, float32x4_t scale, float d)
{
    return vaddq_f32(total, vmulq_f32(vcvtq_f32_s32(sums), vmulq_n_f32(scale, d)));
}

#if defined(__ARM_FEATURE_DOTPROD)

/* Bits 3-2 and 5-4 in place, at weight 4 and 16, in their own sums, as in matvec_rows. */
INLINE int32x4_t group_sums(const uint8_t *row, int second, const int8x16_t x[8])
{
    int32x4_t s1 = vdupq_n_s32(0), s4 = s1, s16 = s1;
    for (int half = 0; half < 2; half++) {
        uint8x16_t c = vld1q_u8(row + (half ? second : 2));
        int8x16_t c1 = vreinterpretq_s8_u8(vandq_u8(c, vdupq_n_u8(0x0c)));
        int8x16_t c2 = vreinterpretq_s8_u8(vandq_u8(c, vdupq_n_u8(0x30)));
        s1 = vdotq_s32(s1, vreinterpretq_s8_u8(vandq_u8(c, vdupq_n_u8(3))), x[half]);
        s4 = vdotq_s32(s4, c1, x[2 + half]);
        s16 = vdotq_s32(s16, c2, x[4 + half]);
        s1 = vdotq_s32(s1, vreinterpretq_s8_u8(vshrq_n_u8(c, 6)), x[6 + half]);
    }
    return vsraq_n_s32(vsraq_n_s32(s1, s4, 2), s16, 4);
}

INLINE int32x4_t group_total4(const int32x4_t s[4])
{
    return vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3]));
}

#else

/* int16 lanes: 8 products of at most 3 * 127 in each of lo and hi, 6096 in their sum. */
INLINE int16x8_t group_sums(const uint8_t *row, int second, const int8x16_t x[8])
{
    int16x8_t lo = vdupq_n_s16(0), hi = lo;
    for (int half = 0; half < 2; half++) {
        uint8x16_t c = vld1q_u8(row + (half ? second : 2));
        const int8x16_t v[4] = {
            vreinterpretq_s8_u8(vandq_u8(c, vdupq_n_u8(3))),
            vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(c, 2), vdupq_n_u8(3))),
            vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(c, 4), vdupq_n_u8(3))), vreinterpretq_s8_u8(vshrq_n_u8(c, 6))};
        for (int f = 0; f < 4; f++) {
            lo = vmlal_s8(lo, vget_low_s8(v[f]), vget_low_s8(x[2 * f + half]));
            hi = vmlal_high_s8(hi, v[f], x[2 * f + half]);
        }
    }
    return vaddq_s16(lo, hi);
}

/* At most 4 * 6096 in a lane before it is widened. */
INLINE int32x4_t group_total4(const int16x8_t s[4])
{
    return vpaddlq_s16(vpaddq_s16(vpaddq_s16(s[0], s[1]), vpaddq_s16(s[2], s[3])));
}

#endif

INLINE void group_vector(const uint8_t *rows, int64_t stride, int64_t n_group, int group_bytes, const uint8_t *ahead,
                         int n_token, const int8_t *q, const float *d, const int32_t *sum, float (*y)[GROUP_ROWS])
{
    (void)n_token; /* one */
    for (int part = 0; part < GROUP_ROWS; part += 4) {
        const uint8_t *row = rows + part * stride;
        const int8_t *in = q;
        float32x4_t total = vdupq_n_f32(0.0f);
        for (int64_t g = 0; g < n_group; g++, row += group_bytes, in += GROUP) {
            int8x16_t x[8];
#if defined(__ARM_FEATURE_DOTPROD)
            int32x4_t s[4];
#else
            int16x8_t s[4];
#endif
            for (int i = 0; i < 8; i++)
                x[i] = vld1q_s8(in + 16 * i);
            if (part == 0)
                group_fetch(ahead, g, group_bytes);
            for (int r = 0; r < 4; r++) {
                __asm__ volatile("" ::: "memory"); /* row by row: all loads at once would push sums out of registers */
                s[r] = group_sums(row + r * stride, group_bytes - 16, x);
            }
            total = group_add(total, vsubq_s32(group_total4(s), vdupq_n_s32(sum[g])), group_scales(row, stride), d[g]);
        }
        vst1q_f32(y[0] + part, total);
    }
}

/* ---- needed by groups.inc.h: panels ------------------------------------------------------------------------------ */

#if defined(__ARM_FEATURE_DOTPROD)

/* Codes in place at weights 1, 4 and 16, and those at 64 shifted, as an operand is signed. */
#define PANEL_LANE(j)                                                                                                  \
    for (int r = 0; r < n_lane; r += 4) {                                                                              \
        uint8x16_t c = vld1q_u8(codes + 64 * (i + (j)) + 4 * (lane + r));                                              \
        const int8x16_t u[4] = {                                                                                       \
            vreinterpretq_s8_u8(vandq_u8(c, vdupq_n_u8(0x03))), vreinterpretq_s8_u8(vandq_u8(c, vdupq_n_u8(0x0c))),    \
            vreinterpretq_s8_u8(vandq_u8(c, vdupq_n_u8(0x30))), codes_67(c)};                                          \
        for (int t = 0; t < n_token; t++)                                                                              \
            for (int f = 0; f < 4; f++)                                                                                \
                s[t + r / 4][f] = vdotq_laneq_s32(s[t + r / 4][f], u[f], x[t], j);                                     \
        if (lane == 0 && r == 0)                                                                                       \
            panel_fetch(ahead + 64 * (i + (j)), 64, n_token);                                                          \
    }

/* Four rows of each 16. */
INLINE void panel_store(vi *sum, const int32x4_t s[4])
{
    sum[0] = (vi)s[0], sum[4] = (vi)vshrq_n_s32(s[1], 2);
    sum[8] = (vi)vshrq_n_s32(s[2], 4), sum[12] = (vi)s[3];
}

/* Four lanes at a time; one token has eight, whose sums do not wait for each other. */
INLINE void panel_dots(const uint8_t *codes, const uint8_t *ahead, int n_step, int n_token, const int8_t *q, int64_t ld,
                       vi (*sum)[PANEL_VECTORS])
{
    const int n_lane = n_token == 1 ? 8 : 4;
    for (int lane = 0; lane < 16; lane += n_lane) {
        int32x4_t s[4][4];
        for (int t = 0; t < 4; t++)
            s[t][0] = s[t][1] = s[t][2] = s[t][3] = vdupq_n_s32(0);
        for (int i = 0; i < n_step; i += 4) {
            int8x16_t x[4];
            for (int t = 0; t < n_token; t++)
                x[t] = vld1q_s8(q + t * ld + 4 * i);
            PANEL_LANE(0)
            PANEL_LANE(1)
            PANEL_LANE(2)
            PANEL_LANE(3)
        }
        for (int t = 0; t < n_token; t++)
            for (int r = 0; r < n_lane; r += 4)
                panel_store(sum[t] + (lane + r) / 4, s[t + r / 4]);
    }
}

#endif

#if defined(__ARM_FEATURE_MATMUL_INT8)

#define PANEL_TOKENS 4

/* One product is two rows by two tokens by eight activations: of two steps, two lanes side by side. */
INLINE void panel_sums(const uint8_t *codes, const uint8_t *ahead, int n_step, int n_token, const int8_t *q, int64_t ld,
                       vi (*sum)[PANEL_VECTORS])
{
    if (n_token == 1) {
        panel_dots(codes, ahead, n_step, 1, q, ld, sum);
        return;
    }
    for (int lane = 0; lane < 16; lane += 4) {
        int32x4_t s[2][2][4]; /* [pair of tokens][pair of lanes][row / 16], each 2 lanes by 2 tokens */
        for (int p = 0; p < n_token / 2; p++)
            for (int f = 0; f < 4; f++)
                s[p][0][f] = s[p][1][f] = vdupq_n_s32(0);
        for (int i = 0; i < n_step; i += 2) {
            uint32x4_t a = vreinterpretq_u32_u8(vld1q_u8(codes + 64 * i + 4 * lane));
            uint32x4_t b = vreinterpretq_u32_u8(vld1q_u8(codes + 64 * i + 64 + 4 * lane));
            const uint8x16_t c[2] = {vreinterpretq_u8_u32(vzip1q_u32(a, b)), vreinterpretq_u8_u32(vzip2q_u32(a, b))};
            int8x16_t x[2];
            for (int p = 0; p < n_token / 2; p++)
                x[p] = vcombine_s8(vld1_s8(q + 2 * p * ld + 4 * i), vld1_s8(q + (2 * p + 1) * ld + 4 * i));
            if (lane == 0) {
                panel_fetch(ahead + 64 * i, 128, n_token);
            }
            for (int r = 0; r < 2; r++) {
                const int8x16_t u[4] = {vreinterpretq_s8_u8(vandq_u8(c[r], vdupq_n_u8(0x03))),
                                        vreinterpretq_s8_u8(vandq_u8(c[r], vdupq_n_u8(0x0c))),
                                        vreinterpretq_s8_u8(vandq_u8(c[r], vdupq_n_u8(0x30))), codes_67(c[r])};
                for (int p = 0; p < n_token / 2; p++)
                    for (int f = 0; f < 4; f++)
                        s[p][r][f] = vmmlaq_s32(s[p][r][f], u[f], x[p]);
            }
        }
        for (int p = 0; p < n_token / 2; p++) {
            int32x4_t first[4], second[4];
            for (int f = 0; f < 4; f++) {
                first[f] = vuzp1q_s32(s[p][0][f], s[p][1][f]);
                second[f] = vuzp2q_s32(s[p][0][f], s[p][1][f]);
            }
            panel_store(sum[2 * p] + lane / 4, first);
            panel_store(sum[2 * p + 1] + lane / 4, second);
        }
    }
}

#elif defined(__ARM_FEATURE_DOTPROD)

#define PANEL_TOKENS 4
#define panel_sums panel_dots

#else

#define PANEL_TOKENS 2

/* Eight lanes of int16 are two rows; each gains 32 products of at most 3 * 127: 12192 <= 32767. */
INLINE void panel_sums(const uint8_t *codes, const uint8_t *ahead, int n_step, int n_token, const int8_t *q, int64_t ld,
                       vi (*sum)[PANEL_VECTORS])
{
    for (int lane = 0; lane < 16; lane += 4) {
        int16x8_t s[2][4][2];
        for (int t = 0; t < n_token; t++)
            for (int f = 0; f < 4; f++)
                s[t][f][0] = s[t][f][1] = vdupq_n_s16(0);
        for (int i = 0; i < n_step; i++) {
            uint8x16_t c = vld1q_u8(codes + 64 * i + 4 * lane);
            const int8x16_t u[4] = {codes_01(c), codes_23(c), codes_45(c), codes_67(c)};
            if (lane == 0)
                panel_fetch(ahead + 64 * i, 64, n_token);
            for (int t = 0; t < n_token; t++) {
                int8x16_t x = vreinterpretq_s8_u8(broadcast4(q + t * ld + 4 * i));
                for (int f = 0; f < 4; f++) {
                    s[t][f][0] = vmlal_s8(s[t][f][0], vget_low_s8(u[f]), vget_low_s8(x));
                    s[t][f][1] = vmlal_high_s8(s[t][f][1], u[f], x);
                }
            }
        }
        for (int t = 0; t < n_token; t++)
            for (int f = 0; f < 4; f++)
                sum[t][4 * f + lane / 4] = (vi)vpaddlq_s16(vpaddq_s16(s[t][f][0], s[t][f][1]));
    }
}

#endif

#include "groups.inc.h"

#endif
