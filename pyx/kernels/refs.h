/* refs.h: reference counts that sessions on several threads share; sequentially consistent, never blocking. */
#ifndef BITNET_EDGE_REFS_H
#define BITNET_EDGE_REFS_H

#include <stdint.h>

/* Returns 1 if the count was 0 and is now 1: the caller owns the page. */
static inline int ref_take(int32_t *ref) {
    int32_t free_page = 0;
    return __atomic_compare_exchange_n(ref, &free_page, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static inline int32_t ref_get(const int32_t *ref) { return __atomic_load_n(ref, __ATOMIC_SEQ_CST); }

static inline void ref_set(int32_t *ref, int32_t n) { __atomic_store_n(ref, n, __ATOMIC_SEQ_CST); }

/* Returns the new value. */
static inline int32_t ref_add(int32_t *ref, int32_t n) { return __atomic_add_fetch(ref, n, __ATOMIC_SEQ_CST); }

/* A thread that reads a count by count_get also sees what was written before count_set. */
static inline int64_t count_get(const int64_t *count) { return __atomic_load_n(count, __ATOMIC_SEQ_CST); }

static inline void count_set(int64_t *count, int64_t n) { __atomic_store_n(count, n, __ATOMIC_SEQ_CST); }

static inline int64_t count_add(int64_t *count, int64_t n) { return __atomic_add_fetch(count, n, __ATOMIC_SEQ_CST); }

#endif
