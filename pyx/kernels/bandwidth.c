/* bandwidth.c: how fast memory can be read, the yardstick of `bitnet-edge bench`.  No one way is the fastest on every
 * processor, so there are several; what counts is the best.  Built with the baseline flags: a sum has no arithmetic to
 * speak of, and wider vectors measured no faster. */
#include "kernels.h"

enum {
    LINE = 8,    /* words of a line */
    STREAMS = 4, /* runs side by side */
    NEAR = 4096, /* bytes that lines are fetched ahead into the first level, and into the second one */
    FAR = 16384,
};

/* Lines [from, to) of x; way is a constant where this is inlined. */
static inline __attribute__((always_inline)) uint64_t sum_lines(const uint64_t *x, int64_t from, int64_t to, int way)
{
    uint64_t sum[LINE] = {0}, total = 0;
    const int64_t run = way == READ_STREAMS ? (to - from) / STREAMS : 0;
    const int n = run ? STREAMS : 1;
    int64_t line = from;
    for (; line < (run ? from + run : to); line++)
        for (int s = 0; s < n; s++) {
            const uint64_t *at = x + (line + s * run) * LINE;
            if (way == READ_L1)
                __builtin_prefetch((const char *)at + NEAR, 0, 3);
            if (way == READ_ONCE)
                __builtin_prefetch((const char *)at + NEAR, 0, 0);
            if (way == READ_L2)
                __builtin_prefetch((const char *)at + FAR, 0, 2);
            for (int i = 0; i < LINE; i++)
                sum[i] += at[i];
        }
    for (line = run ? from + STREAMS * run : to; line < to; line++)
        for (int i = 0; i < LINE; i++)
            sum[i] += x[line * LINE + i];
    for (int i = 0; i < LINE; i++)
        total += sum[i];
    return total;
}

uint64_t sum_words(const uint64_t *x, int64_t n, int n_thread, int way)
{
    uint64_t sum = 0;
    const int64_t n_line = n / LINE;
#pragma omp parallel for num_threads(n_thread) schedule(static) reduction(+ : sum)
    for (int64_t part = 0; part < n_thread; part++) {
        const int64_t from = n_line * part / n_thread, to = n_line * (part + 1) / n_thread;
        switch (way) {
        case READ_L1: sum += sum_lines(x, from, to, READ_L1); break;
        case READ_ONCE: sum += sum_lines(x, from, to, READ_ONCE); break;
        case READ_L2: sum += sum_lines(x, from, to, READ_L2); break;
        case READ_STREAMS: sum += sum_lines(x, from, to, READ_STREAMS); break;
        default: sum += sum_lines(x, from, to, READ_PLAIN);
        }
    }
    for (int64_t i = n_line * LINE; i < n; i++)
        sum += x[i];
    return sum;
}
