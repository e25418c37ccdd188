/* The part of libgomp that the compiled floor calls, over pthreads, for tests/campaigns/tsan.py.
 *
 * ThreadSanitizer sees pthreads and not libgomp, whose own forks, joins and barriers it would report as races.  A
 * library of these functions, loaded in front of libgomp, takes their place; each region makes its threads anew. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct region {
    void (*function)(void *);
    void *data;
    int n_thread;
    pthread_barrier_t barrier;
    pthread_mutex_t lock; /* of the loop */
    bool begun;
    long next, end, chunk;
};

struct member {
    struct region *region;
    int number;
    int loops;
    pthread_t thread;
};

static struct member alone;
static __thread struct member *self = &alone;

int omp_get_thread_num(void) { return self->number; }
int omp_get_num_threads(void) { return self->region ? self->region->n_thread : 1; }
int omp_get_max_threads(void) { return 1; }

static void *run(void *member)
{
    self = member;
    self->region->function(self->region->data);
    return NULL;
}

void GOMP_parallel(void (*function)(void *), void *data, unsigned n_thread, unsigned flags)
{
    struct member *before = self;
    struct region region = {.function = function, .data = data, .n_thread = n_thread ? (int)n_thread : 1};
    struct member *members = calloc((size_t)region.n_thread, sizeof *members);
    (void)flags;
    if (members == NULL || pthread_barrier_init(&region.barrier, NULL, (unsigned)region.n_thread)
        || pthread_mutex_init(&region.lock, NULL))
        abort();
    for (int i = 0; i < region.n_thread; i++) {
        members[i].region = &region;
        members[i].number = i;
        if (i > 0 && pthread_create(&members[i].thread, NULL, run, &members[i]))
            abort();
    }
    run(&members[0]);
    self = before;
    for (int i = 1; i < region.n_thread; i++)
        pthread_join(members[i].thread, NULL);
    pthread_mutex_destroy(&region.lock);
    pthread_barrier_destroy(&region.barrier);
    free(members);
}

void GOMP_barrier(void) { pthread_barrier_wait(&self->region->barrier); }

bool GOMP_loop_nonmonotonic_dynamic_next(long *first, long *last)
{
    struct region *r = self->region;
    bool more;
    pthread_mutex_lock(&r->lock);
    more = r->next < r->end;
    *first = r->next;
    *last = r->end - r->next < r->chunk ? r->end : r->next + r->chunk;
    r->next = *last;
    pthread_mutex_unlock(&r->lock);
    return more;
}

bool GOMP_loop_nonmonotonic_dynamic_start(long start, long end, long step, long chunk, long *first, long *last)
{
    struct region *r = self->region;
    if (self->loops++ || step != 1) /* one loop a region, upwards: all that there is today */
        abort();
    pthread_mutex_lock(&r->lock);
    if (!r->begun) {
        r->begun = true;
        r->next = start, r->end = end, r->chunk = chunk;
    }
    pthread_mutex_unlock(&r->lock);
    return GOMP_loop_nonmonotonic_dynamic_next(first, last);
}

void GOMP_loop_end_nowait(void) {}
