/* dispatch.c: which targets this build has, and which of them this processor can run.  Built with baseline flags
 * only: it runs before anything is known about the processor. */
#include "kernels.h"

#include <stddef.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

enum { FEATURE_SSE41 = 1, FEATURE_AVX2 = 2, FEATURE_AVXVNNI = 4, FEATURE_AVX512VNNI = 8 };

/* XCR0: which register files the operating system saves.  Without this check AVX in a kernel or hypervisor that
 * does not save the upper halves corrupts silently. */
static uint64_t xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static int cpu_features(void)
{
    unsigned a, b, c, d, features = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    if ((c >> 9 & 1) && (c >> 19 & 1)) /* SSSE3 and SSE4.1 */
        features |= FEATURE_SSE41;
    int osxsave = c >> 27 & 1, avx = c >> 28 & 1, f16c = c >> 29 & 1;
    if (!osxsave || !avx || !f16c || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return (int)features;
    uint64_t saved = xcr0();
    int avx2 = b >> 5 & 1, bmi2 = b >> 8 & 1; /* every processor with the one has had the other, but a few of VIA's */
    if (!avx2 || !bmi2 || (saved & 0x06) != 0x06) /* XMM and YMM state */
        return (int)features;
    features |= FEATURE_AVX2;
    int f = b >> 16 & 1, dq = b >> 17 & 1, bw = b >> 30 & 1, vl = b >> 31 & 1, vnni = c >> 11 & 1;
    if (f && dq && bw && vl && vnni && (saved & 0xe6) == 0xe6) /* and opmask, upper ZMM halves, ZMM16-31 */
        features |= FEATURE_AVX512VNNI;
    unsigned subleaves = a;
    if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1))
        features |= FEATURE_AVXVNNI;
    return (int)features;
}

#elif defined(__aarch64__)

enum { FEATURE_NEON = 1, FEATURE_DOTPROD = 2, FEATURE_I8MM = 4 };

#if defined(__linux__)
#include <sys/auxv.h>

static int cpu_features(void)
{
    unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
    int features = 0;
    if (hwcap >> 1 & 1) /* HWCAP_ASIMD */
        features |= FEATURE_NEON;
    if (features && (hwcap >> 20 & 1)) /* HWCAP_ASIMDDP */
        features |= FEATURE_DOTPROD;
    if ((features & FEATURE_DOTPROD) && (hwcap2 >> 13 & 1)) /* HWCAP2_I8MM */
        features |= FEATURE_I8MM;
    return features;
}

#elif defined(__APPLE__)
#include <sys/sysctl.h>

static int has(const char *name)
{
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value;
}

static int cpu_features(void)
{
    int features = FEATURE_NEON;
    if (has("hw.optional.arm.FEAT_DotProd"))
        features |= FEATURE_DOTPROD;
    if ((features & FEATURE_DOTPROD) && has("hw.optional.arm.FEAT_I8MM"))
        features |= FEATURE_I8MM;
    return features;
}

#else

static int cpu_features(void) { return FEATURE_NEON; }

#endif
#else

static int cpu_features(void) { return 0; }

#endif

/* On a Zen 4 core 24 KiB took the ternary stream from 0.89 to 0.97 of a plain sum's rate, the int8 head from 0.7 to
 * 0.96 (benchmarks/SPEED.md).  For ARM it is not measured on hardware: it covers 150 ns of latency at 10 GB/s several
 * times over, and rows of K = 2560 are 640 bytes. */
#if defined(__aarch64__)
enum { AHEAD = 8 << 10 };
#else
enum { AHEAD = 24 << 10 };
#endif
enum { GROUP_AHEAD = 16 << 10 };

struct kernels_choices kernels_chosen = {AHEAD, GROUP_AHEAD, 0};

void kernels_choose(int64_t ahead, int64_t many_tokens)
{
    struct kernels_choices chosen = {ahead ? ahead : AHEAD, ahead ? ahead : GROUP_AHEAD, many_tokens};
    kernels_chosen = chosen;
}

/* The targets of this build, best last; needs[i] are the feature bits of targets[i].  setup.py defines WITHOUT_AVXVNNI
 * for compilers that lack it (GCC 10). */
static const struct kernels *const targets[] = {
    &kernels_scalar,
#if defined(__x86_64__)
    &kernels_sse41,
    &kernels_avx2,
#if !defined(WITHOUT_AVXVNNI)
    &kernels_avxvnni,
#endif
    &kernels_avx512vnni,
#elif defined(__aarch64__)
    &kernels_neon,
    &kernels_dotprod,
    &kernels_i8mm,
#endif
};

static const int needs[] = {
    0,
#if defined(__x86_64__)
    FEATURE_SSE41,
    FEATURE_AVX2,
#if !defined(WITHOUT_AVXVNNI)
    FEATURE_AVXVNNI,
#endif
    FEATURE_AVX512VNNI,
#elif defined(__aarch64__)
    FEATURE_NEON,
    FEATURE_DOTPROD,
    FEATURE_I8MM,
#endif
};

enum { N_TARGET = sizeof targets / sizeof targets[0] };

const struct kernels *const *kernels_all(int *n)
{
    *n = N_TARGET;
    return targets;
}

int kernels_supported(const struct kernels *target)
{
    int features = cpu_features();
    for (int i = 0; i < N_TARGET; i++)
        if (targets[i] == target)
            return (features & needs[i]) == needs[i];
    return 0;
}

const struct kernels *kernels_best(void)
{
    /* Two threads may both fill it, with the same value. */
    static const struct kernels *volatile best;
    if (!best) {
        const struct kernels *found = targets[0];
        for (int i = 1; i < N_TARGET; i++)
            if (kernels_supported(targets[i]))
                found = targets[i];
        best = found;
    }
    return best;
}

const struct kernels *kernels_named(const char *name)
{
    for (int i = 0; i < N_TARGET; i++)
        if (strcmp(targets[i]->name, name) == 0)
            return targets[i];
    return NULL;
}
