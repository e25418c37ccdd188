/* bandwidth.c: how fast memory can be read, the yardstick of `bitnet-edge bench`.  Built with the baseline flags: a
 * plain sum has no arithmetic to speak of, and wider vectors measured no faster. */
#include "bandwidth.h"

uint64_t sum_words(const uint64_t *x, int64_t n, int n_thread) {
    uint64_t sum = 0;
    int64_t n_group = n / SUM_GROUP;
#pragma omp parallel for num_threads(n_thread) schedule(static) reduction(+ : sum)
    for (int64_t group = 0; group < n_group; group++) {
        const uint64_t *at = x + group * SUM_GROUP;
        for (int i = 0; i < SUM_GROUP; i++) sum += at[i];
    }
    for (int64_t i = n_group * SUM_GROUP; i < n; i++) sum += x[i];
    return sum;
}
