/* avxvnni.c: x86-64 with AVX2, F16C and AVX-VNNI (Alder Lake 2021 and its small cores, the N100; Zen 5). */
#if defined(__AVX2__) && defined(__F16C__) &&                                                                          \
    (defined(__AVXVNNI__) || (defined(__AVX512VL__) && defined(__AVX512VNNI__)))

#define VNNI
#include "avx2.h"

const struct kernels kernels_avxvnni = {.name = "avxvnni", AVX2_KERNELS};

#else
typedef int not_compiled_for_avxvnni; /* ISO C requires a declaration */
#endif
