# SPDX-License-Identifier: Apache-2.0
cimport cython

from headrace.spec.ids cimport BASIC_PUBLISH
from headrace.wire.property_bits cimport BASIC_HEADER
from headrace.wire.memory cimport copy, native, put16, put32, put64, start

cdef Py_ssize_t SHORT_MAX
cdef Py_ssize_t FRAME_ROOM

cdef class Octets:
    cdef readonly const unsigned char[::1] data
    cdef readonly const unsigned char[::1] offsets
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t width
    cdef readonly Py_ssize_t first
    cdef readonly Py_ssize_t rows
    cdef readonly bint one

    @cython.locals(
        offsets="const unsigned char *", i=Py_ssize_t, stop=Py_ssize_t, before=Py_ssize_t,
        end=Py_ssize_t,
    )
    cdef check(self)

@cython.locals(limit=Py_ssize_t, out=bytearray)
cpdef tuple encode_publishes(
    unsigned int number, Py_ssize_t frame_max, Octets exchange, Octets routing_key,
    Octets properties, Octets body, Py_ssize_t first, Py_ssize_t stop, unsigned int flags=*,
    Py_ssize_t octets_max=*
)

@cython.locals(
    total=Py_ssize_t, row=Py_ssize_t, exchange_len=Py_ssize_t, key_len=Py_ssize_t,
    properties_len=Py_ssize_t, body_len=Py_ssize_t,
)
cdef tuple measure(
    Py_ssize_t limit, Octets exchange, Octets routing_key, Octets properties, Octets body,
    Py_ssize_t first, Py_ssize_t stop, Py_ssize_t octets_max
)

@cython.locals(offsets="const unsigned char *", i=Py_ssize_t)
cdef Py_ssize_t length(Octets column, Py_ssize_t row) noexcept
cdef Py_ssize_t place(Octets column, Py_ssize_t row) noexcept

@cython.locals(
    b="unsigned char *", at=Py_ssize_t, row=Py_ssize_t, exchanges="const unsigned char *",
    keys="const unsigned char *", headers="const unsigned char *", bodies="const unsigned char *",
    exchange_len=Py_ssize_t, key_len=Py_ssize_t, properties_len=Py_ssize_t, body_len=Py_ssize_t,
    lo=Py_ssize_t, hi=Py_ssize_t, end=Py_ssize_t,
)
cdef fill(
    bytearray out, unsigned int number, Py_ssize_t limit, Octets exchange, Octets routing_key,
    Octets properties, Octets body, Py_ssize_t first, Py_ssize_t stop, unsigned int flags
)
