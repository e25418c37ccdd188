/* packs.inc.h: a ternary matrix times many tokens with instructions that multiply small matrices (sdot by element,
 * smmla).
 *
 * Both sides are laid out beforehand as the registers want them, codes once for all tokens and activations once for all
 * rows, so that the innermost loop only loads and multiplies.
 *
 *   for each chunk of blocks
 *       activations of all tokens -> packs
 *       for each PACK rows
 *           codes -> one pack
 *           for each PACK tokens
 *               two packs -> PACK * PACK sums
 *
 * A pack holds PACK rows or tokens, PACK_STEP bytes for every 16 elements: [PACK / PACK_LINES][PACK_LINES][16], where
 * 16 bytes are 16 / PACK_LINES neighbours of PACK_LINES rows.  A chunk of codes and one of 8 tokens are 8 KiB each, in
 * the first-level cache; those of 128 tokens are 128 KiB, in the second level.
 *
 * The includer has tiled_matmul, of tiles.inc.h or its own, for what is left over, and defines prefetch_l2 as there and
 *   IN_ORDER             as in arm_dot.h
 *   PACK_LEAST_TOKENS    for fewer, tiled_matmul unpacks in registers
 *   PACK_LINES           rows in one register: 4 or 2
 *   interleave(out, v)   stores 16 bytes of PACK_LINES rows in that order
 *   multiply(s, c, x)    s += products of one step; s as it likes, 2 * PACK registers
 *   arrange(s)           makes s[2 * t + i] the sums of token t with rows 4 * i and on */
#ifndef BITNET_EDGE_PACKS_H
#define BITNET_EDGE_PACKS_H

#include "template.h"

enum {
    PACK = 8,
    PACK_STEP = 16 * PACK,
    PACK_CHUNK = 8,   /* blocks */
    PACK_BATCH = 128, /* tokens */
};

_Static_assert((PACK_BATCH + PACK) * TERNARY_BLOCK <= MATMUL_WORK(0), "MATMUL_WORK is too small");

INLINE void pack_step(int8_t *out, const int8x16_t v[PACK])
{
    for (int i = 0; i < PACK; i += PACK_LINES)
        interleave(out + 16 * i, v + i);
}

OUT_OF_LINE void pack_codes(const uint8_t *codes, int64_t row_bytes, int64_t n_block, int8_t *out)
{
    for (int64_t b = 0; b < n_block; b++, codes += TERNARY_BLOCK_BYTES, out += 8 * PACK_STEP)
        for (int half = 0; half < 2; half++) {
            uint8x16_t c[PACK];
            for (int r = 0; r < PACK; r++)
                c[r] = vld1q_u8(codes + r * row_bytes + 16 * half);
            for (int i = 0; i < 4; i++) {
                int8x16_t v[PACK];
                for (int r = 0; r < PACK; r++)
                    v[r] = codes_at(c[r], i);
                pack_step(out + (2 * i + half) * PACK_STEP, v);
            }
        }
}

OUT_OF_LINE void pack_tokens(const int8_t *x, int64_t x_stride, int64_t n_block, int8_t *out)
{
    for (int64_t i = 0; i < n_block * TERNARY_BLOCK; i += 16, out += PACK_STEP) {
        int8x16_t v[PACK];
        for (int t = 0; t < PACK; t++)
            v[t] = vld1q_s8(x + t * x_stride + i);
        pack_step(out, v);
    }
}

/* acc[t][r] of PACK tokens and rows: = sums if first, else +=. */
IN_ORDER void pack_products(const int8_t *c, const int8_t *x, int64_t n_block, int first, int32_t *acc, int64_t ld_acc)
{
    int32x4_t s[2 * PACK];
    for (int i = 0; i < 2 * PACK; i++)
        s[i] = vdupq_n_s32(0);
    for (int64_t i = 0; i < n_block * (TERNARY_BLOCK / 16); i++, c += PACK_STEP, x += PACK_STEP)
        multiply(s, c, x);
    arrange(s);
    for (int t = 0; t < PACK; t++)
        for (int i = 0; i < 2; i++) {
            int32_t *a = acc + t * ld_acc + 4 * i;
            vst1q_s32(a, first ? s[2 * t + i] : vaddq_s32(vld1q_s32(a), s[2 * t + i]));
        }
}

/* n_row and n_token are multiples of PACK, n_token at most PACK_BATCH. */
static void packed_matmul(const uint8_t *codes, int64_t n_row, int64_t n_block, const int8_t *x, int64_t n_token,
                          int32_t *acc, int64_t ld_acc, int8_t *work)
{
    const int64_t row_bytes = n_block * TERNARY_BLOCK_BYTES, x_stride = n_block * TERNARY_BLOCK;
    const int64_t fit = MATMUL_WORK(n_row) / ((n_token + PACK) * TERNARY_BLOCK);
    const int64_t n_chunk = (n_block - 1) / (fit < PACK_CHUNK ? fit : PACK_CHUNK) + 1;
    const int64_t chunk = (n_block - 1) / n_chunk + 1; /* equal chunks: no short last one */
    for (int64_t b = 0, nb; b < n_block; b += nb) {
        nb = n_block - b < chunk ? n_block - b : chunk;
        int8_t *packed_codes = work + n_token * nb * TERNARY_BLOCK;
        for (int64_t t = 0; t < n_token; t += PACK)
            pack_tokens(x + t * x_stride + b * TERNARY_BLOCK, x_stride, nb, work + t * nb * TERNARY_BLOCK);
        for (int64_t r = 0; r < n_row; r += PACK) {
            const uint8_t *c = codes + r * row_bytes + b * TERNARY_BLOCK_BYTES;
            const uint8_t *next = r + PACK < n_row ? c + PACK * row_bytes : codes + (b + nb) * TERNARY_BLOCK_BYTES;
            pack_codes(c, row_bytes, nb, packed_codes);
            for (int64_t t = 0; t < n_token; t += PACK) {
                /* what comes next, a share for each pack of tokens: all at once would be dropped */
                for (int64_t i = PACK * t / n_token; i < PACK * (t + PACK) / n_token; i++)
                    for (int64_t line = 0; line < nb * TERNARY_BLOCK_BYTES; line += 64)
                        prefetch_l2(next + i * row_bytes + line);
                pack_products(packed_codes, work + t * nb * TERNARY_BLOCK, nb, b == 0, acc + t * ld_acc + r, ld_acc);
            }
        }
    }
}

static void ternary_matmul(const uint8_t *codes, int64_t n_row, int64_t n_block, const int8_t *x, int64_t n_token,
                           int32_t *acc, int64_t ld_acc, void *work)
{
    int64_t rows = n_row / PACK * PACK, tokens = n_token / PACK * PACK;
    if (rows == 0 || n_block == 0 || n_token < PACK_LEAST_TOKENS)
        tokens = 0;
    for (int64_t t = 0, n; t < tokens; t += n) {
        n = tokens - t < PACK_BATCH ? tokens - t : PACK_BATCH;
        packed_matmul(codes, rows, n_block, x + t * n_block * TERNARY_BLOCK, n, acc + t * ld_acc, ld_acc, work);
    }
    if (rows < n_row && tokens > 0)
        tiled_matmul(codes + rows * n_block * TERNARY_BLOCK_BYTES, n_row - rows, n_block, x, tokens, acc + rows,
                     ld_acc, work);
    if (tokens < n_token)
        tiled_matmul(codes, n_row, n_block, x + tokens * n_block * TERNARY_BLOCK, n_token - tokens,
                     acc + tokens * ld_acc, ld_acc, work);
}

#endif
