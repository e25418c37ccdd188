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

#endif
