"""tokens: text -> ids, logits -> an id: what needs no matrix."""

import array

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.float cimport FLT_MAX
from libc.math cimport INFINITY, exp, isfinite, log
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from pyx.machine cimport Arena

include "tokens/strings.pxi"
include "tokens/bpe.pxi"
include "tokens/sampler.pxi"
include "tokens/compare.pxi"
