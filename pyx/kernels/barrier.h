/* barrier.h: an orphaned OpenMP barrier, callable from Cython inside a parallel region.
 * One region per token with barriers between stages; a fork and join per matrix would cost ~200 of them a token. */
#ifndef BITNET_EDGE_BARRIER_H
#define BITNET_EDGE_BARRIER_H

static inline void team_barrier(void) {
#ifdef _OPENMP
#pragma omp barrier
#endif
}

#endif
