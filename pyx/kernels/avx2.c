/* avx2.c: x86-64 with AVX2 and F16C (Haswell 2013, Zen 2017, Alder Lake-N). */
#if defined(__AVX2__) && defined(__F16C__)

#include "avx2.h"

const struct kernels kernels_avx2 = {.name = "avx2", AVX2_KERNELS};

#else
typedef int not_compiled_for_avx2; /* ISO C requires a declaration */
#endif
