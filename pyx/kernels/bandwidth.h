/* bandwidth.h: see bandwidth.c. */
#ifndef BITNET_EDGE_BANDWIDTH_H
#define BITNET_EDGE_BANDWIDTH_H

#include <stdint.h>

/* Ways to read: in order and nothing else; in order, with lines fetched ahead into the first level, the same to be
 * replaced first, or the second level; four runs side by side. */
enum { READ_PLAIN, READ_L1, READ_ONCE, READ_L2, READ_STREAMS, N_READ };

/* Sum of n words, modulo 2^64, read in one of these ways.  Each of n_thread threads reads one run of memory, as in a
 * matrix-vector product. */
uint64_t sum_words(const uint64_t *x, int64_t n, int n_thread, int way);

#endif
