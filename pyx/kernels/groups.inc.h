/* groups.inc.h: a ternary matrix with a scale for each group of 128 weights (group_matmul of kernels.h), written once
 * for the vector targets.
 *
 * Few tokens: GROUP_ROWS rows at a time, straight from the stored groups.  More tokens: some groups of 64 rows become
 * panels (panels.h), which stay in the first-level cache.  A matrix that consists of panels needs none of this.
 *
 * Elements come in the order of quantize_groups: step s of a group is bytes 4s .. 4s+3 of its activations.
 *
 * The includer has included lanes.inc.h and defines
 *   GROUP_MANY          from so many tokens on panels are faster
 *   GROUP_SOME          most tokens of group_vector (1 or 4)
 *   group_vector(rows, stride, n_group, group_bytes, ahead, n_token, q, d, sum, y)
 *                       y [n_token][GROUP_ROWS] of rows that begin `stride` bytes apart; meanwhile it calls
 *                       group_fetch(ahead, g, group_bytes) for each group; inlined with constant n_token in
 *                       {GROUP_SOME, .. 2, 1}
 *   PANEL_TOKENS        tokens that share a panel's codes in registers (2, 4 or 8)
 *   PANEL_OWN           1: the results of one token stay in registers together with its sums; else 0
 *   panel_sums(codes, ahead, n_step, n_token, q, ld, sum)
 *                       sum [n_token][PANEL_VECTORS] of one group of a panel, the sums of codes times activations,
 *                       which lie ld apart; meanwhile it fetches as many lines from ahead on; inlined with constant
 *                       n_step (8, 16 or 32: groups of 32, 64 or 128) and n_token in {PANEL_TOKENS, .. 2, 1} */
#ifndef BITNET_EDGE_GROUPS_H
#define BITNET_EDGE_GROUPS_H

#include "panels.h"
#include "template.h"

enum { GROUP_CHUNK = 8, GROUP_BATCH = 128 };

struct group_work {
    uint8_t panel[GROUP_CHUNK][PANEL_BYTES(GROUP)];
    float y[GROUP_BATCH][PANEL_ROWS];
};

_Static_assert(sizeof(struct group_work) <= GROUP_WORK, "GROUP_WORK is too small");

INLINE void group_store(const float *y, int64_t n, int add, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = add ? out[i] + y[i] : y[i];
}

/* How rows from r on are taken: `n` of them, which stand after `skip` others; the last ones again with those before
 * them, or where there are none, each for itself, many times. */
struct group_rows {
    const uint8_t *first;
    int64_t n, skip, stride;
};

INLINE struct group_rows group_rows(const uint8_t *rows, int64_t row_bytes, int64_t n_row, int64_t r)
{
    if (n_row < GROUP_ROWS)
        return (struct group_rows){rows + r * row_bytes, 1, 0, 0};
    int64_t n = n_row - r < GROUP_ROWS ? n_row - r : GROUP_ROWS, skip = GROUP_ROWS - n;
    return (struct group_rows){rows + (r - skip) * row_bytes, n, skip, row_bytes};
}

#define GROUP_VECTOR(n)                                                                                                \
    OUT_OF_LINE void group_vector_##n(const uint8_t *rows, int64_t stride, int64_t n_group, int group_bytes,           \
                                      const uint8_t *ahead, const int8_t *q, const float *d, const int32_t *sum,       \
                                      float (*y)[GROUP_ROWS])                                                          \
    {                                                                                                                  \
        if (group_bytes == GROUP_PAIR)                                                                                 \
            group_vector(rows, stride, n_group, GROUP_PAIR, ahead, n, q, d, sum, y);                                   \
        else                                                                                                           \
            group_vector(rows, stride, n_group, GROUP_WHOLE, ahead, n, q, d, sum, y);                                  \
    }

GROUP_VECTOR(1)
#if GROUP_SOME > 1
GROUP_VECTOR(2)
GROUP_VECTOR(4)
#endif

/* Fewer than GROUP_MANY tokens, some at a time while the rows are in the first-level cache. */
static void group_few(const uint8_t *rows, int group_bytes, int64_t n_row, int64_t n_group, const int8_t *q,
                      const float *d, const int32_t *sum, int64_t n_token, int add, float *out, int64_t ld_out)
{
    const int64_t row_bytes = n_group * group_bytes;
    for (int64_t r = 0; r < n_row;) {
        const struct group_rows row = group_rows(rows, row_bytes, n_row, r);
        float y[GROUP_SOME][GROUP_ROWS];
        for (int64_t t = 0, some; t < n_token; t += some) {
            const int64_t left = n_token - t, at = t * n_group;
            const uint8_t *ahead = t == 0 ? row.first + GROUP_ROWS * row.stride + kernels_chosen.ahead : NULL;
            some = GROUP_SOME == 1 || left == 1 ? 1 : left < 4 ? 2 : 4;
#if GROUP_SOME > 1
            if (some == 4)
                group_vector_4(row.first, row.stride, n_group, group_bytes, ahead, q + at * GROUP, d + at, sum + at, y);
            if (some == 2)
                group_vector_2(row.first, row.stride, n_group, group_bytes, ahead, q + at * GROUP, d + at, sum + at, y);
#endif
            if (some == 1)
                group_vector_1(row.first, row.stride, n_group, group_bytes, ahead, q + at * GROUP, d + at, sum + at, y);
            for (int64_t i = 0; i < some; i++)
                group_store(y[i] + row.skip, row.n, add, out + (t + i) * ld_out + r);
        }
        r += row.n;
    }
}

/* y[t] += n_group groups of each plane of a panel times tokens t < n_token, whose groups are ld apart; meanwhile as
 * many bytes from ahead on are fetched. */
INLINE void panel_add(const uint8_t *panel, const uint8_t *ahead, int64_t n_group, int group, int n_plane, int n_token,
                      const int8_t *q, const float *d, const int32_t *sum, int64_t ld, float (*y)[PANEL_ROWS])
{
    const int own = n_token <= PANEL_OWN;
    vf total[PANEL_VECTORS];
    if (own) {
#pragma GCC unroll 4
        for (int i = 0; i < PANEL_VECTORS; i++)
            total[i] = load_float(y[0] + i * LANE_WIDTH);
    }
    for (int64_t g = 0; g < n_group; g++, q += group)
        for (int p = 0; p < n_plane; p++, panel += PANEL_BYTES(group), ahead += PANEL_BYTES(group)) {
            vi s[PANEL_TOKENS][PANEL_VECTORS];
            if (!own)
                __asm__ volatile("" ::: "memory"); /* y stays in memory: the registers are for the sums */
            panel_fetch(ahead, 2 * PANEL_ROWS, n_token);
            panel_sums(panel + 2 * PANEL_ROWS, ahead + 2 * PANEL_ROWS, group / 4, n_token, q, ld * group, s);
#pragma GCC unroll 16 /* all: numbers of registers must be constants */
            for (int i = 0; i < PANEL_VECTORS; i++) {
                vf scale = load_half((const uint16_t *)(const void *)panel + i * LANE_WIDTH);
                for (int t = 0; t < n_token; t++) {
                    vf dots = __builtin_convertvector(s[t][i] - sum[t * ld + g], vf);
                    vf part = dots * (scale * d[t * ld + g]);
                    float *at = y[t] + i * LANE_WIDTH;
                    if (own)
                        total[i] += part;
                    else
                        store_float(at, load_float(at) + part);
                }
            }
        }
    if (own) {
#pragma GCC unroll 4
        for (int i = 0; i < PANEL_VECTORS; i++)
            store_float(y[0] + i * LANE_WIDTH, total[i]);
    }
}

typedef void panel_adder(const uint8_t *panel, const uint8_t *ahead, int64_t n_group, int n_plane, const int8_t *q,
                         const float *d, const int32_t *sum, int64_t ld, float (*y)[PANEL_ROWS]);

#define PANEL_ADD(group, n)                                                                                            \
    OUT_OF_LINE void panel_add_##group##_##n(const uint8_t *panel, const uint8_t *ahead, int64_t n_group, int n_plane, \
                                             const int8_t *q, const float *d, const int32_t *sum, int64_t ld,          \
                                             float (*y)[PANEL_ROWS])                                                   \
    {                                                                                                                  \
        panel_add(panel, ahead, n_group, group, n_plane, n, q, d, sum, ld, y);                                         \
    }
#define PANEL_ADDS(n) PANEL_ADD(32, n) PANEL_ADD(64, n) PANEL_ADD(128, n)

PANEL_ADDS(1)
PANEL_ADDS(2)
#if PANEL_TOKENS >= 4
PANEL_ADDS(4)
#endif
#if PANEL_TOKENS >= 8
PANEL_ADDS(8)
#endif

/* Up to PANEL_TOKENS of n_token tokens; returns how many. */
INLINE int64_t panel_some(const uint8_t *panel, const uint8_t *ahead, int64_t n_group, int group, int n_plane,
                          int64_t n_token, const int8_t *q, const float *d, const int32_t *sum, int64_t ld,
                          float (*y)[PANEL_ROWS])
{
    static panel_adder *const adders[][3] = {
        {panel_add_32_1, panel_add_64_1, panel_add_128_1},
        {panel_add_32_2, panel_add_64_2, panel_add_128_2},
#if PANEL_TOKENS >= 4
        {panel_add_32_4, panel_add_64_4, panel_add_128_4},
#endif
#if PANEL_TOKENS >= 8
        {panel_add_32_8, panel_add_64_8, panel_add_128_8},
#endif
    };
    int some = 0;
    while (2 << some <= PANEL_TOKENS && 2 << some <= n_token)
        some++;
    adders[some][group / 64](panel, ahead, n_group, n_plane, q, d, sum, ld, y);
    return 1 << some;
}

static void panel_matmul(const uint8_t *panels, int64_t row0, int64_t row1, int64_t n_group, int group, int n_plane,
                         const int8_t *q, const float *d, const int32_t *sum, int64_t n_token, int add, float *out,
                         int64_t ld_out)
{
    for (int64_t r = row0, n; r < row1; r += n) {
        const uint8_t *panel = panels + r / PANEL_ROWS * n_group * n_plane * PANEL_BYTES(group);
        const int64_t skip = r % PANEL_ROWS;
        n = row1 - r < PANEL_ROWS - skip ? row1 - r : PANEL_ROWS - skip;
        for (int64_t t = 0, some; t < n_token; t += some) {
            const int64_t at = t * n_group;
            float y[PANEL_TOKENS][PANEL_ROWS] __attribute__((aligned(64))) = {{0}};
            some = panel_some(panel, panel + panel_ahead(), n_group, group, n_plane, n_token - t, q + at * group,
                              d + at, sum + at, n_group, y);
            for (int64_t i = 0; i < some; i++)
                group_store(y[i] + skip, n, add, out + (t + i) * ld_out + r - row0);
        }
    }
}

OUT_OF_LINE void group_panel(const uint8_t *rows, int64_t stride, int group_bytes, int64_t n_row, uint8_t *panel)
{
    if (group_bytes == GROUP_PAIR)
        pack_panel(rows, stride, GROUP_PAIR, n_row, panel);
    else
        pack_panel(rows, stride, GROUP_WHOLE, n_row, panel);
}

/* Up to GROUP_BATCH tokens: rows become panels on the way. */
static void group_batch(const uint8_t *rows, int group_bytes, int64_t n_row, int64_t n_group, const int8_t *q,
                        const float *d, const int32_t *sum, int64_t n_token, int add, float *out, int64_t ld_out,
                        struct group_work *w)
{
    const int64_t row_bytes = n_group * group_bytes;
    for (int64_t r = 0, n; r < n_row; r += n, rows += n * row_bytes) {
        n = n_row - r < PANEL_ROWS ? n_row - r : PANEL_ROWS;
        memset(w->y, 0, (size_t)n_token * sizeof w->y[0]);
        for (int64_t g = 0, n_chunk; g < n_group; g += n_chunk) {
            n_chunk = n_group - g < GROUP_CHUNK ? n_group - g : GROUP_CHUNK;
            for (int64_t i = 0; i < n_chunk; i++)
                group_panel(rows + (g + i) * group_bytes, row_bytes, group_bytes, n, w->panel[i]);
            /* the same groups of the next rows, some with each few tokens: all at once would be dropped */
            const uint8_t *next = rows + PANEL_ROWS * row_bytes + g * group_bytes;
            const int64_t n_line = (n_chunk * group_bytes + 63) / 64;
            for (int64_t t = 0, some, line = 0; t < n_token; t += some) {
                const int64_t at = t * n_group + g;
                const int8_t *x = q + at * GROUP;
                some = panel_some(w->panel[0], w->panel[0], n_chunk, GROUP, 1, n_token - t, x, d + at, sum + at,
                                  n_group, w->y + t);
                for (; line < PANEL_ROWS * n_line * (t + some) / n_token; line++)
                    prefetch_l2(next + line / n_line * row_bytes + line % n_line * 64);
            }
        }
        for (int64_t t = 0; t < n_token; t++)
            group_store(w->y[t], n, add, out + t * ld_out + r);
    }
}

static void group_matmul(const uint8_t *rows, int group_bytes, int64_t n_row, int64_t n_group, const int8_t *q,
                         const float *d, const int32_t *sum, int64_t n_token, int add, float *out, int64_t ld_out,
                         void *work)
{
    if (n_token < GROUP_MANY)
        group_few(rows, group_bytes, n_row, n_group, q, d, sum, n_token, add, out, ld_out);
    else
        for (int64_t t = 0, n; t < n_token; t += n) {
            n = n_token - t < GROUP_BATCH ? n_token - t : GROUP_BATCH;
            group_batch(rows, group_bytes, n_row, n_group, q + t * n_group * GROUP, d + t * n_group, sum + t * n_group,
                        n, add, out + t * ld_out, ld_out, work);
        }
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

INLINE void quantize_each(const float *x, int64_t n, int group, int8_t *q, float *d, int32_t *sum)
{
    for (int64_t g = 0; g * group < n; g++, x += group, q += group) {
        int64_t some = n - g * group < group ? n - g * group : group;
        float m = abs_max(x, some), s = 127.0f / (m > 1e-30f ? m : 1e-30f);
        int32_t code[GROUP] = {0}, total = 0;
        for (int64_t i = 0; i < some; i++)
            total += code[i] = round_clamped(x[i] * s, 127.0f);
        for (int e = 0; e < group; e++)
            q[place_in_group(group, e)] = (int8_t)code[e];
        d[g] = m / 127.0f;
        sum[g] = total;
    }
}

static void quantize_groups(const float *x, int64_t n, int group, int8_t *q, float *d, int32_t *sum)
{
    if (group == 32)
        quantize_each(x, n, 32, q, d, sum);
    else if (group == 64)
        quantize_each(x, n, 64, q, d, sum);
    else
        quantize_each(x, n, GROUP, q, d, sum);
}

#endif
