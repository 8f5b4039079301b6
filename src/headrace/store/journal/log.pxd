# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.model.ports cimport Store
from headrace.store.segment.group cimport WriteGroup, SegmentWrite
from headrace.store.segment.record cimport (
    C_COUNTED, C_GROUP, C_HEAD, C_MARKED, C_MESSAGE_HEAD, C_MOVED, C_RESERVED, C_RETURNED, C_SEALED,
    C_SETTLED, seal, seal_with_parts,
)
from headrace.store.segment.segment cimport Segment
from headrace.wire.memory cimport copy, put64

ctypedef unsigned char u8
ctypedef unsigned int u32
ctypedef unsigned long long u64

cdef u32 NOTES

cdef class SegmentLog(Store):
    cdef public str directory
    cdef public str name
    cdef public object disk
    cdef public u64 segment_size
    cdef public u64 secret
    cdef public object files
    cdef public dict segments
    cdef public Segment segment
    cdef public object order
    cdef public bytearray buffer
    cdef public Py_ssize_t capacity
    cdef public object spare_buffer
    cdef public Py_ssize_t buffer_end
    cdef public Py_ssize_t floor
    cdef public list writes
    cdef public Py_ssize_t write_start
    cdef public u64 write_offset
    cdef public u64 required_position
    cdef public u64 offset
    cdef public u64 group_number
    cdef public object busy
    cdef public list dirty_streams
    cdef public bint closed
    cdef public object writer

    @cython.locals(more=Py_ssize_t)
    cpdef reserve(self, u64 size)
    @cython.locals(n=Py_ssize_t, length=u32, size=u64, buffer="u8*", base=Py_ssize_t)
    cpdef append(self, u32 type, bytes payload)
    @cython.locals(
        length=u64, size=u64, head_size=Py_ssize_t, buffer="u8*", base=Py_ssize_t, i=u32, position=u64
    )
    cpdef u64 append_large(self, u32 type, bytes head, list parts, bytes queue_ids) except? 0
    @cython.locals(q=Py_ssize_t, i=u32, position=u64, count=u32, length=Py_ssize_t)
    cpdef u64 append_copy(self, bytes record, Py_ssize_t body_offset, bytes queue_ids) except? 0
    cpdef end_write(self)
    @cython.locals(old=Segment, buffer="u8*")
    cpdef roll(self, u64 size)
    @cython.locals(segment=Segment, first=bytes)
    cpdef begin_segment(self, u32 number, u64 size)
    cpdef start_write(self)
    cpdef bint is_failing(self) except -1
    cdef bint is_dirty(self) except -1
    cpdef hand_over(self)
    @cython.locals(appended=u64)
    cpdef begin_group(self)
    cpdef woken(self)
    cpdef bint handle_finished(self) except -1
