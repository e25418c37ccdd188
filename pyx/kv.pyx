"""kv: the KV cache of a session: pages, their pool, what is kept, and the states of gated delta layers."""

cimport cython
import os

from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset

from pyx.machine cimport CONV_TAPS, DELTA_CHUNK, DELTA_STRIP, KV_PAGE, MAX_DELTA_DIM, Arena, kernels

include "kv/page.pxi"
include "kv/pool.pxi"
include "kv/spill.pxi"
include "kv/policy.pxi"
include "kv/budget.pxi"
include "kv/recurrent.pxi"
include "kv/cache.pxi"
