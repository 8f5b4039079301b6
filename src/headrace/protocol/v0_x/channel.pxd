# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.output cimport BufferPool
from headrace.wire.memory cimport cut

cdef enum:
    C_OPENING = 0
    C_OPEN = 1
    C_CLOSING = 2
    C_BUSY = 3

cdef Py_ssize_t PART_MIN
cdef Py_ssize_t PART_MAX

cdef class DeliveryCollector:
    cdef int put(
        self, const unsigned char* buffer, Py_ssize_t args, Py_ssize_t args_end, Py_ssize_t header,
        Py_ssize_t header_end, Py_ssize_t end, unsigned long long body_size,
    ) except -1
    cdef int confirm(self, unsigned long long delivery_tag, int multiple) except -1

cdef class Channel:
    cdef public unsigned int number
    cdef public int state
    cdef public object method
    cdef public bytes address
    cdef public bytes header
    cdef public unsigned long long body_size
    cdef public unsigned long long missing
    cdef public list parts
    cdef bytearray gathered
    cdef long long counted
    cdef BufferPool pool
    cdef public object sink
    cdef public int busy
    cdef public list waiting
    cdef public object answers
    cdef public DeliveryCollector collector

    cpdef bint expects_content(self) except -1
    cpdef pause(self, int reason)
    cpdef put_first(self, bytes frames)
    cpdef bint sends_body(self) except -1
    cpdef begin_body(self, BufferPool pool, bytes header, unsigned long long body_size)
    cdef add_body(self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end)
    cpdef tuple finish(self)
    cpdef abandon(self)
