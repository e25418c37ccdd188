/* avx2.c: x86-64 with AVX2 and F16C (Haswell 2013, Zen 2017, Alder Lake-N).
 *
 * The workhorse is vpmaddubsw: unsigned bytes (the codes) times signed bytes (the activations), neighbouring products
 * added into int16 with saturation. */
#if defined(__AVX2__) && defined(__F16C__)

#include "avx2.h"

#define NARROW_STEPS(n) (n)

INLINE vb dot16(vb sums, vb a, vb b) { return add32(sums, _mm256_madd_epi16(a, b)); }
INLINE vb dot_narrow(vb sums, vb u, vb x) { return _mm256_add_epi16(sums, _mm256_maddubs_epi16(u, x)); }
INLINE vb widen_by(vb sums, int factor) { return _mm256_madd_epi16(sums, _mm256_set1_epi16((short)factor)); }

/* |a| as unsigned times b with the sign of a: pairs are at most 2 * 127 * 127 = 32258, no saturation.  (a ^ 0x80 as
 * unsigned would reach 2 * 255 * 127 = 64770.) */
INLINE vb dot_abs(vb sums, vb a, vb b)
{
    return add32(sums, widen_by(_mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(b, a)), 1));
}

#include "maddubs.inc.h"

const struct kernels kernels_avx2 = {.name = "avx2", MADDUBS_KERNELS};

#else
typedef int not_compiled_for_avx2; /* ISO C requires a declaration */
#endif
