/* barrier.h: how the threads of one parallel region wait for each other, callable from Cython.
 *
 * A step is one parallel region with barriers between its stages; a fork and join for each matrix would cost about 200
 * of them a token.  OpenMP's own barrier also handles tasks: this one takes a third of its time, and a small model
 * passes 25 of them in less than a tenth of a millisecond (benchmarks/log#small-models).
 *
 * A thread that waits spins for a while and then sleeps.  On an idle machine, waking up takes longer than the shares of
 * two threads differ, and a thread that wakes up late delays the others at the next barrier.  So after a short sleep,
 * threads spin longer the next time; after a long one, during which another program had the core, they spin less.
 * On a busy machine, the system may put two threads of a team on one core.  Then the one that spins keeps the core from
 * the one that it waits for; so threads do not spin after a sleep that was ended from the sleeper's own core. */
#ifndef BITNET_EDGE_BARRIER_H
#define BITNET_EDGE_BARRIER_H

#include "clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Looks at the counter; a look and a pause are 25 ns on a Zen 4 core. */
enum { SPINS = 1000, LONG_SPINS = 8000, SHORT_SLEEP_NS = 200000 };

enum { SPIN_USUAL, SPIN_LONG, SPIN_NOT };

/* All zero before the first barrier.  The counters lie in cache lines of their own. */
struct team {
    char before[64];
    atomic_int arrived;
    char between[64];
    atomic_int turn; /* barriers passed */
    atomic_int asleep;
    atomic_int patience; /* how long to spin, learned from the latest sleep */
    atomic_int core;     /* on which the last thread arrived, when others slept */
    char after[64];
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* yield does nothing on most cores */
#endif
}

static inline int core_now(void)
{
    unsigned core = 0;
    return syscall(SYS_getcpu, &core, NULL, NULL) == 0 ? (int)core : -1;
}

/* Called by each of the n threads; returns when all have called it. */
static inline void team_barrier(struct team *t, int n)
{
    if (n == 1)
        return;
    int turn = atomic_load_explicit(&t->turn, memory_order_relaxed);
    if (atomic_fetch_add(&t->arrived, 1) == n - 1) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
        if (atomic_load_explicit(&t->asleep, memory_order_relaxed))
            atomic_store_explicit(&t->core, core_now(), memory_order_relaxed);
        atomic_store(&t->turn, (int)((unsigned)turn + 1));
        if (atomic_load(&t->asleep)) /* a thread increments asleep before it reads turn again and sleeps */
            syscall(SYS_futex, &t->turn, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
        return;
    }
    int patience = atomic_load_explicit(&t->patience, memory_order_relaxed);
    int spins = patience == SPIN_LONG ? LONG_SPINS : patience == SPIN_USUAL ? SPINS : 0;
    for (int i = 0; i < spins; i++) {
        if (atomic_load_explicit(&t->turn, memory_order_acquire) != turn)
            return;
        relax();
    }
    int core = core_now();
    int64_t begun = now_ns();
    atomic_fetch_add(&t->asleep, 1);
    while (atomic_load(&t->turn) == turn)
        syscall(SYS_futex, &t->turn, FUTEX_WAIT_PRIVATE, turn, NULL, NULL, 0);
    atomic_fetch_sub(&t->asleep, 1);
    patience = now_ns() - begun < SHORT_SLEEP_NS ? SPIN_LONG : SPIN_USUAL;
    if (core >= 0 && atomic_load_explicit(&t->core, memory_order_relaxed) == core)
        patience = SPIN_NOT;
    atomic_store_explicit(&t->patience, patience, memory_order_relaxed);
}

#endif
