/* The oldest GNU C library our extensions run on: 2.17 on aarch64, 2.14 on x86-64 (tests/packaging/test_freeze.py).
 *
 * glibc 2.27 and 2.29 gave these functions new versions that differ from the old ones in errno on errors alone, which
 * nothing here reads; 2.34 gave those of threads new ones when they moved from libpthread, which libgomp loads.
 * Linked on a new system without this, the extensions would refuse to load on an older one. setup.py includes this
 * file first in every compiled file. */
#ifndef EDGE_GLIBC_FLOOR_H
#define EDGE_GLIBC_FLOOR_H

#include <features.h>

#if defined(__GLIBC__) && defined(__x86_64__)
#define EDGE_OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
#define EDGE_OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.17");
#else
#define EDGE_OLD(name)
#endif

/* clang-format off */
EDGE_OLD(exp)  EDGE_OLD(exp2)  EDGE_OLD(log)  EDGE_OLD(log2)  EDGE_OLD(pow)
EDGE_OLD(expf) EDGE_OLD(exp2f) EDGE_OLD(logf) EDGE_OLD(log2f) EDGE_OLD(powf)
EDGE_OLD(pthread_create) EDGE_OLD(pthread_join)
/* clang-format on */

#undef EDGE_OLD
#endif
