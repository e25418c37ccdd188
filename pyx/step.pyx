"""step: one step of a model: its layers, its output head, its working memory and threads, and what can be observed."""

import array
import math
import os
from collections import namedtuple

from cython.parallel cimport parallel, prange, threadid
from libc.math cimport INFINITY, cos, exp, fabs, isfinite, log1p, pow, rint, sin, sqrt
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from openmp cimport omp_get_num_threads

from pyx.kv cimport (
    CHUNK_PAGES, F16, KVCache, attend_page, attended, is_ring, open_added, open_decays, open_inputs, open_keys,
    page_as_floats, page_at, page_format, page_scratch, pages, recurrence, rotate_hadamard, score_page, seal_newest,
    store_token, stream, writable_page)
from pyx.machine cimport (
    BIT_BLOCK, CONV_TAPS, DELTA_CHUNK, GROUP, GROUP_WORK, KV_PAGE, PANEL_BYTES, PANEL_ROWS, TERNARY_BLOCK,
    TERNARY_BLOCK_BYTES, Arena, active, claim, core_ns, kernels, now_ns)
from pyx.tokens cimport Candidate, offer
from pyx.weights cimport StoredRows, TernaryMatrix, accumulators, activations, basis_signs, group_rows, matrix, project
from pyx.weights import ROW_TYPES

cdef extern from "numbers.h" nogil:
    float kernel_expf(float x)

include "step/team.pxi"
include "step/pace.pxi"
include "step/residency.pxi"
include "step/tensors.pxi"
include "head/bit_planes.pxi"
include "head/winners.pxi"
include "head/output_head.pxi"
include "layers/rotary.pxi"
include "layers/attention.pxi"
include "step/scratch.pxi"
include "step/stages.pxi"
include "layers/mix_attention.pxi"
include "layers/mix_delta.pxi"
include "layers/feed_dense.pxi"
include "layers/feed_experts.pxi"
include "layers/layer.pxi"
include "step/transformer.pxi"
include "step/probe.pxi"
