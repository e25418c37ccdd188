/* template.h: what every template of the kernels needs, in one place.
 *
 * A template is a file named .inc.h.  A target includes it after it has defined the vectors, constants and small
 * functions that the template is written in; the comment at the top of each template lists them.  The only orders that
 * count are those in brackets:
 *
 *   x86.h or arm.h       INLINE, OUT_OF_LINE, is_stream: used by all templates (first)
 *   lanes.inc.h          float vectors
 *   delta.inc.h          rotated bases, gated delta rule   (after lanes.inc.h)
 *   tiles.inc.h          some tokens
 *   lookup.inc.h, packs.inc.h   many tokens                (after tiles.inc.h, or a tiled_matmul of the target's own)
 *   groups.inc.h         scales per group                  (after lanes.inc.h)
 *   head.inc.h           output heads of 8 bits            (after lanes.inc.h)
 *   bit_dots.inc.h       bit planes
 *   byte_dots.inc.h      products of bytes                 (after bit_dots.inc.h)
 *   attention_int4.inc.h attention: includes attention.inc.h   (after lanes.inc.h)
 *
 * arm.h includes lanes, delta and groups for its targets; avx2.h all the others for its two.
 *
 * Everything in a template is static: see numbers.h. */
#ifndef BITNET_EDGE_TEMPLATE_H
#define BITNET_EDGE_TEMPLATE_H

#include "kernels.h"
#include "numbers.h"

#include <string.h>

/* A helper that gets constant arguments, or whose vectors must stay in registers. */
#define INLINE static inline __attribute__((always_inline))

/* Elements of the vectors a and b, which have the type `vector`, by constant numbers. */
#ifdef __clang__
#define PICK(vector, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else /* GCC has clang's builtin from version 12 on */
#define PICK(vector, a, b, ...) __builtin_shuffle(a, b, (vector){__VA_ARGS__})
#endif

/* A loop that profiles find by its name. */
#define OUT_OF_LINE static __attribute__((noinline))

/* ---- weights: one stream ----------------------------------------------------------------------------------------- */

/* Into the second-level cache: x86-64 prefetcht1, ARM PLDL2KEEP. */
INLINE void prefetch_l2(const void *p) { __builtin_prefetch(p, 0, 2); }

/* n bytes of weights from p on, some time before they are used. */
INLINE void fetch(const void *p, int64_t n)
{
    for (int64_t i = 0; i < n; i += 64) {
        const char *line = (const char *)p + i;
        if (kernels_chosen.fetch == FETCH_L1)
            __builtin_prefetch(line, 0, 3);
        else if (kernels_chosen.fetch == FETCH_ONCE)
            __builtin_prefetch(line, 0, 0);
        else
            __builtin_prefetch(line, 0, 2);
    }
}

/* The next `size` bytes of each of n rows that lie one after the other and are read side by side, so that they share
 * what is loaded of the activations; next: the bytes after these rows.  Fetched in the order of memory they are one
 * stream.  A processor may follow one stream in a page only: fetched row by row, several rows are read at half the
 * rate on some, and a little faster than as one stream on others (benchmarks/log#one-stream). */
INLINE void fetch_rows(const void *rows, int64_t stride, int n, const void *next, int size)
{
    if (kernels_chosen.fetch == FETCH_ROWS)
        for (int r = 0; r < n; r++)
            for (int i = 0; i < size; i += 64)
                prefetch_l2((const char *)rows + r * stride + i + kernels_chosen.ahead);
    else
        fetch((const char *)next + kernels_chosen.ahead, n * size);
}

/* n bytes of weights for several vectors, whose products take longer than reading: the second level is near enough. */
INLINE void fetch_plain(const void *p, int64_t n)
{
    for (int64_t i = 0; i < n; i += 64)
        prefetch_l2((const char *)p + i + kernels_chosen.ahead);
}

/* How many rows are read side by side: so few that they stay in a first-level cache of 32 KiB, with what is fetched
 * after them and the activations. */
INLINE int rows_at_once(int64_t row_bytes)
{
    enum { SIDE = 8 << 10 };
    const int most = kernels_chosen.rows;
    return most >= 4 && row_bytes <= SIDE / 4 ? 4 : most >= 2 && row_bytes <= SIDE / 2 ? 2 : 1;
}

/* PART(n) for each n rows from r on, n a constant: `side`, or 1 at the end. */
#define BY_ROWS(side, n_row, PART)                                                                                     \
    for (int64_t r = 0, left; (left = (n_row) - r) > 0;)                                                               \
        if (left >= 4 && (side) >= 4) {                                                                                \
            PART(4);                                                                                                   \
            r += 4;                                                                                                    \
        } else if (left >= 2 && (side) == 2) {                                                                         \
            PART(2);                                                                                                   \
            r += 2;                                                                                                    \
        } else {                                                                                                       \
            PART(1);                                                                                                   \
            r++;                                                                                                       \
        }

#endif
