/* dispatch.c: which targets this build has, and which of them this processor can run.  Built with baseline flags
 * only: it runs before anything is known about the processor.
 *
 * setup.py defines TARGETS(T), T(name) for each target of this build, best last, and ALL_TARGETS(T), those of every
 * architecture.  The need of a target is one bit, needs_NAME, which cpu_features() sets. */
#include "kernels.h"

#include <stddef.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

enum { needs_avx2 = 1, needs_avxvnni = 2, needs_avx512vnni = 4 };

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
    unsigned a, b, c, d, features;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    int osxsave = c >> 27 & 1, avx = c >> 28 & 1, f16c = c >> 29 & 1;
    if (!osxsave || !avx || !f16c || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return 0;
    uint64_t saved = xcr0();
    int avx2 = b >> 5 & 1, bmi2 = b >> 8 & 1; /* every processor with the one has had the other, but a few of VIA's */
    if (!avx2 || !bmi2 || (saved & 0x06) != 0x06) /* XMM and YMM state */
        return 0;
    features = needs_avx2;
    int f = b >> 16 & 1, dq = b >> 17 & 1, bw = b >> 30 & 1, vl = b >> 31 & 1, vnni = c >> 11 & 1;
    if (f && dq && bw && vl && vnni && (saved & 0xe6) == 0xe6) /* and opmask, upper ZMM halves, ZMM16-31 */
        features |= needs_avx512vnni;
    unsigned subleaves = a;
    if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1))
        features |= needs_avxvnni;
    return (int)features;
}

#elif defined(__aarch64__)

enum { needs_neon = 1, needs_dotprod = 2, needs_i8mm = 4 };

#include <sys/auxv.h>

static int cpu_features(void)
{
    unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
    int features = 0;
    if (hwcap >> 1 & 1) /* HWCAP_ASIMD */
        features |= needs_neon;
    if (features && (hwcap >> 20 & 1)) /* HWCAP_ASIMDDP */
        features |= needs_dotprod;
    if ((features & needs_dotprod) && (hwcap2 >> 13 & 1)) /* HWCAP2_I8MM */
        features |= needs_i8mm;
    return features;
}

#else

static int cpu_features(void) { return 0; }

#endif

struct kernels_choices kernels_chosen = {4, FETCH_L1, 2 << 10};

void kernels_choose(struct kernels_choices choices) { kernels_chosen = choices; }

enum { needs_scalar = 0 };

#define DECLARE(name) extern const struct kernels kernels_##name;
TARGETS(DECLARE)

#define KERNELS(name) &kernels_##name,
static const struct kernels *const targets[] = {TARGETS(KERNELS)};

#define NEEDS(name) needs_##name,
static const int needs[] = {TARGETS(NEEDS)};

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

int kernels_known(const char *name)
{
#define IS_NAME(target) strcmp(name, #target) == 0 ||
    return ALL_TARGETS(IS_NAME) 0;
}
