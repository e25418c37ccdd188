/* hold.h: the threads of a step stay on some of the cores, such as the fast ones of a board that has slow ones, too.
 *
 * All threads may run on all of these cores: two engines with one core for each thread would meet on the same cores
 * while others are idle. */
#ifndef BITNET_EDGE_HOLD_H
#define BITNET_EDGE_HOLD_H

#include <sched.h>

enum { MOST_CORES = CPU_SETSIZE };

struct cores {
    int few; /* 0: any core */
    cpu_set_t set;
};

static inline void cores_add(struct cores *c, int core)
{
    c->few = 1;
    CPU_SET(core, &c->set);
}

/* A worker stays on the cores from now on, as far as its own mask has them; its threads belong to OpenMP's library and
 * work for all engines that this caller asks, so that one that may use any core gets the old mask back.  A mask that
 * somebody else changes later is left alone. */
static inline void keep_on(const struct cores *c)
{
    static _Thread_local struct cores kept;
    static _Thread_local cpu_set_t before;
    cpu_set_t wanted;
    if (c->few == kept.few && (!c->few || CPU_EQUAL(&c->set, &kept.set)))
        return;
    if (!kept.few && sched_getaffinity(0, sizeof before, &before) != 0)
        return;
    wanted = before;
    if (c->few)
        CPU_AND(&wanted, &before, &c->set);
    if (CPU_COUNT(&wanted))
        sched_setaffinity(0, sizeof wanted, &wanted);
    kept = *c;
}

/* The caller's own thread moves to the cores if it is on another one.  Returns 1 if its mask, now in *before, is to be
 * given back.  The system leaves a thread where it is when its mask grows, so that most steps only look. */
static inline int move_to(const struct cores *c, cpu_set_t *before)
{
    int core;
    cpu_set_t wanted;
    if (!c->few || (core = sched_getcpu()) < 0 || core >= CPU_SETSIZE || CPU_ISSET(core, &c->set) ||
        sched_getaffinity(0, sizeof *before, before) != 0)
        return 0;
    CPU_AND(&wanted, before, &c->set);
    return CPU_COUNT(&wanted) && sched_setaffinity(0, sizeof wanted, &wanted) == 0;
}

static inline void give_back(const cpu_set_t *before) { sched_setaffinity(0, sizeof *before, before); }

#endif
