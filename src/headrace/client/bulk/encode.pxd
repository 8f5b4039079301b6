# SPDX-License-Identifier: Apache-2.0
cimport cython

from headrace.spec.ids cimport BASIC_PUBLISH
from headrace.wire.property_bits cimport BASIC_HEADER
from headrace.wire.memory cimport copy, native, put16, put32, put64, start

cdef Py_ssize_t SHORTSTR_SIZE_MAX
cdef Py_ssize_t FRAME_OVERHEAD

cdef class Octets:
    cdef readonly const unsigned char[::1] data
    cdef readonly const unsigned char[::1] offsets
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t width
    cdef readonly Py_ssize_t first
    cdef readonly Py_ssize_t rows
    cdef readonly bint is_constant

    @cython.locals(
        offsets="const unsigned char *", index=Py_ssize_t, stop=Py_ssize_t, previous_end=Py_ssize_t,
        end=Py_ssize_t,
    )
    cdef check(self)

@cython.locals(payload_max=Py_ssize_t, frames=bytearray)
cpdef tuple encode_publishes(
    unsigned int number, Py_ssize_t frame_max, Octets exchange, Octets routing_key,
    Octets properties, Octets body, Py_ssize_t first, Py_ssize_t stop, unsigned int flags=*,
    Py_ssize_t octets_max=*
)

@cython.locals(
    total_size=Py_ssize_t, row=Py_ssize_t, exchange_len=Py_ssize_t, key_len=Py_ssize_t,
    properties_len=Py_ssize_t, body_len=Py_ssize_t,
)
cdef tuple measure_frames(
    Py_ssize_t payload_max, Octets exchange, Octets routing_key, Octets properties, Octets body,
    Py_ssize_t first, Py_ssize_t stop, Py_ssize_t octets_max
)

@cython.locals(offsets="const unsigned char *", index=Py_ssize_t)
cdef Py_ssize_t row_size(Octets column, Py_ssize_t row) noexcept
cdef Py_ssize_t row_start(Octets column, Py_ssize_t row) noexcept

@cython.locals(
    buffer="unsigned char *", position=Py_ssize_t, row=Py_ssize_t,
    exchanges="const unsigned char *", keys="const unsigned char *",
    headers="const unsigned char *", bodies="const unsigned char *",
    exchange_len=Py_ssize_t, key_len=Py_ssize_t, properties_len=Py_ssize_t, body_len=Py_ssize_t,
    begin=Py_ssize_t, body_end=Py_ssize_t, end=Py_ssize_t,
)
cdef write_frames(
    bytearray frames, unsigned int number, Py_ssize_t payload_max, Octets exchange,
    Octets routing_key, Octets properties, Octets body, Py_ssize_t first, Py_ssize_t stop,
    unsigned int flags
)
