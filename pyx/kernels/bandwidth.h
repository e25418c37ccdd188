/* bandwidth.h: see bandwidth.c. */
#ifndef BITNET_EDGE_BANDWIDTH_H
#define BITNET_EDGE_BANDWIDTH_H

#include <stdint.h>

enum { SUM_GROUP = 512 }; /* words of one step of the loop: 4 KiB */

/* Sum of n words, modulo 2^64.  Each of n_thread threads reads one run of memory, as in a matrix-vector product. */
uint64_t sum_words(const uint64_t *x, int64_t n, int n_thread);

#endif
