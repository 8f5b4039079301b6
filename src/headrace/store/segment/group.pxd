# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.store.segment.segment cimport Segment

ctypedef unsigned long long u64

@cython.final
cdef class SegmentWrite:
    cdef public Segment segment
    cdef public u64 offset
    cdef public Py_ssize_t start
    cdef public Py_ssize_t end
    cdef public list parts
    cdef public u64 size

@cython.final
cdef class WriteGroup:
    cdef public object files
    cdef public bytearray buffer
    cdef public list writes
    cdef public u64 appended
    cdef public list streams
    cdef public bint is_replicated
    cdef public Py_ssize_t streams_done
    cdef public Py_ssize_t writes_done

    @cython.locals(segment=Segment, stop=Py_ssize_t)
    cpdef run(self, disk)
    @cython.locals(write=SegmentWrite)
    cpdef list changes(self)
    @cython.locals(write=SegmentWrite, k=Py_ssize_t)
    cpdef write(self, disk, Segment segment, Py_ssize_t first, Py_ssize_t stop)
    @cython.locals(write=SegmentWrite, k=Py_ssize_t)
    cpdef write_to_new_file(self, Segment segment, Py_ssize_t first, Py_ssize_t stop)
