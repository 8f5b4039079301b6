# SPDX-License-Identifier: Apache-2.0
import cython

ctypedef unsigned int u32
ctypedef unsigned long long u64

@cython.final
cdef class StreamSegment:
    cdef public str path
    cdef public u32 number
    cdef public u64 seed
    cdef public u64 first_offset
    cdef public long long begun_ms
    cdef public u64 end
    cdef public u64 written
    cdef public u64 allocated
    cdef public list index
    cdef public int handle
    cdef public bint is_suspect
    cdef public bint has_logged_damage
    cdef public bint is_sealed
    cdef public object offloaded

@cython.final
cdef class StreamGroup:
    cdef public object files
    cdef public object on_durable
    cdef public bytearray buffer
    cdef public list writes
    cdef public Py_ssize_t writes_done
    cdef public u64 next_offset
    cdef public u64 number

    @cython.locals(segment=StreamSegment, file_offset=u64, start=Py_ssize_t, stop=Py_ssize_t, end=u64)
    cpdef run(self, disk)
    @cython.locals(end=u64)
    cpdef write(self, disk, StreamSegment segment, u64 file_offset, data)
    @cython.locals(segment=StreamSegment, file_offset=u64, start=Py_ssize_t, stop=Py_ssize_t)
    cpdef finish(self)
