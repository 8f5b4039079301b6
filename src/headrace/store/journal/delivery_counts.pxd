# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.store.journal.log cimport SegmentLog
from headrace.store.segment.record cimport C_COUNTED
from headrace.wire.memory cimport copy, cut, get32, get64, put32, put64

ctypedef unsigned int u32
ctypedef unsigned long long u64

cdef enum:
    C_ENTRY = 32
    C_RECORD_BYTES_MAX = 65536

cdef class DeliveryCounts:
    cdef public SegmentLog log
    cdef public object is_unsettled
    cdef public u64 number
    cdef public bytearray pending_entries
    cdef public bytearray pending_positions
    cdef public Py_ssize_t pending_bytes

    @cython.locals(offset=Py_ssize_t)
    cpdef add(self, u32 queue_id, u64 seq, u64 position, u32 count, u64 when_ms)
    @cython.locals(n=Py_ssize_t)
    cpdef flush(self)
    cpdef append(self, bytes entries, bytes positions)
    cpdef add_to_segment(self, object segment, bytes entries, bytes positions)
    cpdef sweep(self, object segment)
    @cython.locals(offset=Py_ssize_t, before=Py_ssize_t, n=Py_ssize_t, queue_id=u32, seq=u64,
                   last=cython.longlong, newest=dict, by_seq=dict, current=bytearray,
                   current_positions=bytearray)
    cpdef tuple current_entries(self, bytearray entries, bytearray positions)
    cpdef bint carry(self, object segment) except -1
