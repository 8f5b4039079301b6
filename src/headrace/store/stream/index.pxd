# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.store.segment.record cimport C_MESSAGE, C_MESSAGE_HEAD, find_record_from, check_head
from headrace.store.stream.files cimport StreamSegment
from headrace.store.stream.scan cimport StreamScan
from headrace.wire.memory cimport get64

ctypedef unsigned int u32
ctypedef unsigned long long u64

@cython.final
cdef class StreamIndex:
    cdef object files
    cdef list segments

    cpdef list segment_index(self, StreamSegment segment)
    cpdef StreamSegment next_segment(self, StreamSegment segment)
    @cython.locals(following=StreamSegment)
    cpdef StreamSegment find_next_segment(self, StreamSegment segment, u64 offset)
    cpdef tuple find(self, u64 offset)
    @cython.locals(left=u64, chunk=bytes, end=Py_ssize_t, start=Py_ssize_t, length=u32, size=Py_ssize_t,
                   seq=u64)
    cpdef tuple find_record(self, StreamSegment segment, u64 file_offset, u64 offset, u64 limit)
    @cython.locals(size=u64, k=Py_ssize_t, segment=StreamSegment, active=bint,
                   end=u64, last=u64, following=StreamSegment)
    cpdef u64 estimate_bytes_from(self, u64 offset, u64 file_offset, u64 next_offset) except? 0
