# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.wire.memory cimport copy, cut, put16, put32

cdef unsigned char FRAME_BODY
cdef unsigned char FRAME_END
cdef Py_ssize_t BUFFER_SIZE
cdef Py_ssize_t BUFFER_KEPT_MAX
cdef Py_ssize_t POOL_MAX

@cython.final
cdef class BufferPool:
    cdef public list buffers
    cdef public list dirty
    cdef public list finished

    cpdef bytearray take(self)
    cpdef give(self, bytearray buffer)
    cpdef finish(self)

cdef class Output:
    cdef public BufferPool pool
    cdef public bytearray buffer
    cdef public Py_ssize_t head
    cdef public Py_ssize_t tail
    cdef Py_ssize_t capacity
    cdef public object chain
    cdef public Py_ssize_t chained
    cdef public bint dirty
    cdef public object feeds
    cdef public Py_ssize_t feeding

    cpdef Py_ssize_t pending(self) except -1
    @cython.locals(used=Py_ssize_t)
    cdef int reserve(self, Py_ssize_t size) except -1
    @cython.locals(size=Py_ssize_t)
    cpdef write(self, bytes octets)
    @cython.locals(size=Py_ssize_t, at=Py_ssize_t, buffer="unsigned char*")
    cpdef write_frame(self, unsigned int kind, unsigned int number, bytes payload)
    @cython.locals(limit=Py_ssize_t, size=Py_ssize_t, at=Py_ssize_t, to=Py_ssize_t, part=bytes)
    cpdef write_parts(self, unsigned int number, tuple parts, Py_ssize_t frame_max)
    @cython.locals(limit=Py_ssize_t, size=Py_ssize_t, at=Py_ssize_t, to=Py_ssize_t, part=bytes,
                   flags=cython.int, last=Py_ssize_t, place=Py_ssize_t)
    cpdef write_parts_0_10(self, unsigned int number, tuple parts, Py_ssize_t frame_max)
    cdef seal(self)
    @cython.locals(lo=Py_ssize_t, hi=Py_ssize_t, number=cython.int, frame=bytearray)
    cpdef tuple front(self)
    cpdef feed_from(self, object feed)
    cpdef feed_in_order(self, object feed)
    cdef tuple front_in_order(self, object feed)
    cdef tuple front_of_feed(self)
    @cython.locals(lo=Py_ssize_t, hi=Py_ssize_t)
    cpdef advance(self, Py_ssize_t size)
    cpdef release(self)
    cpdef drop(self)
