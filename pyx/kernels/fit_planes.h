/* fit_planes.h: see fit_planes.c. */
#ifndef BITNET_EDGE_FIT_PLANES_H
#define BITNET_EDGE_FIT_PLANES_H

#include <stdint.h>

enum { FIT_MOST = 4, MOST_GROUP = 128 };

/* Weights w [n] (n <= MOST_GROUP) as the sum over p of scale[p] * code[p * stride + i], codes -1, 0, 1, with the least
 * sum of importance[i] * error^2 that was found; importance NULL: all 1.  Scales are half precision numbers >= 0, the
 * largest first.  Returns that sum; negative if a scale would be beyond half precision or a weight is not finite. */
double fit_planes(const float *w, const float *importance, int n, int n_plane, float *scale, int8_t *code,
                  int64_t stride);

/* Codes of w [n] that are nearest for given scales, as above; importance plays no part.  Returns the sum of error^2. */
double nearest_planes(const float *w, int n, int n_plane, const float *scale, int8_t *code, int64_t stride);

#endif
