"""machine: the processor and its kernels, memory, the threads of a step, and how fast memory is read."""

import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

include "machine/cpu.pxi"
include "machine/memory.pxi"
include "machine/claim.pxi"
include "machine/bandwidth.pxi"
