/* neon.c: every aarch64 processor (Cortex-A53 and A72: Raspberry Pi 3, 4, Zero 2).
 *
 * There is no dot product: vmlal_s8 multiplies eight bytes and adds into eight int16 lanes, which the bounds below keep
 * from overflowing, also for code 3, which a corrupt file can hold. */
#if defined(__aarch64__)

#include "arm.h"

/* ---- ternary matrices -------------------------------------------------------------------------------------------- */

/* The 16 bytes of c against the four vectors of x: each lane of lo and hi gains 4 products of at most 3 * 127. */
INLINE void add_products(int16x8_t *lo, int16x8_t *hi, const int8x16_t c[4], const int8x16_t x[4])
{
    for (int i = 0; i < 4; i++) {
        *lo = vmlal_s8(*lo, vget_low_s8(c[i]), vget_low_s8(x[i]));
        *hi = vmlal_high_s8(*hi, c[i], x[i]);
    }
}

INLINE void unpack(const uint8_t *p, int8x16_t c[4])
{
    uint8x16_t v = vld1q_u8(p);
    c[0] = codes_67(v), c[1] = codes_45(v), c[2] = codes_23(v), c[3] = codes_01(v);
}

/* Eight products a block and lane: 10 * 8 * 3 * 127 = 30480 <= 32767. */
enum { INT16_BLOCKS = 10 };

INLINE void matvec_rows(const uint8_t *codes, int n, int64_t n_block, const int8_t *x, int32_t *acc)
{
    const int64_t stride = n_block * TERNARY_BLOCK_BYTES;
    const uint8_t *next = codes + n * stride;
    int32x4_t total[4];
    for (int r = 0; r < n; r++)
        total[r] = vdupq_n_s32(0);
    for (int64_t b = 0; b < n_block; b += INT16_BLOCKS) {
        int64_t nb = n_block - b < INT16_BLOCKS ? n_block - b : INT16_BLOCKS;
        int16x8_t lo[4], hi[4];
        for (int r = 0; r < n; r++)
            lo[r] = hi[r] = vdupq_n_s16(0);
        for (int64_t i = 0; i < nb; i++, x += TERNARY_BLOCK, codes += TERNARY_BLOCK_BYTES) {
            fetch_rows(codes, stride, n, next, TERNARY_BLOCK_BYTES);
            next += n * TERNARY_BLOCK_BYTES;
            for (int half = 0; half < 32; half += 16) {
                int8x16_t xv[4], c[4];
                for (int j = 0; j < 4; j++)
                    xv[j] = vld1q_s8(x + half + 32 * j);
                for (int r = 0; r < n; r++) {
                    unpack(codes + r * stride + half, c);
                    add_products(&lo[r], &hi[r], c, xv);
                }
            }
        }
        for (int r = 0; r < n; r++)
            total[r] = vpadalq_s16(vpadalq_s16(total[r], lo[r]), hi[r]);
    }
    for (int r = 0; r < n; r++)
        acc[r] = vaddvq_s32(total[r]);
}

static void ternary_matvec(const uint8_t *codes, int64_t n_row, int64_t n_block, const int8_t *x, int32_t *acc)
{
    const int64_t row_bytes = n_block * TERNARY_BLOCK_BYTES;
    const int side = rows_at_once(row_bytes);
#define PART(n) matvec_rows(codes + r * row_bytes, n, n_block, x, acc + r)
    BY_ROWS(side, n_row, PART)
#undef PART
}

#define LOOKUP_LEAST_ROWS 128 /* by the analyser: on a Cortex-A53 from 97, on an A72 from 78 */

/* One row against up to eight tokens; the block is unpacked once. */
#define TILE_TOKENS 8
enum { TILE_ROWS = 1 };

INLINE void tile(const uint8_t *codes, int64_t row_bytes, int64_t n_block, const int8_t *x, int64_t x_stride, int n_row,
                 int n_token, int stream, int32_t *sum)
{
    int32x4_t total[8];
    (void)n_row;
    for (int t = 0; t < n_token; t++)
        total[t] = vdupq_n_s32(0);
    for (int64_t b = 0; b < n_block; b += INT16_BLOCKS) {
        int64_t nb = n_block - b < INT16_BLOCKS ? n_block - b : INT16_BLOCKS;
        int16x8_t lo[8], hi[8];
        for (int t = 0; t < n_token; t++)
            lo[t] = hi[t] = vdupq_n_s16(0);
        for (int64_t i = 0; i < nb; i++, x += TERNARY_BLOCK, codes += TERNARY_BLOCK_BYTES)
            for (int half = 0; half < 32; half += 16) {
                int8x16_t c[4], xv[4];
                if (stream && half == 0)
                    fetch_plain(codes + row_bytes, TERNARY_BLOCK_BYTES);
                unpack(codes + half, c);
                for (int t = 0; t < n_token; t++) {
                    for (int j = 0; j < 4; j++)
                        xv[j] = vld1q_s8(x + t * x_stride + half + 32 * j);
                    add_products(&lo[t], &hi[t], c, xv);
                }
            }
        for (int t = 0; t < n_token; t++)
            total[t] = vpadalq_s16(vpadalq_s16(total[t], lo[t]), hi[t]);
    }
    for (int t = 0; t < n_token; t++)
        sum[t] = vaddvq_s32(total[t]);
}

#include "tiles.inc.h"
#include "lookup.inc.h"

/* ---- needed by head.inc.h ---------------------------------------------------------------------------------------- */

/* A lane of int32 gains at most 2 * 128 * 8191 = 2096896 per step of 16 elements; 1024 steps are 2147221504 < 2^31. */
enum { HEAD_STEP = 16, HEAD_STEPS = 1024 };

typedef int16x8x2_t head_x;
typedef int32x4x2_t head_sums;

INLINE head_x head_load(const int16_t *x) { return (head_x){{vld1q_s16(x), vld1q_s16(x + 8)}}; }

INLINE head_sums head_dot(head_sums sums, const int8_t *w, head_x x)
{
    int8x16_t wv = vld1q_s8(w);
    int16x8_t w0 = vmovl_s8(vget_low_s8(wv)), w1 = vmovl_high_s8(wv);
    sums.val[0] = vmlal_s16(sums.val[0], vget_low_s16(w0), vget_low_s16(x.val[0]));
    sums.val[1] = vmlal_high_s16(sums.val[1], w0, x.val[0]);
    sums.val[0] = vmlal_s16(sums.val[0], vget_low_s16(w1), vget_low_s16(x.val[1]));
    sums.val[1] = vmlal_high_s16(sums.val[1], w1, x.val[1]);
    return sums;
}

INLINE int64_t head_total(head_sums sums) { return vaddlvq_s32(sums.val[0]) + vaddlvq_s32(sums.val[1]); }

HEAD_TOTALS
#include "head.inc.h"

/* ---- int8 KV pages ----------------------------------------------------------------------------------------------- */

/* Two groups of four dimensions at a time: two products of at most 127 * 127 are 32258 in int16. */
INLINE void dot_keys_i8(const int8_t *k, const int8_t *next, int64_t head_dim, int n, const int8_t *q, vi (*s)[8])
{
    for (int t = 0; t < KV_PAGE; t += 8) {
        int32x4_t a[4][4];
        int64_t d = 0;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < 4; j++)
                a[i][j] = vdupq_n_s32(0);
        for (; d + 8 <= head_dim; d += 8) {
            const int8_t *p = k + d * KV_PAGE + t * 4;
            if (t % 16 == 0) {
                prefetch_l2(next + (p - k));
                prefetch_l2(next + (p - k) + 4 * KV_PAGE);
            }
            int8x16_t k0 = vld1q_s8(p), k1 = vld1q_s8(p + 16);
            int8x16_t k2 = vld1q_s8(p + 4 * KV_PAGE), k3 = vld1q_s8(p + 4 * KV_PAGE + 16);
            for (int i = 0; i < n; i++) {
                int8x16_t q0 = vreinterpretq_s8_u8(broadcast4(q + i * head_dim + d));
                int8x16_t q1 = vreinterpretq_s8_u8(broadcast4(q + i * head_dim + d + 4));
                int16x8_t m0 = vmlal_s8(vmull_s8(vget_low_s8(k0), vget_low_s8(q0)), vget_low_s8(k2), vget_low_s8(q1));
                int16x8_t m1 = vmlal_high_s8(vmull_high_s8(k0, q0), k2, q1);
                int16x8_t m2 = vmlal_s8(vmull_s8(vget_low_s8(k1), vget_low_s8(q0)), vget_low_s8(k3), vget_low_s8(q1));
                int16x8_t m3 = vmlal_high_s8(vmull_high_s8(k1, q0), k3, q1);
                a[i][0] = vpadalq_s16(a[i][0], m0);
                a[i][1] = vpadalq_s16(a[i][1], m1);
                a[i][2] = vpadalq_s16(a[i][2], m2);
                a[i][3] = vpadalq_s16(a[i][3], m3);
            }
        }
        if (d < head_dim) {
            const int8_t *p = k + d * KV_PAGE + t * 4;
            int8x16_t k0 = vld1q_s8(p), k1 = vld1q_s8(p + 16);
            for (int i = 0; i < n; i++) {
                int8x16_t q0 = vreinterpretq_s8_u8(broadcast4(q + i * head_dim + d));
                a[i][0] = vpadalq_s16(a[i][0], vmull_s8(vget_low_s8(k0), vget_low_s8(q0)));
                a[i][1] = vpadalq_s16(a[i][1], vmull_high_s8(k0, q0));
                a[i][2] = vpadalq_s16(a[i][2], vmull_s8(vget_low_s8(k1), vget_low_s8(q0)));
                a[i][3] = vpadalq_s16(a[i][3], vmull_high_s8(k1, q0));
            }
        }
        for (int i = 0; i < n; i++) { /* two halves of a token are neighbours */
            s[i][t / 4] = (vi)vpaddq_s32(a[i][0], a[i][1]);
            s[i][t / 4 + 1] = (vi)vpaddq_s32(a[i][2], a[i][3]);
        }
    }
}

/* u - 128 is a signed byte; 128 times the sum of the values makes up for it.  Two groups of four tokens at a time: two
 * products of at most 128 * 127 are 32512 in int16. */
#define VALUE_DIMS 8
#define WEIGHT_PARTS 1
INLINE void dot_values_i8(const int8_t *v, const int8_t *next, int64_t head_dim, int64_t d, int n,
                          const uint8_t (*u)[KV_PAGE], vi (*sum)[2])
{
    const uint8x16_t flip = vdupq_n_u8(0x80);
    int32x4_t a[4][4];
    int16x8_t ones0 = vdupq_n_s16(0), ones1 = ones0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 4; j++)
            a[i][j] = vdupq_n_s32(0);
    for (int t = 0; t < KV_PAGE; t += 8) {
        const int8_t *p = v + t * head_dim + d * 4, *p2 = p + head_dim * 4;
        if (d % 16 == 0) {
            prefetch_l2(next + (p - v));
            prefetch_l2(next + (p2 - v));
        }
        int8x16_t v0 = vld1q_s8(p), v1 = vld1q_s8(p + 16), v2 = vld1q_s8(p2), v3 = vld1q_s8(p2 + 16);
        ones0 = vpadalq_s8(vpadalq_s8(ones0, v0), v2); /* 32 values of at most 127 in two lanes */
        ones1 = vpadalq_s8(vpadalq_s8(ones1, v1), v3);
        for (int i = 0; i < n; i++) {
            int8x16_t w0 = vreinterpretq_s8_u8(veorq_u8(broadcast4(u[i] + t), flip));
            int8x16_t w1 = vreinterpretq_s8_u8(veorq_u8(broadcast4(u[i] + t + 4), flip));
            int16x8_t m0 = vmlal_s8(vmull_s8(vget_low_s8(v0), vget_low_s8(w0)), vget_low_s8(v2), vget_low_s8(w1));
            int16x8_t m1 = vmlal_high_s8(vmull_high_s8(v0, w0), v2, w1);
            int16x8_t m2 = vmlal_s8(vmull_s8(vget_low_s8(v1), vget_low_s8(w0)), vget_low_s8(v3), vget_low_s8(w1));
            int16x8_t m3 = vmlal_high_s8(vmull_high_s8(v1, w0), v3, w1);
            a[i][0] = vpadalq_s16(a[i][0], m0);
            a[i][1] = vpadalq_s16(a[i][1], m1);
            a[i][2] = vpadalq_s16(a[i][2], m2);
            a[i][3] = vpadalq_s16(a[i][3], m3);
        }
    }
    int32x4_t sum0 = vshlq_n_s32(vpaddlq_s16(ones0), 7), sum1 = vshlq_n_s32(vpaddlq_s16(ones1), 7);
    for (int i = 0; i < n; i++) {
        sum[i][0] = (vi)vaddq_s32(vpaddq_s32(a[i][0], a[i][1]), sum0);
        sum[i][1] = (vi)vaddq_s32(vpaddq_s32(a[i][2], a[i][3]), sum1);
    }
}

/* Products are at most 15 * 127 = 1905; sixteen of them, 30480, stay in int16. */
INLINE void dot_keys_i4(const uint8_t *k, const uint8_t *next, int64_t n_quad, int n, const int8_t *q, int64_t ld_q,
                        vi (*s)[8])
{
    int32_t start[4];
    for (int i = 0; i < n; i++)
        start[i] = -8 * sum_i8(q + i * ld_q, 4 * n_quad);
    for (int t = 0; t < 4; t++) { /* tokens 4t .. 4t + 3 in the low nibbles, 16 more in the high ones */
        for (int i = 0; i < n; i++)
            s[i][t] = s[i][4 + t] = (vi)vdupq_n_s32(start[i]);
        for (int64_t j = 0; j < n_quad; j += 16) {
            int64_t end = n_quad - j < 16 ? n_quad : j + 16;
            int16x8_t a[4][4];
            for (int i = 0; i < n; i++)
                for (int c = 0; c < 4; c++)
                    a[i][c] = vdupq_n_s16(0);
            for (int64_t h = j; h < end; h++) {
                uint8x16_t c = vld1q_u8(k + 64 * h + 16 * t);
                int8x16_t k0 = vreinterpretq_s8_u8(low_nibbles(c)), k1 = vreinterpretq_s8_u8(high_nibbles(c));
                if (t == 0)
                    prefetch_l2(next + 64 * h);
                for (int i = 0; i < n; i++) {
                    int8x16_t qv = vreinterpretq_s8_u8(broadcast4(q + i * ld_q + 4 * h));
                    a[i][0] = vmlal_s8(a[i][0], vget_low_s8(k0), vget_low_s8(qv));
                    a[i][1] = vmlal_high_s8(a[i][1], k0, qv);
                    a[i][2] = vmlal_s8(a[i][2], vget_low_s8(k1), vget_low_s8(qv));
                    a[i][3] = vmlal_high_s8(a[i][3], k1, qv);
                }
            }
            for (int i = 0; i < n; i++) { /* two halves of a token are neighbours */
                s[i][t] += (vi)vpaddq_s32(vpaddlq_s16(a[i][0]), vpaddlq_s16(a[i][1]));
                s[i][4 + t] += (vi)vpaddq_s32(vpaddlq_s16(a[i][2]), vpaddlq_s16(a[i][3]));
            }
        }
    }
}

/* Products are at most 255 * 15 = 3825; eight of them, 30600, stay in uint16. */
INLINE void dot_values_i4(const uint8_t *v, const uint8_t *next, int64_t head_dim, int64_t d, int n,
                          const uint8_t (*u)[KV_PAGE], vi (*sum)[2])
{
    uint16x8_t a[4][4];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 4; j++)
            a[i][j] = vdupq_n_u16(0);
    for (int t = 0; t < KV_PAGE / 2; t += 4) {
        const uint8_t *p = v + t * head_dim + d * 4;
        if (d % 16 == 0)
            prefetch_l2(next + (p - v));
        uint8x16_t c0 = vld1q_u8(p), c1 = vld1q_u8(p + 16);
        for (int high = 0; high < 2; high++) {
            uint8x16_t v0 = high ? high_nibbles(c0) : low_nibbles(c0), v1 = high ? high_nibbles(c1) : low_nibbles(c1);
            for (int i = 0; i < n; i++) {
                uint8x16_t w = broadcast4(u[i] + high * (KV_PAGE / 2) + t);
                a[i][0] = vmlal_u8(a[i][0], vget_low_u8(v0), vget_low_u8(w));
                a[i][1] = vmlal_high_u8(a[i][1], v0, w);
                a[i][2] = vmlal_u8(a[i][2], vget_low_u8(v1), vget_low_u8(w));
                a[i][3] = vmlal_high_u8(a[i][3], v1, w);
            }
        }
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 2; j++)
            sum[i][j] = (vi)vpaddq_u32(vpaddlq_u16(a[i][2 * j]), vpaddlq_u16(a[i][2 * j + 1]));
}

#include "bit_dots.inc.h"

#include "byte_dots.inc.h"

#include "attention_int4.inc.h"

const struct kernels kernels_neon = {
    .name = "neon",
    .own = ARM_OWN,
    .many_tokens = LOOKUP_LEAST_TOKENS,
    .byte_vectors = BYTE_LEAST_VECTORS,
    KERNEL_FUNCTIONS,
};

#else
typedef int not_compiled_for_neon; /* ISO C requires a declaration */
#endif
