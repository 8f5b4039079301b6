# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_x.channel cimport DeliveryCollector
from headrace.wire.memory cimport copy, get32, get64, store32, store64
from headrace.wire.table cimport check_utf8

cdef Py_ssize_t INITIAL_CAPACITY
cdef Py_ssize_t _BLOCK_BYTES_MAX
cdef Py_ssize_t _OFFSET_KEY_LEN
cdef bytes _OFFSET_KEY

@cython.final
cdef class Octets:
    cdef readonly bytearray data
    cdef readonly Py_ssize_t used
    cdef readonly bytearray ends
    cdef Py_ssize_t capacity

    cdef grow(self, Py_ssize_t size)
    cdef int add(
        self, Py_ssize_t row, const unsigned char* d, Py_ssize_t start, Py_ssize_t end
    ) except -1

@cython.final
cdef class Block:
    cdef Py_ssize_t records_max
    cdef readonly Py_ssize_t count
    cdef readonly bytearray offsets
    cdef readonly bytearray redelivered
    cdef readonly Octets bodies
    cdef readonly Octets heads
    cdef readonly Octets exchanges
    cdef readonly Octets routing_keys

    @cython.locals(row=Py_ssize_t)
    cpdef add(
        self, long long offset, bytes header, bytes body, bytes exchange, bytes routing_key,
        bint redelivered,
    )
    cpdef bint is_full(self) except -1

cdef class RangeCollector(DeliveryCollector):
    cdef public long long first
    cdef readonly long long last
    cdef Py_ssize_t records_max
    cdef readonly Block block
    cdef public list ready
    cdef readonly unsigned long long tag
    cdef readonly bint is_complete
    cdef public bint has_new

    @cython.locals(tag_position=Py_ssize_t, exchange=Py_ssize_t, routing_key=Py_ssize_t,
                   offset=cython.longlong, block=Block, row=Py_ssize_t,
                   redelivered="unsigned char*")
    cdef int put(
        self, const unsigned char* d, Py_ssize_t args, Py_ssize_t args_end, Py_ssize_t header,
        Py_ssize_t header_end, Py_ssize_t end, unsigned long long body_size,
    ) except -1
    @cython.locals(size=Py_ssize_t)
    cdef int add_body(
        self, Octets bodies, Py_ssize_t row, const unsigned char* d, Py_ssize_t position,
        Py_ssize_t end, unsigned long long body_size,
    ) except -1
    @cython.locals(block=Block)
    cpdef add(
        self, long long offset, unsigned long long tag, bytes header, bytes body, str exchange,
        str routing_key, bint redelivered,
    )
    cpdef seal(self)
    cpdef finish(self)

@cython.locals(key_position=Py_ssize_t, position=Py_ssize_t)
cdef long long offset_in(const unsigned char* d, Py_ssize_t start, Py_ssize_t end) except? -1

@cython.locals(i=Py_ssize_t, key="const unsigned char*")
cdef bint matches_key(const unsigned char* d, Py_ssize_t position) noexcept
