/* lost_pages.h: a mapped file that is truncated.
 *
 * Reading a page behind the new end raises SIGBUS, which ends the process without a message.  The handler here maps
 * zeros in place of the missing pages and counts them, so that the step can end with an error.  It acts only on the
 * registered maps; any other SIGBUS goes to the handler that was installed before. */
#ifndef BITNET_EDGE_LOST_PAGES_H
#define BITNET_EDGE_LOST_PAGES_H

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_MAPS = 256 };

static struct { _Atomic uintptr_t start, end; } lost_maps[MOST_MAPS]; /* end 0: free */
static atomic_int lost_count;
static struct sigaction lost_before;
static size_t lost_page_size;

static void lost_handler(int signal, siginfo_t *info, void *context)
{
    (void)context;
    uintptr_t at = (uintptr_t)info->si_addr;
    for (int i = 0; i < MOST_MAPS; i++) {
        uintptr_t start = atomic_load(&lost_maps[i].start), end = atomic_load(&lost_maps[i].end);
        if (end && start <= at && at < end) {
            at = at / lost_page_size * lost_page_size;
            /* everything from here on: files are truncated at the end */
            if (mmap((void *)at, end - at, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
                atomic_fetch_add(&lost_count, 1);
                return;
            }
        }
    }
    sigaction(signal, &lost_before, NULL); /* the same access again, now without us */
}

/* Install the handler for the whole process.  Returns 0, or -1 if the system refuses. */
static int lost_install(void)
{
    struct sigaction action = {0};
    if (lost_page_size)
        return 0;
    lost_page_size = (size_t)sysconf(_SC_PAGESIZE);
    action.sa_sigaction = lost_handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &lost_before);
}

/* Register a map.  Returns its number, or -1 if there are too many; then SIGBUS ends the process as usual.  One thread
 * at a time. */
static int lost_watch(const void *start, size_t n)
{
    for (int i = 0; i < MOST_MAPS; i++)
        if (!atomic_load(&lost_maps[i].end)) {
            atomic_store(&lost_maps[i].start, (uintptr_t)start);
            atomic_store(&lost_maps[i].end, (uintptr_t)start + n);
            return i;
        }
    return -1;
}

static void lost_forget(int map)
{
    if (map >= 0)
        atomic_store(&lost_maps[map].end, 0);
}

/* How often pages were found missing. */
static int lost_pages(void)
{
    return atomic_load(&lost_count);
}

#endif
