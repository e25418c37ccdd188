/* multiply.inc.h: some rows multiplied while others are looked up.
 *
 * Looking up (lookup.inc.h) is loads and additions, and the multipliers are idle.  Where one instruction adds four
 * products to each lane, part of the rows go through it, in such small steps between the rows that are looked up that
 * the processor does both at once.
 *
 * Lanes are rows: the codes of MULTIPLY_ROWS rows are turned four bytes at a time, and the inputs of MULTIPLY_TOKENS
 * tokens are broadcast to all lanes.  A step is four bytes of each row, 16 inputs; a tile is MULTIPLY_BLOCKS blocks,
 * whose sums stay in registers.  A tile can be left after any step and taken up again.
 *
 * lookup.inc.h includes this if multiply_dot is defined:
 *   multiply_dot(s, codes, x)   ints16: s + the products of the four bytes of each lane, codes unsigned, x signed */
#ifndef BITNET_EDGE_MULTIPLY_H
#define BITNET_EDGE_MULTIPLY_H

enum {
    MULTIPLY_ROWS = 32,
    MULTIPLY_TOKENS = 8,
    MULTIPLY_BLOCKS = 8,                      /* of a tile, at most                                 */
    MULTIPLY_STEPS = TERNARY_BLOCK_BYTES / 4, /* of a block                                         */
    MULTIPLY_LOOKUPS = 8,                     /* rows looked up in a step: as many products in each */
};

typedef uint32_t quads16 __attribute__((vector_size(64)));
typedef int32_t ints16 __attribute__((vector_size(64)));

/* Working memory, and what is left to do: the tile at (row, block, token), from step on. */
struct multiplied {
    quads16 panel[MULTIPLY_BLOCKS * MULTIPLY_STEPS][2]; /* four bytes of each row */
    const uint8_t *codes;                           /* [n_row][n_block] blocks */
    const int8_t *x;                                /* [n_token][n_block] blocks */
    int32_t *acc;                                   /* [n_token][ld_acc], added to */
    int64_t n_row, n_block, n_token, ld_acc;
    int64_t row, block, token, step;
};

INLINE words8 zip_low32(words8 a, words8 b) { return PICK(words8, a, b, 0, 1, 8, 9, 2, 3, 10, 11); }

INLINE words8 zip_high32(words8 a, words8 b)
{
    return PICK(words8, a, b, 4, 5, 12, 13, 6, 7, 14, 15);
}

/* Codes of a tile -> panel. */
static void multiply_turn(struct multiplied *d, int64_t n_block)
{
    const int64_t row_bytes = d->n_block * TERNARY_BLOCK_BYTES;
    const uint8_t *codes = d->codes + d->row * row_bytes + d->block * TERNARY_BLOCK_BYTES;
    for (int64_t at = 0; at < n_block * TERNARY_BLOCK_BYTES; at += 16)
        for (int r = 0; r < MULTIPLY_ROWS; r += 4) {
            words8 a[4];
            for (int i = 0; i < 4; i++)
                memcpy(&a[i], codes + (r + i) * row_bytes + at, 16);
            const words8 even_low = zip_low32(a[0], a[2]), even_high = zip_high32(a[0], a[2]);
            const words8 odd_low = zip_low32(a[1], a[3]), odd_high = zip_high32(a[1], a[3]);
            a[0] = zip_low32(even_low, odd_low), a[1] = zip_high32(even_low, odd_low);
            a[2] = zip_low32(even_high, odd_high), a[3] = zip_high32(even_high, odd_high);
            for (int i = 0; i < 4; i++)
                memcpy((char *)d->panel[at / 4 + i] + 4 * r, &a[i], 16);
        }
}

/* The share of a panel's codes that one of its tiles fetches, for the panel behind it. */
static void multiply_fetch(const struct multiplied *d, int64_t n_block)
{
    const int64_t row_bytes = d->n_block * TERNARY_BLOCK_BYTES, block = d->block + n_block;
    const uint8_t *next = d->codes + (block < d->n_block ? d->row : d->row + MULTIPLY_ROWS) * row_bytes;
    next += (block < d->n_block ? block : 0) * TERNARY_BLOCK_BYTES;
    const int64_t stop = MULTIPLY_ROWS * (d->token + MULTIPLY_TOKENS) / d->n_token;
    for (int64_t r = MULTIPLY_ROWS * d->token / d->n_token; r < stop; r++)
        for (int i = 0; i < MULTIPLY_BLOCKS * TERNARY_BLOCK_BYTES; i += 64)
            prefetch_l2(next + r * row_bytes + i);
}

/* At most n steps, each among `lookups` rows of a pass of lookup_rows, MULTIPLY_LOOKUPS or 0.  Returns the number of
 * steps done. */
INLINE int64_t multiply_steps(struct multiplied *d, int64_t n, int lookups, const char *table, const uint16_t *offset,
                              lanes16 *restrict sum, const uint8_t *next, int64_t row_bytes, int64_t pace)
{
    const int64_t x_stride = d->n_block * TERNARY_BLOCK;
    int64_t done = 0, ahead = 0;
    while (done < n && d->row < d->n_row) {
        const int64_t n_block = d->n_block - d->block < MULTIPLY_BLOCKS ? d->n_block - d->block : MULTIPLY_BLOCKS;
        const int64_t n_step = n_block * MULTIPLY_STEPS;
        const int64_t stop = n_step - d->step < n - done ? n_step : d->step + n - done;
        const int8_t *x = d->x + d->token * x_stride + d->block * TERNARY_BLOCK;
        int32_t *acc = d->acc + d->token * d->ld_acc + d->row;
        if (d->token == 0 && d->step == 0)
            multiply_turn(d, n_block);
        if (d->step == 0)
            multiply_fetch(d, n_block);
        ints16 s[MULTIPLY_TOKENS][2];
        for (int t = 0; t < MULTIPLY_TOKENS; t++)
            memcpy(s[t], acc + t * d->ld_acc, sizeof s[t]);
        for (; lookups && ahead < lookups * (done + stop - d->step); ahead += pace)
            prefetch_l2(next + ahead * row_bytes);
        x += d->step / MULTIPLY_STEPS * TERNARY_BLOCK + d->step % MULTIPLY_STEPS * 4;
        for (int64_t step = d->step; step < stop; step++) {
            const quads16 *codes = d->panel[step];
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                const quads16 a = codes[0] >> (6 - 2 * i) & 0x03030303;
                const quads16 b = codes[1] >> (6 - 2 * i) & 0x03030303;
#pragma GCC unroll 8
                for (int t = 0; t < MULTIPLY_TOKENS; t++) {
                    int32_t four;
                    memcpy(&four, x + t * x_stride + 32 * i, 4);
                    s[t][0] = multiply_dot(s[t][0], a, (ints16){0} + four);
                    s[t][1] = multiply_dot(s[t][1], b, (ints16){0} + four);
                    if (lookups && t % 4 == 3) {
                        const int r = 2 * i + t / 4;
                        sum[r] = lookup_row(table, offset + r * LOOKUP_RUN, sum[r]);
                    }
                }
            }
            x += (step + 1) % MULTIPLY_STEPS ? 4 : TERNARY_BLOCK - 4 * (MULTIPLY_STEPS - 1);
            offset += lookups * LOOKUP_RUN, sum += lookups;
        }
        for (int t = 0; t < MULTIPLY_TOKENS; t++)
            memcpy(acc + t * d->ld_acc, s[t], sizeof s[t]);
        done += stop - d->step;
        d->step = stop;
        if (d->step < n_step)
            break;
        d->step = 0;
        if ((d->token += MULTIPLY_TOKENS) < d->n_token)
            continue;
        d->token = 0;
        if ((d->block += n_block) < d->n_block)
            continue;
        d->block = 0;
        d->row += MULTIPLY_ROWS;
    }
    return done;
}

#endif
