/* fit_planes.h: see fit_planes.c. */
#ifndef BITNET_EDGE_FIT_PLANES_H
#define BITNET_EDGE_FIT_PLANES_H

#include "kernels.h"

#include <stdint.h>

/* Weights w [n] (n <= GROUP) as the sum over p of scale[p] * code[p * stride + i], codes -1, 0, 1, with the least
 * sum of importance[i] * error^2 that was found; importance NULL: all 1.  Scales are half precision numbers >= 0, the
 * largest first.  Returns that sum; negative if a scale would be beyond half precision or a weight is not finite. */
double fit_planes(const float *w, const float *importance, int n, int n_plane, float *scale, int8_t *code,
                  int64_t stride);

/* Codes of w [n] that are nearest for given scales, as above; importance plays no part.  Returns the sum of error^2. */
double nearest_planes(const float *w, int n, int n_plane, const float *scale, int8_t *code, int64_t stride);

/* The same where the sum of the squares of error V counts, error [n] = w - the sum, as in GPTQ (arXiv 2210.17323):
 * u [n][n] is the block of the upper Cholesky factor of the inverse of the Hessian, v its inverse.  Columns are rounded
 * one after the other, and what a column misses is put on those behind it; scales are refitted to the codes, codes to
 * the scales.  w: corrected for the groups before.  missed [n] = error V, for those behind.  Returns the sum of its
 * squares, negative
 * as above. */
double feed_planes(const float *w, const float *u, const float *v, int n, int n_plane, float *scale, int8_t *code,
                   int64_t stride, float *missed);

#endif
