/* panels.h: a ternary matrix with scales per group laid out for speed: panels of 64 rows (panel_matmul of kernels.h).
 *
 * Stored rows must be turned before a register can hold many rows side by side, so that no sum crosses lanes; here that
 * is done once, for a copy in memory or for a file (type PQ2_0_R64).  The four codes of a byte belong to four rows, so
 * one load of activations serves 64 rows.  */
#ifndef BITNET_EDGE_PANELS_H
#define BITNET_EDGE_PANELS_H

#include "template.h"

typedef uint16_t panel_words __attribute__((vector_size(16)));
typedef uint32_t panel_lanes __attribute__((vector_size(16)));

/* Fields f of bytes of a and fields f + n of bytes of b change places, for each f that the mask has; shift is 2 n. */
INLINE void panel_swap(panel_words *a, panel_words *b, int shift, uint16_t mask)
{
    panel_words t = ((*a >> shift) ^ *b) & mask;
    *b ^= t;
    *a ^= t << shift;
}

/* One group of 64 rows that begin `stride` bytes apart -> PANEL_BYTES(GROUP).  Rows from n_row on are taken as zeros.
 */
INLINE void pack_panel(const uint8_t *rows, int64_t stride, int group_bytes, int64_t n_row, uint8_t *panel)
{
    static const uint8_t none[GROUP_PAIR];
    const uint8_t *row[PANEL_ROWS];
    for (int r = 0; r < PANEL_ROWS; r++) {
        row[r] = r < n_row ? rows + r * stride : none;
        memcpy(panel + 2 * r, row[r], 2);
    }
    panel += 2 * PANEL_ROWS;
    for (int lane = 0; lane < 16; lane += 4)
        for (int half = 0; half < 2; half++) {
            panel_words a[4][4]; /* [row / 16, then field][lane] */
            for (int i = 0; i < 4; i++) {
                for (int f = 0; f < 4; f++)
                    memcpy(&a[f][i], row[16 * f + lane + i] + (half ? group_bytes - 16 : 2), 16);
                panel_swap(&a[0][i], &a[1][i], 2, 0x3333), panel_swap(&a[2][i], &a[3][i], 2, 0x3333);
                panel_swap(&a[0][i], &a[2][i], 4, 0x0f0f), panel_swap(&a[1][i], &a[3][i], 4, 0x0f0f);
            }
            for (int f = 0; f < 4; f++) {
                const panel_lanes v[4] = {(panel_lanes)a[f][0], (panel_lanes)a[f][1], (panel_lanes)a[f][2],
                                          (panel_lanes)a[f][3]};
                panel_lanes b0 = PICK(panel_lanes, v[0], v[1], 0, 4, 1, 5);
                panel_lanes b1 = PICK(panel_lanes, v[0], v[1], 2, 6, 3, 7);
                panel_lanes b2 = PICK(panel_lanes, v[2], v[3], 0, 4, 1, 5);
                panel_lanes b3 = PICK(panel_lanes, v[2], v[3], 2, 6, 3, 7);
                const panel_lanes step[4] = {
                    PICK(panel_lanes, b0, b2, 0, 1, 4, 5), PICK(panel_lanes, b0, b2, 2, 3, 6, 7),
                    PICK(panel_lanes, b1, b3, 0, 1, 4, 5), PICK(panel_lanes, b1, b3, 2, 3, 6, 7)};
                for (int j = 0; j < 4; j++)
                    memcpy(panel + 64 * (8 * f + 4 * half + j) + 4 * lane, &step[j], 16);
            }
        }
}

/* ---- five weights in a byte (five_matmul of kernels.h) -----------------------------------------------------------
 *
 * Targets define, for vectors of 4 * LANE_WIDTH bytes,
 *   FIVE_NINTHS(c)          c / 9 of every byte
 *   FIVE_LOOK(table, i)     what a table of 16 bytes, repeated in every 16, has for each byte of i < 16
 *   FIVE_LOOK2(t0, t1, i)   the same of two tables, for i < 32
 * and plain C does without. */

#ifdef FIVE_LOOK
enum { FIVE_WIDTH = 4 * LANE_WIDTH };
#else
enum { FIVE_WIDTH = 16 };
#endif
typedef uint16_t five_words __attribute__((vector_size(FIVE_WIDTH)));

#ifndef FIVE_LOOK
INLINE five_words five_look(five_words t0, five_words t1, five_words i)
{
    uint8_t table[2 * FIVE_WIDTH], at[FIVE_WIDTH];
    memcpy(table, &t0, sizeof t0), memcpy(table + sizeof t0, &t1, sizeof t1), memcpy(at, &i, sizeof i);
    for (int j = 0; j < FIVE_WIDTH; j++)
        at[j] = table[at[j]];
    memcpy(&i, at, sizeof i);
    return i;
}
#define FIVE_NINTHS(c) (((c) & 0xff) * 57 >> 9 | (((c) >> 8) * 57 >> 1 & 0xff00))
#define FIVE_LOOK(table, i) five_look(table, table, i)
#define FIVE_LOOK2(t0, t1, i) five_look(t0, t1, i)
#endif

INLINE five_words five_table(const uint8_t *table)
{
    five_words v;
    for (int i = 0; i < FIVE_WIDTH; i += 16)
        memcpy((char *)&v + i, table, 16);
    return v;
}

/* f(i) for 16 numbers i. */
#define FIVE_ENTRIES(f, i)                                                                                             \
    f(i), f(i + 1), f(i + 2), f(i + 3), f(i + 4), f(i + 5), f(i + 6), f(i + 7), f(i + 8), f(i + 9), f(i + 10),         \
        f(i + 11), f(i + 12), f(i + 13), f(i + 14), f(i + 15)

/* t0 + 3 t1 -> t0 + 4 t1, and t2 + 3 t3 + 9 t4 -> 16 t2 + 64 t3 + t4 */
#define FIVE_LOW(i) (i) % 3 + (i) / 3 % 3 * 4
#define FIVE_HIGH(i) 16 * (FIVE_LOW(i)) + (i) / 9
static const uint8_t five_low[16] = {FIVE_ENTRIES(FIVE_LOW, 0)};
static const uint8_t five_high[2][16] = {{FIVE_ENTRIES(FIVE_HIGH, 0)}, {FIVE_ENTRIES(FIVE_HIGH, 16)}};

/* n vectors -> n steps, and of four the fifth step. */
INLINE void unpack_vectors(const uint8_t *five, int n, uint8_t *codes)
{
    const five_words low = five_table(five_low), high = five_table(five_high[0]), higher = five_table(five_high[1]);
    for (int i = 0; i < 64; i += FIVE_WIDTH) {
        five_words fifth = {0};
#pragma GCC unroll 4
        for (int v = 0; v < n; v++) {
            five_words c, to;
            memcpy(&c, five + 64 * v + i, sizeof c);
            five_words nine = (five_words)FIVE_NINTHS(c), rest = c - nine - (nine << 3);
            nine = (five_words)FIVE_LOOK2(high, higher, nine);
            to = (nine & 0xf0f0) + (five_words)FIVE_LOOK(low, rest);
            memcpy(codes + 64 * v + i, &to, sizeof to);
            fifth |= (nine & 0x0303) << 2 * v;
        }
        if (n == 4)
            memcpy(codes + 256 + i, &fifth, sizeof fifth);
    }
}

/* FIVE_BYTES -> PANEL_BYTES(GROUP) */
INLINE void unpack_five(const uint8_t *five, uint8_t *panel)
{
    memcpy(panel, five, 2 * PANEL_ROWS);
    five += 2 * PANEL_ROWS, panel += 2 * PANEL_ROWS;
    for (int block = 0; block < 6; block++, five += 4 * 64, panel += 5 * 64)
        unpack_vectors(five, 4, panel);
    unpack_vectors(five, 2, panel);
}

#endif
