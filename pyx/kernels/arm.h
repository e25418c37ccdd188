/* arm.h: what the aarch64 targets share.  Included by neon.c, dotprod.c and i8mm.c, each with its own flags; the parts
 * that need the dot-product instructions exist only where the flags allow them.  Everything is static: see numbers.h.
 */
#ifndef BITNET_EDGE_ARM_H
#define BITNET_EDGE_ARM_H

#include "template.h"

#include <arm_neon.h>

/* ---- streams that are read once ---------------------------------------------------------------------------------- */

/* Into the second-level cache (PRFM PLDL2KEEP), in each row's stream.  The distance is not measured on hardware: it
 * covers 150 ns of latency at 10 GB/s several times over, and rows of K = 2560 are 640 bytes. */
enum { AHEAD = 8 << 10 };

INLINE void prefetch_l2(const void *p) { __builtin_prefetch(p, 0, 2); }

INLINE void prefetch_stream(const void *p) { prefetch_l2((const char *)p + AHEAD); }

/* Every model: the caches of small boards hold not even a small one. */
INLINE int is_stream(int64_t k) { return k > 0; }

/* ---- needed by lanes.inc.h and pages.inc.h ----------------------------------------------------------------------- */

#define LANE_WIDTH 4
typedef float vf __attribute__((vector_size(4 * LANE_WIDTH)));

INLINE vf load_half(const uint16_t *p) { return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }

INLINE void store_half(uint16_t *p, vf v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v))); }

#define HALF_WIDTH LANE_WIDTH
#define HALF_VECTORS 4
#define load_half_h load_half
typedef vf vh;

#include "lanes.inc.h"

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

/* ---- needed by plane_dots.inc.h ---------------------------------------------------------------------------------- */

#define PLANE_WIDTH 16
typedef uint8x16_t vbytes;
typedef int32x4_t vsums;

INLINE vbytes plane_load(const void *p) { return vld1q_u8(p); }
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

#define GROUP_ROWS 16
#define GROUP_SOME 1
#define GROUP_MANY 2

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

/* Four rows at a time, 4 x 4 turned: step s of a tile is bytes 4s .. 4s+3 of all rows. */
INLINE void group_unpack(const uint8_t *rows, int64_t stride, int second, int8_t (*tile)[GROUP_ROWS][4])
{
    for (int part = 0; part < GROUP_ROWS; part += 4)
        for (int half = 0; half < 2; half++) {
            uint32x4_t a[4];
            for (int i = 0; i < 4; i++)
                a[i] = vreinterpretq_u32_u8(vld1q_u8(rows + (part + i) * stride + (half ? second : 2)));
            uint64x2_t b0 = vreinterpretq_u64_u32(vtrn1q_u32(a[0], a[1]));
            uint64x2_t b1 = vreinterpretq_u64_u32(vtrn2q_u32(a[0], a[1]));
            uint64x2_t b2 = vreinterpretq_u64_u32(vtrn1q_u32(a[2], a[3]));
            uint64x2_t b3 = vreinterpretq_u64_u32(vtrn2q_u32(a[2], a[3]));
            const uint8x16_t v[4] = {
                vreinterpretq_u8_u64(vtrn1q_u64(b0, b2)), vreinterpretq_u8_u64(vtrn1q_u64(b1, b3)),
                vreinterpretq_u8_u64(vtrn2q_u64(b0, b2)), vreinterpretq_u8_u64(vtrn2q_u64(b1, b3))};
            for (int j = 0; j < 4; j++) {
                int8_t (*step)[GROUP_ROWS][4] = tile + 4 * half + j;
                const uint8x16_t low = vdupq_n_u8(3);
                vst1q_s8(step[0][part], vreinterpretq_s8_u8(vandq_u8(v[j], low)));
                vst1q_s8(step[8][part], vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(v[j], 2), low)));
                vst1q_s8(step[16][part], vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(v[j], 4), low)));
                vst1q_s8(step[24][part], vreinterpretq_s8_u8(vshrq_n_u8(v[j], 6)));
            }
        }
}

#if defined(__ARM_FEATURE_DOTPROD)

#define GROUP_TOKENS 4
#define GROUP_LANE(j)                                                                                                  \
    for (int r = 0; r < 4; r++) {                                                                                      \
        int8x16_t c = vld1q_s8(tile[g][i + (j)][4 * r]);                                                               \
        for (int t = 0; t < n_token; t++)                                                                              \
            s[t][r] = vdotq_laneq_s32(s[t][r], c, x[t], j);                                                            \
    }

INLINE void group_tile(int8_t (*tile)[32][16][4], float (*scale)[16], int64_t n_group, int n_token, const int8_t *q,
                       const float *d, const int32_t *sum, int64_t ld, float (*y)[16])
{
    for (int64_t g = 0; g < n_group; g++, q += GROUP) {
        int32x4_t s[4][4];
        for (int t = 0; t < n_token; t++)
            for (int r = 0; r < 4; r++)
                s[t][r] = vdupq_n_s32(-sum[t * ld + g]);
        for (int i = 0; i < 32; i += 4) {
            int8x16_t x[4];
            for (int t = 0; t < n_token; t++)
                x[t] = vld1q_s8(q + t * ld * GROUP + 4 * i);
            GROUP_LANE(0)
            GROUP_LANE(1)
            GROUP_LANE(2)
            GROUP_LANE(3)
        }
        for (int t = 0; t < n_token; t++)
            for (int r = 0; r < 4; r++) {
                float *to = y[t] + 4 * r;
                vst1q_f32(to, group_add(vld1q_f32(to), s[t][r], vld1q_f32(scale[g] + 4 * r), d[t * ld + g]));
            }
    }
}

#else

#define GROUP_TOKENS 2

/* Two rows in eight lanes of int16; each gains 32 products of at most 3 * 127: 12192 <= 32767. */
INLINE void group_tile(int8_t (*tile)[32][16][4], float (*scale)[16], int64_t n_group, int n_token, const int8_t *q,
                       const float *d, const int32_t *sum, int64_t ld, float (*y)[16])
{
    for (int64_t g = 0; g < n_group; g++, q += GROUP) {
        int16x8_t s[2][8];
        for (int t = 0; t < n_token; t++)
            for (int r = 0; r < 8; r++)
                s[t][r] = vdupq_n_s16(0);
        for (int i = 0; i < 32; i++) {
            int8x16_t x[2];
            for (int t = 0; t < n_token; t++)
                x[t] = vreinterpretq_s8_u8(broadcast4(q + t * ld * GROUP + 4 * i));
            for (int r = 0; r < 4; r++) {
                int8x16_t c = vld1q_s8(tile[g][i][4 * r]);
                for (int t = 0; t < n_token; t++) {
                    s[t][2 * r] = vmlal_s8(s[t][2 * r], vget_low_s8(c), vget_low_s8(x[t]));
                    s[t][2 * r + 1] = vmlal_high_s8(s[t][2 * r + 1], c, x[t]);
                }
            }
        }
        for (int t = 0; t < n_token; t++)
            for (int r = 0; r < 4; r++) {
                int32x4_t sums = vpaddlq_s16(vpaddq_s16(s[t][2 * r], s[t][2 * r + 1]));
                float *to = y[t] + 4 * r;
                sums = vsubq_s32(sums, vdupq_n_s32(sum[t * ld + g]));
                vst1q_f32(to, group_add(vld1q_f32(to), sums, vld1q_f32(scale[g] + 4 * r), d[t * ld + g]));
            }
    }
}

#endif

#include "groups.inc.h"

#endif
