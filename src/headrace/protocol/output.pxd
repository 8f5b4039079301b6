# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.wire.memory cimport copy, cut, put16, put32

cdef unsigned char FRAME_BODY
cdef unsigned char FRAME_END
cdef Py_ssize_t BUFFER_SIZE
cdef Py_ssize_t BUFFER_KEPT_MAX
cdef Py_ssize_t POOL_BYTES_MAX
cdef int KEPT_TICKS
cdef Py_ssize_t GATHERED_MAX

cdef enum:
    C_OUTPUT_MIN = 65536
    C_SHARE_MIN = 4096
    C_SHARE_ABOVE = 32768

@cython.final
cdef class BufferPool:
    cdef public list buffers
    cdef public list dirty
    cdef public list finished
    cdef public Py_ssize_t pooled_bytes
    cdef public int ticks
    cdef public Py_ssize_t used
    cdef public Py_ssize_t used_max
    cdef public bint is_tight
    cdef public long long step

    @cython.locals(buffer=bytearray)
    cpdef bytearray acquire_buffer(self)
    @cython.locals(size=Py_ssize_t)
    cpdef return_buffer(self, bytearray buffer)
    cpdef tick(self)
    cpdef int count(self, Py_ssize_t size) except -1
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
    cdef public Py_ssize_t output_max
    cdef public Py_ssize_t room

    cpdef Py_ssize_t pending(self) except -1
    @cython.locals(size=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, number=cython.int)
    cpdef Py_ssize_t written(self) except -1
    cpdef limit(self, Py_ssize_t output_max)
    @cython.locals(waiting=Py_ssize_t)
    cpdef bint is_full(self) except -1
    cpdef bint lags(self) except -1
    @cython.locals(used=Py_ssize_t, before=Py_ssize_t)
    cdef int reserve(self, Py_ssize_t size) except -1
    @cython.locals(size=Py_ssize_t)
    cpdef write(self, bytes data)
    @cython.locals(size=Py_ssize_t, position=Py_ssize_t, buffer="unsigned char*")
    cpdef write_frame(self, unsigned int frame_type, unsigned int number, bytes payload)
    @cython.locals(part=bytes)
    cpdef write_parts(self, unsigned int number, tuple parts, Py_ssize_t frame_max)
    @cython.locals(limit=Py_ssize_t, chunk_end=Py_ssize_t, tail=Py_ssize_t, buffer="unsigned char*")
    cpdef refer_body(
        self, unsigned int number, bytes source, Py_ssize_t position, Py_ssize_t end,
        Py_ssize_t frame_max
    )
    @cython.locals(limit=Py_ssize_t, size=Py_ssize_t, position=Py_ssize_t, chunk_end=Py_ssize_t, part=bytes,
                   flags=cython.int, last=Py_ssize_t, index=Py_ssize_t, tail=Py_ssize_t,
                   buffer="unsigned char*")
    cpdef write_parts_0_10(self, unsigned int number, tuple parts, Py_ssize_t frame_max)
    cdef refer(self, bytes source, Py_ssize_t start, Py_ssize_t end)
    cdef put_in_chain(self, bytes source, Py_ssize_t start, Py_ssize_t end, bint last)
    @cython.locals(size=Py_ssize_t)
    cdef seal(self)
    @cython.locals(start=Py_ssize_t, end=Py_ssize_t, number=cython.int)
    cpdef tuple front(self)
    @cython.locals(number=cython.int)
    cpdef list gather(self)
    cpdef feed_from(self, object feed)
    cpdef feed_in_order(self, object feed)
    cdef tuple front_in_order(self, object feed)
    cdef tuple pull_from_feed(self)
    @cython.locals(start=Py_ssize_t, end=Py_ssize_t, number=cython.int)
    cpdef advance(self, Py_ssize_t size)
    cpdef release(self)
    cpdef drop(self)
    @cython.locals(excess=Py_ssize_t, dropped_size=Py_ssize_t, chunk_size=Py_ssize_t)
    cpdef cut_back(self, Py_ssize_t size)
