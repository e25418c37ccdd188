/* i8mm.c: aarch64 with the int8 matrix multiply (Neoverse N2/V1, Cortex-A510/A710 and later, recent laptops).
 * One token is limited by memory and shares dotprod's code; several tokens go through smmla, 2 x 8 by 8 x 2. */
#if defined(__aarch64__) && defined(__ARM_FEATURE_MATMUL_INT8) && defined(__ARM_FEATURE_DOTPROD)

#include "arm_dot.h"

/* Rows and tokens go in pairs: a register holds 8 bytes of one and 8 bytes of the other. */
INLINE int8x16_t first_halves(int8x16_t a, int8x16_t b)
{
    return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

INLINE int8x16_t second_halves(int8x16_t a, int8x16_t b)
{
    return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

#define TILE_TOKENS 8
enum { TILE_ROWS = 4 };

INLINE void tile(const uint8_t *codes, int64_t row_bytes, int64_t n_block, const int8_t *x, int64_t x_stride, int n_row,
                 int n_token, int stream, int32_t *sum)
{
    if (n_row == 1 || n_token == 1) { /* nothing to pair */
        for (int r = 0; r < n_row; r++)
            dot_tile(codes + r * row_bytes, row_bytes, n_block, x, x_stride, 1, n_token, stream, TILE_ROWS, sum + r);
        return;
    }
    const int n_pair = (n_token + 1) / 2; /* the last of an odd number is its own neighbour */
    int32x4_t s[2][4];                    /* [row pair][token pair], each row-major 2 x 2 */
    for (int r = 0; r < 2; r++)
        for (int t = 0; t < n_pair; t++)
            s[r][t] = vdupq_n_s32(0);
    for (int64_t b = 0; b < n_block; b++, x += TERNARY_BLOCK, codes += TERNARY_BLOCK_BYTES)
        for (int half = 0; half < 32; half += 16) {
            uint8x16_t first[2], second[2];
            for (int r = 0; r < 2; r++) {
                if (stream && half == 0) {
                    prefetch_stream(codes + 2 * r * row_bytes);
                    prefetch_stream(codes + (2 * r + 1) * row_bytes);
                }
                int8x16_t even = vreinterpretq_s8_u8(vld1q_u8(codes + 2 * r * row_bytes + half));
                int8x16_t odd = vreinterpretq_s8_u8(vld1q_u8(codes + (2 * r + 1) * row_bytes + half));
                first[r] = vreinterpretq_u8_s8(first_halves(even, odd));
                second[r] = vreinterpretq_u8_s8(second_halves(even, odd));
            }
            for (int i = 0; i < 4; i++) {
                int8x16_t c0[2], c1[2];
                for (int r = 0; r < 2; r++)
                    c0[r] = codes_at(first[r], i), c1[r] = codes_at(second[r], i);
                for (int t = 0; t < n_pair; t++) {
                    const int8_t *other = x + (2 * t + 1 < n_token ? 2 * t + 1 : 2 * t) * x_stride;
                    int8x16_t even = vld1q_s8(x + 2 * t * x_stride + half + 32 * i);
                    int8x16_t odd = vld1q_s8(other + half + 32 * i);
                    int8x16_t x0 = first_halves(even, odd), x1 = second_halves(even, odd);
                    for (int r = 0; r < 2; r++)
                        s[r][t] = vmmlaq_s32(vmmlaq_s32(s[r][t], c0[r], x0), c1[r], x1);
                }
            }
        }
    for (int r = 0; r < 2; r++)
        for (int t = 0; t < n_token; t++) {
            int32_t four[4];
            vst1q_s32(four, s[r][t / 2]);
            sum[t * TILE_ROWS + 2 * r] = four[t % 2];
            sum[t * TILE_ROWS + 2 * r + 1] = four[2 + t % 2];
        }
}

/* ---- needed by packs.inc.h: two rows by eight elements in a register --------------------------------------------- */

#define PACK_LINES 2

INLINE void interleave(int8_t *out, const int8x16_t v[PACK_LINES])
{
    vst1q_s8(out, first_halves(v[0], v[1]));
    vst1q_s8(out + 16, second_halves(v[0], v[1]));
}

/* s[4 * t + r]: the 2 x 2 sums of two tokens and two rows. */
INLINE void multiply(int32x4_t *s, const int8_t *c, const int8_t *x)
{
    for (int i = 0; i < 32; i += 16) {
        int8x16_t rows[4];
        for (int r = 0; r < 4; r++)
            rows[r] = vld1q_s8(c + 32 * r + i);
        for (int t = 0; t < 4; t++) {
            int8x16_t tokens = vld1q_s8(x + 32 * t + i);
            for (int r = 0; r < 4; r++)
                s[4 * t + r] = vmmlaq_s32(s[4 * t + r], tokens, rows[r]);
        }
    }
}

INLINE void arrange(int32x4_t *s)
{
    for (int t = 0; t < 4; t++) {
        int64x2_t a = vreinterpretq_s64_s32(s[4 * t]), b = vreinterpretq_s64_s32(s[4 * t + 1]);
        int64x2_t c = vreinterpretq_s64_s32(s[4 * t + 2]), d = vreinterpretq_s64_s32(s[4 * t + 3]);
        s[4 * t] = vreinterpretq_s32_s64(vzip1q_s64(a, b)), s[4 * t + 1] = vreinterpretq_s32_s64(vzip1q_s64(c, d));
        s[4 * t + 2] = vreinterpretq_s32_s64(vzip2q_s64(a, b)), s[4 * t + 3] = vreinterpretq_s32_s64(vzip2q_s64(c, d));
    }
}

#include "tiles.inc.h"

/* usdot takes the unsigned probabilities as they are. */
INLINE void dot_values_i8(const int8_t *v, const int8_t *next, int64_t head_dim, int64_t d, int n,
                          const uint8_t (*u)[KV_PAGE], vi (*sum)[4])
{
    int32x4_t a[4][4];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 4; j++)
            a[i][j] = vdupq_n_s32(0);
    for (int t = 0; t < KV_PAGE; t += 4) {
        int8x16_t vv[4];
        prefetch_l2(next + t * head_dim + d * 4);
        for (int j = 0; j < 4; j++)
            vv[j] = vld1q_s8(v + t * head_dim + d * 4 + 16 * j);
        for (int i = 0; i < n; i++) {
            uint8x16_t w = broadcast4(u[i] + t);
            for (int j = 0; j < 4; j++)
                a[i][j] = vusdotq_s32(a[i][j], w, vv[j]);
        }
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 4; j++)
            sum[i][j] = (vi)a[i][j];
}

#include "plane_dots.inc.h"

#include "byte_dots.inc.h"

#include "nibbles.inc.h"

const struct kernels kernels_i8mm = {
    .name = "i8mm",
    .many_tokens = PACK_LEAST_TOKENS,
    .ternary_matvec = ternary_matvec,
    .ternary_matmul = ternary_matmul,
    DELTA_KERNELS,
    GROUPS_KERNELS,
    .head_i8 = head_i8,
    .head_q8_0 = head_q8_0,
    LANES_KERNELS,
    PAGES_KERNELS,
    PLANES_KERNELS,
    BYTE_KERNELS,
};

#else
typedef int not_compiled_for_i8mm; /* ISO C requires a declaration */
#endif
