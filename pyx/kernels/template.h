/* template.h: what every template of the kernels needs, in one place.
 *
 * A template is a file named .inc.h.  A target includes it after it has defined the vectors, constants and small
 * functions that the template is written in; the comment at the top of each template lists them.  A target includes
 * them in this order:
 *
 *   x86.h or arm.h       INLINE, OUT_OF_LINE, prefetch_l2, prefetch_stream, is_stream: used by all templates
 *   lanes.inc.h          float vectors
 *   delta.inc.h          rotated bases, gated delta rule   (after lanes.inc.h)
 *   tiles.inc.h          several tokens; includes lookup.inc.h or packs.inc.h where the target asks for it.  A target
 *                        with its own tiled_matmul includes packs.inc.h instead
 *   groups.inc.h         scales per group                  (after lanes.inc.h)
 *   head.inc.h           output heads of 8 bits            (after lanes.inc.h)
 *   plane_dots.inc.h     bit planes
 *   byte_dots.inc.h      products of bytes                 (after plane_dots.inc.h)
 *   nibbles.inc.h        attention: includes pages.inc.h   (after lanes.inc.h)
 *
 * Each template ends with the members of struct kernels that it provides.  Everything in a template is static: see
 * numbers.h. */
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

/* A loop that profiles and benchmarks/mca.py find by its name. */
#define OUT_OF_LINE static __attribute__((noinline))

#endif
