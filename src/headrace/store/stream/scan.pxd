# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.store.segment.record cimport C_BEGIN, C_GROUP, C_HEAD, C_MESSAGE, check_record, find_record_from
from headrace.store.stream.files cimport StreamSegment
from headrace.wire.memory cimport get64

cdef enum:
    C_INDEX_STEP = 65536

ctypedef unsigned int u32
ctypedef unsigned long long u64

@cython.final
cdef class StreamScan:
    cdef public StreamSegment segment
    cdef public bint last
    cdef public list index
    cdef public u64 next_offset
    cdef public u64 groups
    cdef public list group_transactions
    cdef public bint is_whole

    @cython.locals(
        offset=Py_ssize_t, end=Py_ssize_t, marked=Py_ssize_t, next_offset=Py_ssize_t,
        length=u32, seq=u64, seed=u64,
    )
    cpdef Py_ssize_t read(self, bytearray buffer, Py_ssize_t size) except -1
    cdef add_marker(self, u32 type, u64 number, Py_ssize_t file_offset)
