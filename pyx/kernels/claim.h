/* claim.h: no parallel region with more threads than the system starts.
 *
 * OpenMP's library ends the whole process if it cannot start a thread.  For each caller it keeps the threads of the
 * last region for the next one: a region of fewer threads (except one) ends the others, one of more starts them again.
 * So every caller remembers how many it has, and before a larger region it starts as many threads as are missing, which
 * end at once; then the library starts its own in a region that does nothing.  Under the GIL no other thread of Python
 * takes their place meanwhile. */
#ifndef BITNET_EDGE_CLAIM_H
#define BITNET_EDGE_CLAIM_H

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"

enum { MOST_THREADS = 1024 };

struct trial {
    pthread_mutex_t *gate;
    pthread_t thread;
    long number;
};

static void *pass(void *given)
{
    struct trial *own = given;
    own->number = syscall(SYS_gettid);
    pthread_mutex_lock(own->gate);
    pthread_mutex_unlock(own->gate);
    return NULL;
}

/* A thread that was joined still counts against a limit until the system forgets its number; waits at most 0.1 s. */
static void until_gone(long number)
{
    int64_t end = now_ns() + 100000000;
    while (syscall(SYS_tgkill, getpid(), number, 0) == 0 && now_ns() < end)
        sched_yield();
}

/* How many threads, at most n, the system starts now, besides those that run. */
static int threads_to_start(int n)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    struct trial trials[MOST_THREADS];
    int started = 0, i;
    pthread_mutex_lock(&gate);
    for (; started < n && started < MOST_THREADS; started++) {
        trials[started].gate = &gate;
        if (pthread_create(&trials[started].thread, NULL, pass, &trials[started]) != 0)
            break;
    }
    pthread_mutex_unlock(&gate);
    for (i = 0; i < started; i++)
        pthread_join(trials[i].thread, NULL);
    for (i = 0; i < started; i++)
        until_gone(trials[i].number);
    pthread_mutex_destroy(&gate);
    return started;
}

/* The number of threads, at most n, for the next parallel region of the calling thread, which must take as many.
 * Requires the GIL. */
static int claim_threads(int n)
{
    static _Thread_local int has = 1, most;
    static _Thread_local int64_t until; /* no more than `most` before */
    int missing, started;
    if (n > has && n > most && now_ns() < until)
        n = most;
    if (n == 1)
        return n;
    if (n > has) {
        missing = n - has;
        started = threads_to_start(missing);
        if (started < missing) {
            /* the rest is for whatever else needs a thread; asked again, only all that are wanted are taken */
            n = has == 1 ? 1 + started / 2 : has;
            most = n;
            until = now_ns() + 1000000000;
        }
#pragma omp parallel num_threads(n)
        __asm__ volatile("");
    }
    has = n;
    return n;
}

#endif
