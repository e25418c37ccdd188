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

/* ---- few tokens: laid out once for all rows, codes unpacked in registers for up to eight pairs ------------------- */

enum {
    FEW_PAIRS = 8,
    FEW_INPUTS = 24 << 10, /* bytes laid out at once: they stay in a first-level cache of 32 KiB while rows pass */
};

_Static_assert(FEW_INPUTS <= MATMUL_WORK(0), "MATMUL_WORK is too small");

/* Eight bytes of each. */
INLINE int8x16_t pair(const void *a, const void *b)
{
    return vreinterpretq_s8_s64(vld1q_lane_s64(b, vcombine_s64(vld1_s64(a), vdup_n_s64(0)), 1));
}

/* -> [n_block][32 / 8][quarter][pair of tokens][2][8].  The last of an odd number is its own neighbour. */
OUT_OF_LINE void pair_tokens(const int8_t *x, int64_t x_stride, int64_t n_block, int n_token, int8_t *out)
{
    const int n_pair = (n_token + 1) / 2;
    for (int64_t b = 0; b < n_block; b++)
        for (int half = 0; half < 32; half += 16, out += 8 * 16 * n_pair)
            for (int i = 0; i < 4; i++) {
                const int8_t *even = x + b * TERNARY_BLOCK + 32 * i + half;
                int8_t *to = out + 16 * n_pair * i;
                for (int t = 0; t < n_token; t += 2, even += 2 * x_stride, to += 16) {
                    int8x16_t v = vld1q_s8(even), w = vld1q_s8(even + (t + 1 < n_token ? x_stride : 0));
                    vst1q_s8(to, first_halves(v, w));
                    vst1q_s8(to + 4 * 16 * n_pair, second_halves(v, w));
                }
            }
}

/* s[r][t] = the 2 x 2 sums of two rows and two tokens, of four rows.  Where registers hold so many, bits 5-4, and 3-2,
 * have their own sums and are used in place, as in matvec_rows.  All tokens are loaded before the first is used: cores
 * that keep the order (Cortex-A510) would wait for each. */
INLINE void few_sums(const uint8_t *codes, int64_t stride, int64_t n_block, const int8_t *x, int n_pair,
                     int32x4_t s[2][FEW_PAIRS])
{
    static const int order[4] = {1, 0, 3, 2}; /* in which GCC finds registers for all */
    const uint8_t *next = codes + 4 * stride;
    int32x4_t sum[3][2][FEW_PAIRS];
    for (int i = 0; i < 3; i++)
        for (int r = 0; r < 2; r++)
            for (int t = 0; t < n_pair; t++)
                sum[i][r][t] = vdupq_n_s32(0);
#pragma GCC unroll 1 /* more would push sums out of registers */
    for (int64_t at = 0; at < n_block * TERNARY_BLOCK_BYTES; at += 8, x += 4 * 16 * n_pair) {
        const uint8_t *c = codes + at;
        uint8x16_t two[2];
        fetch_plain(next + 4 * at, 32);
        for (int r = 0; r < 2; r++)
            two[r] = vreinterpretq_u8_s8(pair(c + 2 * r * stride, c + (2 * r + 1) * stride));
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const int i = order[j], own = (i == 1 && n_pair <= 5) || (i == 2 && n_pair <= 2) ? i : 0;
            int8x16_t tokens[FEW_PAIRS];
            for (int t = 0; t < n_pair; t++)
                tokens[t] = vld1q_s8(x + 16 * (n_pair * i + t));
            for (int r = 0; r < 2; r++) {
                int8x16_t u = own ? vreinterpretq_s8_u8(vandq_u8(two[r], vdupq_n_u8(i == 1 ? 0x30 : 0x0c)))
                                  : codes_at(two[r], i);
                for (int t = 0; t < n_pair; t++)
                    sum[own][r][t] = vmmlaq_s32(sum[own][r][t], u, tokens[t]);
            }
        }
    }
    for (int r = 0; r < 2; r++)
        for (int t = 0; t < n_pair; t++)
            s[r][t] = vsraq_n_s32(vsraq_n_s32(sum[0][r][t], sum[1][r][t], 4), sum[2][r][t], 2);
}

INLINE void few_add(int32x4_t sums, int64_t n, int first, int32_t *acc)
{
    if (n == 4)
        vst1q_s32(acc, first ? sums : vaddq_s32(vld1q_s32(acc), sums));
    else
        *acc = (first ? 0 : *acc) + vgetq_lane_s32(sums, 0);
}

/* A row that is left over is taken four times. */
INLINE void few_rows(const uint8_t *codes, int64_t row_bytes, int64_t n_row, int64_t n_block, const int8_t *x,
                     int n_pair, int64_t n_token, int first, int32_t *acc, int64_t ld_acc)
{
    for (int64_t r = 0, n; r < n_row; r += n) {
        int32x4_t s[2][FEW_PAIRS];
        n = n_row - r >= 4 ? 4 : 1;
        few_sums(codes + r * row_bytes, n == 4 ? row_bytes : 0, n_block, x, n_pair, s);
        for (int t = 0; t < n_pair; t++) {
            few_add(vuzp1q_s32(s[0][t], s[1][t]), n, first, acc + 2 * t * ld_acc + r);
            if (2 * t + 1 < n_token)
                few_add(vuzp2q_s32(s[0][t], s[1][t]), n, first, acc + (2 * t + 1) * ld_acc + r);
        }
    }
}

typedef void few_tokens(const uint8_t *codes, int64_t row_bytes, int64_t n_row, int64_t n_block, const int8_t *x,
                        int64_t n_token, int first, int32_t *acc, int64_t ld_acc);

#define FEW(order, n_pair)                                                                                             \
    order void few_##n_pair(const uint8_t *codes, int64_t row_bytes, int64_t n_row, int64_t n_block, const int8_t *x,  \
                            int64_t n_token, int first, int32_t *acc, int64_t ld_acc)                                  \
    {                                                                                                                  \
        few_rows(codes, row_bytes, n_row, n_block, x, n_pair, n_token, first, acc, ld_acc);                            \
    }

FEW(OUT_OF_LINE, 1) FEW(OUT_OF_LINE, 2) FEW(OUT_OF_LINE, 3) /* registers are left */
FEW(IN_ORDER, 4) FEW(IN_ORDER, 5) FEW(IN_ORDER, 6) FEW(IN_ORDER, 7) FEW(IN_ORDER, 8)

/* In place of that of tiles.inc.h. */
static void tiled_matmul(const uint8_t *codes, int64_t n_row, int64_t n_block, const int8_t *x, int64_t n_token,
                         int32_t *acc, int64_t ld_acc, void *work)
{
    static few_tokens *const few[FEW_PAIRS] = {few_1, few_2, few_3, few_4, few_5, few_6, few_7, few_8};
    if (n_token == 1) {
        ternary_matvec(codes, n_row, n_block, x, acc);
        return;
    }
    const int64_t row_bytes = n_block * TERNARY_BLOCK_BYTES, x_stride = n_block * TERNARY_BLOCK;
    const int64_t n_group = (n_token + 2 * FEW_PAIRS - 1) / (2 * FEW_PAIRS);
    for (int64_t g = 0; g < n_group; g++) {
        const int64_t t = n_token * g / n_group, n = n_token * (g + 1) / n_group - t; /* equal groups */
        const int64_t most = FEW_INPUTS / TERNARY_BLOCK / (n + n % 2);
        const int64_t n_chunk = n_block > 0 ? (n_block + most - 1) / most : 1;
        const int64_t chunk = (n_block + n_chunk - 1) / n_chunk; /* and equal chunks */
        int64_t b = 0;
        do {
            const int64_t nb = n_block - b < chunk ? n_block - b : chunk;
            const uint8_t *c = codes + b * TERNARY_BLOCK_BYTES;
            pair_tokens(x + t * x_stride + b * TERNARY_BLOCK, x_stride, nb, (int)n, work);
            few[(n - 1) / 2](c, row_bytes, n_row, nb, work, n, b == 0, acc + t * ld_acc, ld_acc);
            b += nb;
        } while (b < n_block);
    }
}

/* ---- needed by packs.inc.h: two rows by eight elements in a register --------------------------------------------- */

#define PACK_LINES 2
enum { PACK_LEAST_TOKENS = 32 };

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

#include "packs.inc.h"

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

#include "bit_dots.inc.h"

#include "byte_dots.inc.h"

#include "attention_int4.inc.h"

const struct kernels kernels_i8mm = {
    .name = "i8mm",
    .own = ARM_OWN,
    .many_tokens = PACK_LEAST_TOKENS,
    .byte_vectors = BYTE_LEAST_VECTORS,
    KERNEL_FUNCTIONS,
};

#else
typedef int not_compiled_for_i8mm; /* ISO C requires a declaration */
#endif
