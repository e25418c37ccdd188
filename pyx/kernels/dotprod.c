/* dotprod.c: aarch64 with the ARMv8.2 dot product (Cortex-A76: Raspberry Pi 5; Neoverse N1, laptops). */
#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)

#include "arm_dot.h"

#define TILE_TOKENS 8
enum { TILE_ROWS = 2 };

INLINE void tile(const uint8_t *codes, int64_t row_bytes, int64_t n_block, const int8_t *x, int64_t x_stride, int n_row,
                 int n_token, int stream, int32_t *sum)
{
    dot_tile(codes, row_bytes, n_block, x, x_stride, n_row, n_token, stream, TILE_ROWS, sum);
}

/* ---- needed by packs.inc.h: four rows by four elements in a register, tokens by element -------------------------- */

#define PACK_LINES 4
enum { PACK_LEAST_TOKENS = 16 };

INLINE void interleave(int8_t *out, const int8x16_t v[PACK_LINES])
{
    int32x4x4_t rows;
    for (int r = 0; r < PACK_LINES; r++)
        rows.val[r] = vreinterpretq_s32_s8(v[r]);
    vst4q_s32((int32_t *)out, rows);
}

#define MULTIPLY_LANE(t)                                                                                               \
    s[2 * (t)] = vdotq_laneq_s32(s[2 * (t)], c0, (t) < 4 ? x0 : x1, (t) % 4),                                          \
    s[2 * (t) + 1] = vdotq_laneq_s32(s[2 * (t) + 1], c1, (t) < 4 ? x0 : x1, (t) % 4)

INLINE void multiply(int32x4_t *s, const int8_t *c, const int8_t *x)
{
    for (int i = 0; i < 64; i += 16) {
        int8x16_t c0 = vld1q_s8(c + i), c1 = vld1q_s8(c + i + 64), x0 = vld1q_s8(x + i), x1 = vld1q_s8(x + i + 64);
        MULTIPLY_LANE(0), MULTIPLY_LANE(1), MULTIPLY_LANE(2), MULTIPLY_LANE(3);
        MULTIPLY_LANE(4), MULTIPLY_LANE(5), MULTIPLY_LANE(6), MULTIPLY_LANE(7);
    }
}

INLINE void arrange(int32x4_t *s) { (void)s; }

#include "tiles.inc.h"
#include "packs.inc.h"

/* u - 128 is a signed byte; 128 times the sum of the values, shared by the queries, makes up for it. */
INLINE void dot_values_i8(const int8_t *v, const int8_t *next, int64_t head_dim, int64_t d, int n,
                          const uint8_t (*u)[KV_PAGE], vi (*sum)[4])
{
    int32x4_t a[4][4], ones[4];
    for (int j = 0; j < 4; j++) {
        ones[j] = vdupq_n_s32(0);
        for (int i = 0; i < n; i++)
            a[i][j] = vdupq_n_s32(0);
    }
    for (int t = 0; t < KV_PAGE; t += 4) {
        int8x16_t vv[4];
        prefetch_l2(next + t * head_dim + d * 4);
        for (int j = 0; j < 4; j++) {
            vv[j] = vld1q_s8(v + t * head_dim + d * 4 + 16 * j);
            ones[j] = vdotq_s32(ones[j], vv[j], vdupq_n_s8(1));
        }
        for (int i = 0; i < n; i++) {
            int8x16_t w = vreinterpretq_s8_u8(veorq_u8(broadcast4(u[i] + t), vdupq_n_u8(0x80)));
            for (int j = 0; j < 4; j++)
                a[i][j] = vdotq_s32(a[i][j], vv[j], w);
        }
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 4; j++)
            sum[i][j] = (vi)vaddq_s32(a[i][j], vshlq_n_s32(ones[j], 7));
}

#include "bit_dots.inc.h"

#include "byte_dots.inc.h"

#include "attention_int4.inc.h"

const struct kernels kernels_dotprod = {
    .name = "dotprod",
    .own = ARM_OWN,
    .many_tokens = PACK_LEAST_TOKENS,
    .byte_vectors = BYTE_LEAST_VECTORS,
    KERNEL_FUNCTIONS,
};

#else
typedef int not_compiled_for_dotprod; /* ISO C requires a declaration */
#endif
