# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.store.journal.log cimport SegmentLog
from headrace.store.segment.record cimport C_SETTLED
from headrace.wire.memory cimport cut, put32, put64

ctypedef unsigned int u32
ctypedef unsigned long long u64

cdef Py_ssize_t RUNS_MAX

@cython.final
cdef class Settlements:
    cdef SegmentLog log
    cdef object reserve
    cdef u32 queue_id
    cdef u64 seq
    cdef readonly u32 count
    cdef bytearray runs
    cdef readonly Py_ssize_t pending_bytes

    cdef int add(self, u32 queue_id, u64 seq) except -1
    cdef int end_run(self) except -1
    @cython.locals(n=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t)
    cdef int flush_runs(self) except -1
    cdef int flush(self) except -1
