/* speed.c: a few seconds of kernel speed, one thread.  Not a test.
 *
 *   speed [TARGET...]  all supported targets without arguments
 *
 * Cached: the working set fits the second-level cache.  Memory: 256 MiB of codes, read once per pass. */
#define _DEFAULT_SOURCE
#include "kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Best time of one call among the calls that fit in 0.2 s. */
#define BEST(call, seconds)                                                                                            \
    do {                                                                                                               \
        double end = now() + 0.2;                                                                                      \
        seconds = 1e9;                                                                                                 \
        do {                                                                                                           \
            double start = now();                                                                                      \
            call;                                                                                                      \
            double took = now() - start;                                                                               \
            seconds = took < seconds ? took : seconds;                                                                 \
        } while (now() < end);                                                                                         \
    } while (0)

static void *huge(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        exit(2);
#ifdef MADV_HUGEPAGE
    madvise(p, n, MADV_HUGEPAGE);
#endif
    return p;
}

/* Rows of groups as Q2_0 has them, for comparison with panels. */
static void measure_groups(const struct kernels *k, uint8_t *memory, int64_t n_memory)
{
    enum { GROUPS = 16, ROWS = 512, TOKENS = 64, K = GROUPS * GROUP };
    static int8_t q[TOKENS * K];
    static float d[TOKENS * GROUPS], out[1 << 20];
    static int32_t sum[TOKENS * GROUPS];
    static char work[GROUP_WORK] __attribute__((aligned(64)));
    const int64_t most = 1 << 20, fit = n_memory / (GROUPS * GROUP_PAIR), rows = fit < most ? fit : most;
    double t;
    for (int i = 0; i < TOKENS * K; i++)
        q[i] = (int8_t)(rand() % 255 - 127);
    for (int layout = 0; layout < 2; layout++) {
        static const int size[] = {GROUP_PAIR, GROUP_WHOLE};
        printf("%11s %s", "", layout ? "panels" : "groups");
        for (int n = 1; n <= TOKENS; n *= n == 4 ? 16 : 2) {
            if (layout)
                BEST(k->panel_matmul(memory, 0, ROWS, GROUPS, GROUP, 1, q, d, sum, n, 0, out, ROWS), t);
            else
                BEST(k->group_matmul(memory, GROUP_PAIR, ROWS, GROUPS, q, d, sum, n, 0, out, ROWS, work), t);
            printf("  x%d %6.1f GMAC/s", n, (double)ROWS * K * n / t * 1e-9);
        }
        const int64_t some = layout ? rows / PANEL_ROWS * PANEL_ROWS : rows;
        if (layout)
            BEST(k->panel_matmul(memory, 0, some, GROUPS, GROUP, 1, q, d, sum, 1, 0, out, some), t);
        else
            BEST(k->group_matmul(memory, GROUP_PAIR, some, GROUPS, q, d, sum, 1, 0, out, some, work), t);
        const double bytes = (double)some * GROUPS * size[layout];
        printf("  x1 memory %5.1f GB/s, %5.1f Gw/s\n", bytes / t * 1e-9, (double)some * K / t * 1e-9);
    }
}

static void measure(const struct kernels *k, uint8_t *memory, int64_t n_memory)
{
    enum { BLOCKS = 20, ROWS = 1024, TOKENS = 32, K = BLOCKS * 128, D = 128, Q = 4 };
    static int8_t x[TOKENS * K];
    static int32_t acc[TOKENS * ROWS];
    static char work[MATMUL_WORK(ROWS)] __attribute__((aligned(64)));
    static float big[1 << 20], f[2 * 6912], g[2 * 6912], scale[ROWS], q[Q * D], m[Q], l[Q], o[Q * D];
    static int16_t x16[BYTE_DOTS_MOST * K];
    static int8_t q8[Q * D], page8[D * 64 + 128];
    static uint16_t page16[D * 64];
    static float qs[Q] = {0.01f, 0.01f, 0.01f, 0.01f};
    double t;
    for (int i = 0; i < TOKENS * K; i++)
        x[i] = (int8_t)(rand() % 255 - 127);
    for (int i = 0; i < 2 * 6912; i++)
        f[i] = g[i] = (float)(rand() % 1000 - 500) * 0.001f;
    for (int i = 0; i < D * 64; i++) {
        page16[i] = (uint16_t)(0x3000 + rand() % 1024);
        page8[i] = (int8_t)(rand() % 255 - 127);
    }
    for (int i = 0; i < 32; i++)
        ((uint16_t *)(page8 + D * 32))[i] = ((uint16_t *)(page8 + D * 64 + 64))[i] = 0x2000;
    for (int i = 0; i < Q * D; i++)
        q8[i] = (int8_t)(rand() % 255 - 127), q[i] = 0.01f * (float)q8[i];
    for (int i = 0; i < BYTE_DOTS_MOST * K; i++)
        x16[i] = (int16_t)(rand() % 16000 - 8000);

    printf("%-11s", k->name);
    BEST(k->ternary_matvec(memory, ROWS, BLOCKS, x, acc), t);
    printf(" matvec cached %6.1f Gw/s", (double)ROWS * K / t * 1e-9);
    int64_t rows = n_memory / (BLOCKS * 32) < (1 << 20) ? n_memory / (BLOCKS * 32) : 1 << 20;
    BEST(k->ternary_matvec(memory, rows, BLOCKS, x, (int32_t *)big), t);
    printf(" memory %5.1f GB/s", (double)rows * BLOCKS * 32 / t * 1e-9);
    BEST(k->ternary_matmul(memory, ROWS, BLOCKS, x, TOKENS, acc, ROWS, work), t);
    printf(" | matmul x32 %6.1f GMAC/s", (double)ROWS * K * TOKENS / t * 1e-9);
    printf("\n");
    measure_groups(k, memory, n_memory);
    const float one = 1.0f;
    float *const out[1] = {big};
    BEST(k->head_i8((int8_t *)memory, scale, 256, K, x16, 1, &one, out), t);
    printf("%11s head_i8 cached %5.1f Gw/s", "", 256.0 * K / t * 1e-9);
    const float eight_ones[BYTE_DOTS_MOST] = {1, 1, 1, 1, 1, 1, 1, 1};
    float *eight_out[BYTE_DOTS_MOST];
    int32_t *eight_sums[BYTE_DOTS_MOST];
    for (int j = 0; j < BYTE_DOTS_MOST; j++)
        eight_out[j] = big + 256 * j, eight_sums[j] = (int32_t *)eight_out[j];
    BEST(k->head_i8((int8_t *)memory, scale, 256, K, x16, BYTE_DOTS_MOST, eight_ones, eight_out), t);
    printf(", 8 vectors %5.1f GMAC/s", 8 * 256.0 * K / t * 1e-9);
    BEST(k->byte_dots((int8_t *)memory, 256, K, x, BYTE_DOTS_MOST, eight_sums), t);
    printf(", byte_dots %5.1f GMAC/s", 8 * 256.0 * K / t * 1e-9);
    BEST(k->head_f16((uint16_t *)memory, 128, K, f, big), t);
    printf("  head_f16 %5.1f Gw/s", 128.0 * K / t * 1e-9);
    memset(o, 0, sizeof o);
    memset(l, 0, sizeof l);
    for (int i = 0; i < Q; i++)
        m[i] = -INFINITY;
    float p[Q * KV_PAGE];
    BEST((k->score_f16(page16, page16, D, Q, q, p), k->softmax_page(D, Q, ~0u, p, m, l, o),
          k->value_f16(page16 + D * 32, page16 + D * 32, D, Q, p, o)), t);
    printf("  attend_f16 page x4 %6.2f us", t * 1e6);
    BEST((k->score_i8(page8, page8, D, Q, q8, qs, p), k->softmax_page(D, Q, ~0u, p, m, l, o),
          k->value_i8(page8 + D * 32 + 64, page8 + D * 32 + 64, D, Q, p, o)), t);
    printf("  attend_i8 %6.2f us", t * 1e6);
    BEST((k->seal_keys_i8(page16, D, page8), k->seal_values_i8(page16 + D * 32, D, page8 + D * 32 + 64)), t);
    printf("  seal %6.2f us\n", t * 1e6);
    int32_t sum;
    BEST(k->quantize_i8(f, 6912, x, 6912, &sum), t);
    printf("%11s 6912 floats: quantize_i8 %6.2f us", "", t * 1e6);
    BEST(k->rmsnorm(f, g, 1e-5f, 6912, f + 6912), t);
    printf("  rmsnorm %6.2f us", t * 1e6);
    BEST(k->gate_relu2(f, g, 6912, f + 6912), t);
    printf("  gate_relu2 %6.2f us", t * 1e6);
    BEST(k->gate_silu(f, g, 6912, f + 6912), t);
    printf("  gate_silu %6.2f us", t * 1e6);
    BEST(k->rope_half(f, 128, g, g + 64), t);
    printf("  rope 128 %6.3f us\n", t * 1e6);
}

int main(int argc, char **argv)
{
    int n;
    const struct kernels *const *targets = kernels_all(&n);
    int64_t n_memory = (int64_t)256 << 20;
    uint8_t *memory = huge((size_t)n_memory);
    for (int64_t i = 0; i < n_memory; i++)
        memory[i] = (uint8_t)(i * 2654435761u >> 13) & 0x55;
    for (int i = 0; argc == 1 && i < n; i++)
        if (kernels_supported(targets[i]))
            measure(targets[i], memory, n_memory);
    for (int i = 1; i < argc; i++) {
        const struct kernels *target = kernels_named(argv[i]);
        if (!target || !kernels_supported(target))
            return 3;
        measure(target, memory, n_memory);
    }
    return 0;
}
