# SPDX-License-Identifier: Apache-2.0
cimport cython

from headrace.spec.ids cimport BASIC_PUBLISH
from headrace.wire.property_bits cimport BASIC_HEADER
from headrace.wire.memory cimport put16, put32, put64
from headrace.wire.property_bits cimport (
    HAS_APP_ID, HAS_CONTENT_TYPE, HAS_CORRELATION_ID, HAS_DELIVERY_MODE, HAS_HEADERS,
    HAS_MESSAGE_ID, HAS_REPLY_TO, HAS_TYPE,
)

cdef Py_ssize_t SHORT_MAX
cdef unsigned char MANDATORY

@cython.final
cdef class Publication:
    cdef object known
    cdef readonly bytes body
    cdef readonly bytes header
    cdef readonly object exchange
    cdef readonly object routing_key
    cdef readonly bint mandatory
    cdef readonly unsigned int ticket
    cdef readonly bytes address
    cdef public object confirmed
    cdef public object returned

    @cython.locals(confirmed=object)
    cpdef settle(self, object error)

@cython.locals(first=bytes, second=bytes, head=bytearray, end=bytearray)
cpdef bytes address_of(object exchange, object routing_key, bint mandatory, unsigned int ticket)

@cython.locals(header=bytearray)
cpdef bytes plain_header(unsigned long long body_size)

@cython.locals(flags=cython.uint, parts=list, head=bytearray)
cpdef bytes header_of(object message)

@cython.locals(raw=bytes)
cdef bytes short(object text)
