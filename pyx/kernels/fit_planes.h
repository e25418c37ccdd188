/* fit_planes.h: see fit_planes.c. */
#ifndef BITNET_EDGE_FIT_PLANES_H
#define BITNET_EDGE_FIT_PLANES_H

#include "kernels.h"

#include <stdint.h>

/* Weights w [n] (n <= GROUP) as the sum over p of scale[p] * code[p * stride + i], codes -1, 0, 1, with the least sum
 * of error^2 that was found.  Scales are half precision numbers >= 0, the largest first.  Returns that sum; negative if
 * a scale would be beyond half precision or a weight is not finite. */
double fit_planes(const float *w, int n, int n_plane, float *scale, int8_t *code, int64_t stride);

#endif
