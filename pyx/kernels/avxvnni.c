/* avxvnni.c: x86-64 with AVX2, F16C and AVX-VNNI (Alder Lake 2021 and its small cores, the N100; Zen 5): the AVX2 row
 * with vpdpbusd, which sums four products into int32. */
#if defined(__AVXVNNI__) || (defined(__AVX512VL__) && defined(__AVX512VNNI__))
#define BITNET_EDGE_VNNI
#include "avx2.c"
#else
typedef int not_compiled_for_avxvnni; /* ISO C wants a declaration */
#endif
