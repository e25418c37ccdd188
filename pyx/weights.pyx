"""weights: the matrices of a model: stored rows, packed ternary matrices, sums of planes, and their products."""

import array
import math
import struct

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.parallel cimport prange
from libc.float cimport FLT_MAX
from libc.math cimport fabsf, nextafterf
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

from pyx.machine cimport (
    FEW_ROWS, GROUP, GROUP_PAIR, GROUP_WHOLE, LEAST_BASIS, MANY_ROWS, MATMUL_WORK, MOST_PLANES, PANEL_BYTES, PANEL_ROWS,
    TERNARY_BLOCK, TERNARY_BLOCK_BYTES, Arena, active, claim, kernels, place_in_group)

include "weights/projection.pxi"
include "weights/stored_rows.pxi"
include "weights/ternary.pxi"
include "weights/planes.pxi"
