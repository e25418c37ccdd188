/* groups.inc.h: a ternary matrix with a scale for each group of 128 weights (group_matmul of kernels.h), written once
 * for the vector targets.
 *
 * Few tokens: GROUP_ROWS rows at a time, straight from the stored groups.  More tokens: for each GROUP_ROWS rows
 *
 *   for each GROUP_CHUNK groups of them
 *       codes -> one byte each, rows side by side, four elements of a row together: a tile that stays in the
 *       first-level cache, and scales -> floats
 *       for each few tokens
 *           for each group: integer sums, no lane of which needs any other; as floats, times both scales, to the totals
 *
 * Elements come in the order of quantize_groups: step s of a group is bytes 4s .. 4s+3 of its activations.
 *
 * The includer has included lanes.inc.h and defines
 *   GROUP_ROWS          rows of a tile, 16
 *   GROUP_TOKENS        tokens that share a tile's codes in registers (2, 4 or 8)
 *   GROUP_MANY          from so many tokens on tiles are faster
 *   GROUP_SOME          most tokens of group_vector (1, 2 or 4)
 *   group_vector(rows, stride, n_group, group_bytes, ahead, n_token, q, d, sum, y)
 *                       y [n_token][GROUP_ROWS] of rows that begin `stride` bytes apart; meanwhile it calls
 *                       group_fetch(ahead, g, group_bytes) for each group; inlined with constant n_token in
 *                       {GROUP_SOME, .. 2, 1}
 *   group_unpack(rows, stride, second, tile)
 *                       one group of all rows to tile [GROUP_STEPS][GROUP_ROWS][4]; the codes of a row are the 16 bytes
 *                       2 behind its begin and the 16 `second` behind it
 *   group_tile(tile, scale, n_group, n_token, q, d, sum, ld, y)
 *                       y[t] += n_group groups of the tile times tokens t < n_token, whose groups are ld apart; inlined
 *                       with constant n_token in {GROUP_TOKENS, .. 2, 1} */
#ifndef BITNET_EDGE_GROUPS_H
#define BITNET_EDGE_GROUPS_H

#include "template.h"

enum { GROUP_STEPS = GROUP / 4, GROUP_CHUNK = 8, GROUP_BATCH = 128 };

/* Beyond the next GROUP_ROWS rows (benchmarks/SPEED.md). */
enum { GROUP_AHEAD = 16 << 10 };

struct group_work {
    int8_t tile[GROUP_CHUNK][GROUP_STEPS][GROUP_ROWS][4];
    float scale[GROUP_CHUNK][GROUP_ROWS];
    float y[GROUP_BATCH][GROUP_ROWS];
};

_Static_assert(sizeof(struct group_work) <= GROUP_WORK, "GROUP_WORK is too small");

INLINE void group_store(const float *y, int64_t n, int add, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = add ? out[i] + y[i] : y[i];
}

/* How rows from r on are taken: `n` of them, which stand behind `skip` others; the last ones again with those before
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
#if GROUP_SOME >= 2
GROUP_VECTOR(2)
#endif
#if GROUP_SOME >= 4
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
            const uint8_t *ahead = t == 0 ? row.first + GROUP_ROWS * row.stride + GROUP_AHEAD : NULL;
            some = left >= 4 && GROUP_SOME >= 4 ? 4 : left >= 2 && GROUP_SOME >= 2 ? 2 : 1;
#if GROUP_SOME >= 4
            if (some == 4)
                group_vector_4(row.first, row.stride, n_group, group_bytes, ahead, q + at * GROUP, d + at, sum + at, y);
#endif
#if GROUP_SOME >= 2
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

/* n_group groups of GROUP_ROWS rows. */
INLINE void group_chunk(struct group_work *w, const uint8_t *rows, int64_t stride, int group_bytes, int64_t n_group)
{
    for (int64_t g = 0; g < n_group; g++, rows += group_bytes) {
        uint16_t half[GROUP_ROWS];
        for (int i = 0; i < GROUP_ROWS; i++)
            memcpy(half + i, rows + i * stride, 2);
        for (int i = 0; i < GROUP_ROWS; i += LANE_WIDTH)
            store_float(w->scale[g] + i, load_half(half + i));
        group_unpack(rows, stride, group_bytes - 16, w->tile[g]);
    }
}

OUT_OF_LINE void group_chunk_of(struct group_work *w, const uint8_t *rows, int64_t stride, int group_bytes,
                                int64_t n_group)
{
    if (group_bytes == GROUP_PAIR)
        group_chunk(w, rows, stride, GROUP_PAIR, n_group);
    else
        group_chunk(w, rows, stride, GROUP_WHOLE, n_group);
}

#define GROUP_TILE(n)                                                                                                  \
    OUT_OF_LINE void group_tile_##n(struct group_work *w, int64_t n_group, const int8_t *q, const float *d,            \
                                    const int32_t *sum, int64_t ld, float (*y)[GROUP_ROWS])                            \
    {                                                                                                                  \
        group_tile(w->tile, w->scale, n_group, n, q, d, sum, ld, y);                                                   \
    }

GROUP_TILE(1)
GROUP_TILE(2)
#if GROUP_TOKENS >= 4
GROUP_TILE(4)
#endif
#if GROUP_TOKENS >= 8
GROUP_TILE(8)
#endif

/* Up to GROUP_BATCH tokens. */
static void group_batch(const uint8_t *rows, int group_bytes, int64_t n_row, int64_t n_group, const int8_t *q,
                        const float *d, const int32_t *sum, int64_t n_token, int add, float *out, int64_t ld_out,
                        struct group_work *w)
{
    const int64_t row_bytes = n_group * group_bytes;
    for (int64_t r = 0; r < n_row;) {
        const struct group_rows row = group_rows(rows, row_bytes, n_row, r);
        memset(w->y, 0, (size_t)n_token * sizeof w->y[0]);
        for (int64_t g = 0, n_chunk; g < n_group; g += n_chunk) {
            n_chunk = n_group - g < GROUP_CHUNK ? n_group - g : GROUP_CHUNK;
            group_chunk_of(w, row.first + g * group_bytes, row.stride, group_bytes, n_chunk);
            /* the same groups of the next rows, some with each few tokens: all at once would be dropped */
            const uint8_t *next = row.first + GROUP_ROWS * row_bytes + g * group_bytes;
            const int64_t n_line = (n_chunk * group_bytes + 63) / 64;
            for (int64_t t = 0, some, line = 0; t < n_token; t += some) {
                const int64_t left = n_token - t, at = t * n_group + g;
                const int8_t *x = q + at * GROUP;
                some = left >= GROUP_TOKENS ? GROUP_TOKENS : left >= 4 && GROUP_TOKENS > 4 ? 4 : left >= 2 ? 2 : 1;
                for (; line < GROUP_ROWS * n_line * (t + some) / n_token; line++)
                    prefetch_l2(next + line / n_line * row_bytes + line % n_line * 64);
#if GROUP_TOKENS >= 8
                if (some == 8)
                    group_tile_8(w, n_chunk, x, d + at, sum + at, n_group, w->y + t);
#endif
#if GROUP_TOKENS >= 4
                if (some == 4)
                    group_tile_4(w, n_chunk, x, d + at, sum + at, n_group, w->y + t);
#endif
                if (some == 2)
                    group_tile_2(w, n_chunk, x, d + at, sum + at, n_group, w->y + t);
                else if (some == 1)
                    group_tile_1(w, n_chunk, x, d + at, sum + at, n_group, w->y + t);
            }
        }
        for (int64_t t = 0; t < n_token; t++)
            group_store(w->y[t] + row.skip, row.n, add, out + t * ld_out + r);
        r += row.n;
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

static void quantize_groups(const float *x, int64_t n, int8_t *q, float *d, int32_t *sum)
{
    for (int64_t g = 0; g * GROUP < n; g++, x += GROUP, q += GROUP) {
        int64_t some = n - g * GROUP < GROUP ? n - g * GROUP : GROUP;
        float m = abs_max(x, some), s = 127.0f / (m > 1e-30f ? m : 1e-30f);
        int32_t code[GROUP] = {0}, total = 0;
        for (int64_t i = 0; i < some; i++)
            total += code[i] = round_clamped(x[i] * s, 127.0f);
        for (int f = 0; f < 4; f++)
            for (int p = 0; p < GROUP / 4; p++)
                q[GROUP / 4 * f + p] = (int8_t)code[4 * p + f];
        d[g] = m / 127.0f;
        sum[g] = total;
    }
}

#define GROUPS_KERNELS .quantize_groups = quantize_groups, .group_matmul = group_matmul

#endif
