/* lookup.inc.h: a ternary matrix times many tokens, without a multiplication.
 *
 * Four weights have 81 values.  For four inputs of LOOKUP_TOKENS tokens all 81 signed sums are written into a table,
 * each a vector of int16 with one lane a token; then every row adds one of them: a load and an addition do the work of
 * 4 * LOOKUP_TOKENS products.  The four weights are those of one byte of codes: in base 3 it names the entry.
 *
 *   for each block of 128 inputs
 *       codes of all rows -> offsets into tables, once for all tokens
 *       for each LOOKUP_TOKENS tokens
 *           activations -> lanes
 *           for each run of bytes, as many as have their tables in two thirds of a first-level cache of 32 KiB
 *               write the tables; for each row add one entry of each
 *
 * The sums stay in int16 for as long as sum |x| of their token allows: two blocks at least, about ten as activations
 * are.  A table costs what some 130 rows gain by it, so there must be many rows.
 *
 * The includer has included tiles.inc.h, for what is left over, and defines
 *   multiply_dot(s, codes, x)   if half of the rows shall be multiplied meanwhile: ints16, s + the products of the four
 *                       bytes of each lane, codes unsigned, x signed
 *   LOOKUP_LEAST_ROWS   from how many rows it is faster than the tiles, if not from 256
 *   LOOKUP_LEAST_TOKENS and from how many tokens, if not from LOOKUP_TOKENS */
#ifndef BITNET_EDGE_LOOKUP_H
#define BITNET_EDGE_LOOKUP_H

#include "template.h"

#ifndef LOOKUP_LEAST_TOKENS
#define LOOKUP_LEAST_TOKENS LOOKUP_TOKENS
#endif

#ifndef LOOKUP_LEAST_ROWS
#define LOOKUP_LEAST_ROWS 256
#endif

enum {
    LOOKUP_TOKENS = 16, /* lanes of int16 in a vector: two registers on aarch64, so that an address serves both */
    LOOKUP_RUN = 128 / LOOKUP_TOKENS, /* bytes of codes, one table each */
    LOOKUP_RUNS = TERNARY_BLOCK_BYTES / LOOKUP_RUN,
    LOOKUP_ENTRIES = 81,
    LOOKUP_BATCH = 128, /* tokens at once */
};

typedef int16_t lanes16 __attribute__((vector_size(2 * LOOKUP_TOKENS)));
typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint16_t words8 __attribute__((vector_size(16)));

/* table[index[i]] for each i; an index is below 16. */
INLINE bytes16 bytes_at(bytes16 table, bytes16 index)
{
#ifdef __aarch64__
    return (bytes16)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)index);
#else
    return (bytes16)_mm_shuffle_epi8((__m128i)table, (__m128i)index);
#endif
}

/* Word i of four. */
INLINE uint64_t lookup_word(uint64_t four, int i)
{
#if defined(__BMI2__) && defined(__OPTIMIZE__) /* shifts would copy it first, and this loop is as fast as
                                                     instructions are issued; immediates need the optimiser */
    __asm__("rorx %2, %1, %0\n\tmovzwl %w0, %k0" : "=r"(four) : "r"(four), "i"(16 * i));
    return four;
#else
    return (uint16_t)(four >> 16 * i);
#endif
}

/* s + the entries at LOOKUP_RUN offsets. */
INLINE lanes16 lookup_row(const char *table, const uint16_t *offset, lanes16 s)
{
#pragma GCC unroll 4
    for (int i = 0; i < LOOKUP_RUN; i += 4) {
        uint64_t four;
        memcpy(&four, offset + i, 8);
#ifdef __aarch64__ /* whole addresses, for ldp; in pairs, as processors that issue in order wait for every sum */
        const char *at[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            at[j] = table + (uint16_t)(four >> 16 * j);
            __asm__("" : "+r"(at[j]));
        }
        s += (*(const lanes16 *)at[0] + *(const lanes16 *)at[1]) + (*(const lanes16 *)at[2] + *(const lanes16 *)at[3]);
#else
        __asm__("" : "+r"(four)); /* else words of several rows are taken out of vectors, through memory */
        s += *(const lanes16 *)(table + (uint16_t)four);
        s += *(const lanes16 *)(table + lookup_word(four, 1));
        s += *(const lanes16 *)(table + lookup_word(four, 2));
        s += *(const lanes16 *)(table + (four >> 48));
#endif
    }
    return s;
}

#ifdef __aarch64__ /* registers have eight lanes */
typedef int16_t lanes_part __attribute__((vector_size(16)));
#else
typedef lanes16 lanes_part;
#endif
enum { LOOKUP_PARTS = sizeof(lanes16) / sizeof(lanes_part) };

/* Working memory; what depends on the number of rows lies after it. */
struct lookup {
    lanes16 table[LOOKUP_RUN][LOOKUP_ENTRIES];
    lanes16 x[TERNARY_BLOCK];                         /* one block of LOOKUP_TOKENS tokens */
    int32_t x_sum[LOOKUP_BATCH], x_abs[LOOKUP_BATCH]; /* of the blocks that are in sum     */
    int64_t n_row;
    struct multiplied *multiplied; /* the rows that are multiplied meanwhile */
    lanes16 *sum;          /* [LOOKUP_BATCH / LOOKUP_TOKENS][n_row], weights times x */
    uint16_t *offset;      /* [LOOKUP_RUNS][n_row][LOOKUP_RUN], bytes from table */
};

_Static_assert(sizeof(struct lookup) <= MATMUL_WORK(0), "MATMUL_WORK is too small");
_Static_assert(MATMUL_WORK(1) - MATMUL_WORK(0) >= 2 * (LOOKUP_BATCH + TERNARY_BLOCK_BYTES), "MATMUL_WORK is too small");

INLINE bytes16 zip_low(bytes16 a, bytes16 b)
{
    return PICK(bytes16, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

INLINE bytes16 zip_high(bytes16 a, bytes16 b)
{
    return PICK(bytes16, a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/* Codes of one block of each row -> offsets.  Returns 0 if there is a code 3, which has no entry. */
OUT_OF_LINE int lookup_offsets(struct lookup *w, const uint8_t *codes, int64_t row_bytes)
{
    const int64_t n_row = w->n_row;
    uint16_t *offset = w->offset;
    bytes16 pair[2], any = {0}; /* two codes in base 3, and nine times that; a sum with a code 3 in it has bit 7 */
    words8 start[TERNARY_BLOCK_BYTES / 8];
    for (int i = 0; i < 16; i++) {
        int two = 3 * (i >> 2) + (i & 3), three = i >> 2 == 3 || (i & 3) == 3;
        pair[0][i] = (uint8_t)(three ? 176 : two);
        pair[1][i] = (uint8_t)(three ? 240 : 9 * two);
    }
    for (int i = 0; i < TERNARY_BLOCK_BYTES; i++)
        start[i / 8][i % 8] = (uint16_t)(i % LOOKUP_RUN * (int)sizeof w->table[0]);
    for (int64_t r = 0; r < n_row; r++, codes += row_bytes)
        for (int i = 0; i < TERNARY_BLOCK_BYTES; i += 16) {
            bytes16 c, zero = {0};
            memcpy(&c, codes + i, 16);
            bytes16 entry = bytes_at(pair[0], c & 0x0f) + bytes_at(pair[1], c >> 4);
            any |= entry;
            words8 low = (words8)zip_low(entry, zero) * sizeof(lanes16) + start[i / 8];
            words8 high = (words8)zip_high(entry, zero) * sizeof(lanes16) + start[i / 8 + 1];
            memcpy(offset + (i / LOOKUP_RUN * n_row + r) * LOOKUP_RUN, &low, 16);
            memcpy(offset + ((i + 8) / LOOKUP_RUN * n_row + r) * LOOKUP_RUN + 8 % LOOKUP_RUN, &high, 16);
        }
    uint64_t bits[2];
    memcpy(bits, &any, 16);
    return ((bits[0] | bits[1]) & 0x8080808080808080) == 0;
}

/* One block of LOOKUP_TOKENS tokens -> lanes, their sums and the sums of their magnitudes. */
OUT_OF_LINE void lookup_lanes(const int8_t *x, int64_t x_stride, lanes16 *out, lanes16 *sum, lanes16 *sum_abs)
{
    lanes16 all = {0}, magnitude = {0};
    for (int i = 0; i < TERNARY_BLOCK; i += 16) {
        bytes16 a[LOOKUP_TOKENS], b[LOOKUP_TOKENS];
        for (int t = 0; t < LOOKUP_TOKENS; t++)
            memcpy(&a[t], x + t * x_stride + i, 16);
        for (int round = 1; round < LOOKUP_TOKENS; round *= 2) { /* each turns the index (token, input) by one bit */
            for (int t = 0; t < LOOKUP_TOKENS / 2; t++) {
                b[2 * t] = zip_low(a[t], a[t + LOOKUP_TOKENS / 2]);
                b[2 * t + 1] = zip_high(a[t], a[t + LOOKUP_TOKENS / 2]);
            }
            memcpy(a, b, sizeof a);
        }
        const int8_t *turned = (const int8_t *)a; /* [16 inputs][LOOKUP_TOKENS] */
        for (int j = 0; j < 16; j++) {
            int8_t narrow __attribute__((vector_size(LOOKUP_TOKENS)));
            memcpy(&narrow, turned + j * LOOKUP_TOKENS, LOOKUP_TOKENS);
            lanes16 v = __builtin_convertvector(narrow, lanes16);
            out[i + j] = v;
            all += v;
            magnitude += (v ^ v >> 15) - (v >> 15);
        }
    }
    *sum = all;
    *sum_abs = magnitude;
}

/* x[0], x[32], x[64], x[96] are the inputs of one byte of codes, bits 7-6 first. */
OUT_OF_LINE void lookup_table(const lanes16 *x, lanes16 *table)
{
    for (int part = 0; part < LOOKUP_PARTS; part++) {
        lanes_part x0 = ((const lanes_part *)x)[part], x1 = ((const lanes_part *)(x + 32))[part];
        lanes_part x2 = ((const lanes_part *)(x + 64))[part], x3 = ((const lanes_part *)(x + 96))[part];
        lanes_part *out = (lanes_part *)table + part;
#pragma GCC unroll 3
        for (int a = -1; a <= 1; a++) {
            lanes_part va = a < 0 ? -x0 : a > 0 ? x0 : x0 - x0;
#pragma GCC unroll 3
            for (int b = -1; b <= 1; b++) {
                lanes_part vb = b < 0 ? va - x1 : b > 0 ? va + x1 : va;
#pragma GCC unroll 3
                for (int c = -1; c <= 1; c++, out += 3 * LOOKUP_PARTS) {
                    lanes_part vc = c < 0 ? vb - x2 : c > 0 ? vb + x2 : vb;
                    out[0] = vc - x3;
                    out[LOOKUP_PARTS] = vc;
                    out[2 * LOOKUP_PARTS] = vc + x3;
                }
            }
        }
    }
}

/* ---- multiplied meanwhile ---------------------------------------------------------------------------------------- */

/* Looking up is loads and additions, and the multipliers are idle.  Where one instruction adds four products to each
 * lane, half of the rows go through it, in such small steps between the rows that are looked up that the processor does
 * both at once.
 *
 * Lanes are rows: the codes of MULTIPLY_ROWS rows are turned four bytes at a time, and the inputs of MULTIPLY_TOKENS
 * tokens are broadcast to all lanes.  A step is four bytes of each row, 16 inputs; a tile is MULTIPLY_BLOCKS blocks,
 * whose sums stay in registers.  A tile can be left after any step and taken up again. */
#ifdef multiply_dot

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

/* The share of a panel's codes that one of its tiles fetches, for the next panel. */
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

_Static_assert(sizeof(struct lookup) + sizeof(struct multiplied) <= MATMUL_WORK(0), "MATMUL_WORK is too small");
enum { LOOKUP_MOST_ROWS = 2 * 1728 };
#else
enum { LOOKUP_MOST_ROWS = 1728 }; /* their sums, 256 bytes a row, leave half of a second-level cache of 1 MiB free */
#endif

/* ---- all rows ---------------------------------------------------------------------------------------------------- */

/* Each row's entries in one run of tables, added to its sum.  Meanwhile one line in every `pace` rows comes into the
 * second-level cache, the first from next: more at once would be dropped. */
OUT_OF_LINE void lookup_rows(const struct lookup *w, const uint16_t *offset, lanes16 *restrict sum,
                             const uint8_t *next, int64_t row_bytes, int64_t pace)
{
    const char *table = (const char *)w->table;
    const int64_t n_row = w->n_row;
    int64_t r = 0;
#ifdef multiply_dot
    r = MULTIPLY_LOOKUPS * multiply_steps(w->multiplied, n_row / MULTIPLY_LOOKUPS, MULTIPLY_LOOKUPS, table, offset, sum,
                                          next, row_bytes, pace);
#endif
    while (r < n_row) {
        int64_t stop = n_row - r < pace ? n_row : r + pace;
        prefetch_l2(next + r * row_bytes);
        for (; r + 2 <= stop; r += 2) {
            sum[r] = lookup_row(table, offset + r * LOOKUP_RUN, sum[r]);
            sum[r + 1] = lookup_row(table, offset + (r + 1) * LOOKUP_RUN, sum[r + 1]);
        }
        if (r < stop)
            sum[r] = lookup_row(table, offset + r * LOOKUP_RUN, sum[r]), r++;
    }
}

INLINE words8 zip_low16(words8 a, words8 b)
{
    return PICK(words8, a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}

INLINE words8 zip_high16(words8 a, words8 b)
{
    return PICK(words8, a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

/* acc[t][r] += sum[r] of token t + x_sum[t], which makes codes 0, 1, 2 of weights -1, 0, 1; sum becomes 0. */
OUT_OF_LINE void lookup_flush(lanes16 *sum, int64_t n_row, int32_t *x_sum, int32_t *acc, int64_t ld_acc)
{
    typedef int16_t shorts8 __attribute__((vector_size(16)));
    typedef int32_t ints8 __attribute__((vector_size(32)));
    int64_t r = 0;
    for (; r + 8 <= n_row; r += 8)
        for (int t = 0; t < LOOKUP_TOKENS; t += 8) {
            words8 a[8], b[8];
            for (int i = 0; i < 8; i++)
                memcpy(&a[i], (const int16_t *)&sum[r + i] + t, 16);
            for (int round = 0; round < 3; round++) {
                for (int i = 0; i < 4; i++) {
                    b[2 * i] = zip_low16(a[i], a[i + 4]);
                    b[2 * i + 1] = zip_high16(a[i], a[i + 4]);
                }
                memcpy(a, b, sizeof a);
            }
            for (int i = 0; i < 8; i++) {
                ints8 wide;
                memcpy(&wide, acc + (t + i) * ld_acc + r, sizeof wide);
                wide += __builtin_convertvector((shorts8)a[i], ints8) + x_sum[t + i];
                memcpy(acc + (t + i) * ld_acc + r, &wide, sizeof wide);
            }
        }
    for (; r < n_row; r++)
        for (int t = 0; t < LOOKUP_TOKENS; t++)
            acc[t * ld_acc + r] += sum[r][t] + x_sum[t];
    memset(sum, 0, (size_t)n_row * sizeof *sum);
    memset(x_sum, 0, LOOKUP_TOKENS * sizeof *x_sum);
}

/* All rows for up to LOOKUP_BATCH tokens, a multiple of LOOKUP_TOKENS.  Returns 0, and acc is undefined, if there is a
 * code 3. */
static int lookup_batch(struct lookup *w, const uint8_t *codes, int64_t n_row, int64_t n_block, const int8_t *x,
                        int64_t n_token, int32_t *acc, int64_t ld_acc)
{
    const int64_t x_stride = n_block * TERNARY_BLOCK, row_bytes = n_block * TERNARY_BLOCK_BYTES;
    const int64_t pace = LOOKUP_RUNS * n_token / LOOKUP_TOKENS; /* passes over the rows in a block */
    memset(w->x_sum, 0, sizeof w->x_sum);
    memset(w->x_abs, 0, sizeof w->x_abs);
    w->n_row = n_row;
#ifdef multiply_dot
    w->n_row -= n_row / 2 / MULTIPLY_ROWS * MULTIPLY_ROWS;
    *w->multiplied = (struct multiplied){.codes = codes + w->n_row * row_bytes, .x = x, .acc = acc + w->n_row,
                                 .n_row = n_row - w->n_row, .n_block = n_block, .n_token = n_token, .ld_acc = ld_acc};
#endif
    memset(w->sum, 0, (size_t)(n_token / LOOKUP_TOKENS * w->n_row) * sizeof *w->sum);
    for (int64_t t = 0; t < n_token; t++)
        memset(acc + t * ld_acc, 0, (size_t)n_row * sizeof *acc);
    for (int64_t b = 0; b < n_block; b++) {
        /* the codes of the next block, a line a row: each pass over the rows fetches its share */
        const uint8_t *next = codes + (b + 1 < n_block ? (b + 1) * TERNARY_BLOCK_BYTES : w->n_row * row_bytes);
        if (!lookup_offsets(w, codes + b * TERNARY_BLOCK_BYTES, row_bytes))
            return 0;
        for (int64_t t = 0; t < n_token; t += LOOKUP_TOKENS) {
            lanes16 *sum = w->sum + t / LOOKUP_TOKENS * w->n_row, block_sum, block_abs;
            lookup_lanes(x + t * x_stride + b * TERNARY_BLOCK, x_stride, w->x, &block_sum, &block_abs);
            int full = 0;
            for (int i = 0; i < LOOKUP_TOKENS; i++)
                full |= w->x_abs[t + i] + block_abs[i] > INT16_MAX;
            if (full) {
                lookup_flush(sum, w->n_row, w->x_sum + t, acc + t * ld_acc, ld_acc);
                memset(w->x_abs + t, 0, LOOKUP_TOKENS * sizeof *w->x_abs);
            }
            for (int i = 0; i < LOOKUP_TOKENS; i++) {
                w->x_sum[t + i] += block_sum[i];
                w->x_abs[t + i] += block_abs[i];
            }
            for (int run = 0; run < LOOKUP_RUNS; run++) {
                for (int i = 0; i < LOOKUP_RUN; i++)
                    lookup_table(w->x + run * LOOKUP_RUN + i, w->table[i]);
                lookup_rows(w, w->offset + run * w->n_row * LOOKUP_RUN, sum, next, row_bytes, pace);
                next += row_bytes;
            }
        }
    }
    for (int64_t t = 0; t < n_token; t += LOOKUP_TOKENS)
        lookup_flush(w->sum + t / LOOKUP_TOKENS * w->n_row, w->n_row, w->x_sum + t, acc + t * ld_acc, ld_acc);
#ifdef multiply_dot
    multiply_steps(w->multiplied, INT64_MAX, 0, NULL, NULL, NULL, NULL, 0, 0);
#endif
    return 1;
}

static void ternary_matmul(const uint8_t *codes, int64_t n_row, int64_t n_block, const int8_t *x, int64_t n_token,
                           int32_t *acc, int64_t ld_acc, void *work)
{
    struct lookup *w = work;
    int64_t t = 0;
    if (n_row > LOOKUP_MOST_ROWS) {
        const int64_t half = n_row / 2 / 16 * 16;
        ternary_matmul(codes, half, n_block, x, n_token, acc, ld_acc, work);
        ternary_matmul(codes + half * n_block * TERNARY_BLOCK_BYTES, n_row - half, n_block, x, n_token, acc + half,
                       ld_acc, work);
        return;
    }
    if (n_row >= LOOKUP_LEAST_ROWS && n_token >= LOOKUP_LEAST_TOKENS) {
#ifdef multiply_dot
        w->multiplied = (struct multiplied *)((char *)work + MATMUL_WORK(0)) - 1;
#endif
        w->sum = (lanes16 *)((char *)work + MATMUL_WORK(0));
        w->offset = (uint16_t *)(w->sum + LOOKUP_BATCH / LOOKUP_TOKENS * n_row);
        for (int64_t n; n_token - t >= LOOKUP_TOKENS; t += n) {
            n = n_token - t < LOOKUP_BATCH ? (n_token - t) / LOOKUP_TOKENS * LOOKUP_TOKENS : LOOKUP_BATCH;
            if (!lookup_batch(w, codes, n_row, n_block, x + t * n_block * TERNARY_BLOCK, n, acc + t * ld_acc, ld_acc))
                break;
        }
    }
    if (t < n_token)
        tiled_matmul(codes, n_row, n_block, x + t * n_block * TERNARY_BLOCK, n_token - t, acc + t * ld_acc, ld_acc,
                     work);
}

#endif
