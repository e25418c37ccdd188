/* lost_pages.h: a mapped file that is truncated.
 *
 * Reading a page behind the new end raises SIGBUS, which ends the process without a message.  The handler here maps
 * zeros in place of the missing pages and counts them for their map, so that whoever read them can end with an error.
 * It acts only on the registered maps; any other SIGBUS goes where it went before.
 *
 * The handler calls nothing but mmap and sigaction, and waits for nothing. */
#ifndef BITNET_EDGE_LOST_PAGES_H
#define BITNET_EDGE_LOST_PAGES_H

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_MAPS = 256 };

static struct {
    atomic_uint turn;             /* odd while the entry changes: its bounds may be of two maps then */
    _Atomic uintptr_t start, end; /* end 0: free */
    atomic_int lost;
} lost_maps[MOST_MAPS];
static atomic_int lost_total;
static struct sigaction lost_before;
static size_t lost_page_size;

static void lost_pass_on(int signal, siginfo_t *info, void *context)
{
    int sent = info->si_code <= 0; /* by a process: returning does not raise it again */
    if (lost_before.sa_handler == SIG_DFL || lost_before.sa_handler == SIG_IGN) {
        if (sent && lost_before.sa_handler == SIG_IGN)
            return;
        sigaction(signal, &lost_before, NULL); /* the same access again, now without us */
        if (sent)
            raise(signal);
    } else if (lost_before.sa_flags & SA_SIGINFO)
        lost_before.sa_sigaction(signal, info, context);
    else
        lost_before.sa_handler(signal);
}

static void lost_handler(int signal, siginfo_t *info, void *context)
{
    int error = errno;
    uintptr_t at = (uintptr_t)info->si_addr;
    for (int i = 0; info->si_code > 0 && i < MOST_MAPS; i++) {
        unsigned turn = atomic_load(&lost_maps[i].turn);
        uintptr_t start = atomic_load(&lost_maps[i].start), end = atomic_load(&lost_maps[i].end);
        if (turn % 2 || turn != atomic_load(&lost_maps[i].turn) || at < start || end <= at)
            continue; /* an entry that changes is not ours: a map is registered as long as it is read */
        atomic_fetch_add(&lost_maps[i].lost, 1); /* before another thread can read the zeros */
        atomic_fetch_add(&lost_total, 1);
        at = at / lost_page_size * lost_page_size;
        /* everything from here on: files are truncated at the end */
        if (mmap((void *)at, end - at, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
            errno = error;
            return;
        }
        break;
    }
    errno = error;
    lost_pass_on(signal, info, context);
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

static void lost_enter(int map, uintptr_t start, uintptr_t end)
{
    atomic_fetch_add(&lost_maps[map].turn, 1);
    atomic_store(&lost_maps[map].lost, 0);
    atomic_store(&lost_maps[map].start, start);
    atomic_store(&lost_maps[map].end, end);
    atomic_fetch_add(&lost_maps[map].turn, 1);
}

/* Register a map.  Returns its number, or -1 if there are too many; then SIGBUS ends the process as usual.  One thread
 * at a time, as lost_forget. */
static int lost_watch(const void *start, size_t n)
{
    for (int i = 0; i < MOST_MAPS; i++)
        if (!atomic_load(&lost_maps[i].end)) {
            lost_enter(i, (uintptr_t)start, (uintptr_t)start + n);
            return i;
        }
    return -1;
}

static void lost_forget(int map)
{
    if (map >= 0)
        lost_enter(map, 0, 0);
}

/* How often pages of a registered map were found missing. */
static int lost_pages(int map)
{
    return map >= 0 ? atomic_load(&lost_maps[map].lost) : 0;
}

/* The same of all maps since the process began, those that are not registered any more too. */
static int lost_pages_ever(void)
{
    return atomic_load(&lost_total);
}

#endif
