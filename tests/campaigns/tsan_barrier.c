/* The barrier of a step (barrier.h) under ThreadSanitizer: plain data that one thread writes and all read behind it.
 *
 *     tsan_barrier THREADS ROUNDS     exit 1 if a sum is wrong, 66 after a race
 *
 * Every hundredth round one thread comes late, so that the others sleep and must be woken. */
#include "barrier.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 64 };

static struct team team;
static int n_thread, n_round;
static int64_t cells[MOST];
static atomic_int wrong;

static void *work(void *number)
{
    int me = (int)(intptr_t)number;
    for (int64_t round = 1; round <= n_round; round++) {
        int64_t sum = 0;
        if (round % 100 == 0 && round / 100 % n_thread == me)
            usleep(2000);
        cells[me] = round * (me + 1);
        team_barrier(&team, n_thread);
        for (int i = 0; i < n_thread; i++)
            sum += cells[i];
        if (sum != round * n_thread * (n_thread + 1) / 2)
            atomic_store(&wrong, 1);
        team_barrier(&team, n_thread);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[MOST];
    if (argc != 3 || (n_thread = atoi(argv[1])) < 1 || n_thread > MOST || (n_round = atoi(argv[2])) < 1)
        return 2;
    for (int i = 0; i < n_thread; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i))
            return 2;
    for (int i = 0; i < n_thread; i++)
        pthread_join(threads[i], NULL);
    printf("barrier: %d threads, %d rounds\n", n_thread, n_round);
    return atomic_load(&wrong);
}
