# SPDX-License-Identifier: Apache-2.0
cimport cython

from headrace.spec.ids cimport BASIC_PUBLISH
from headrace.wire.property_bits cimport BASIC_HEADER
from headrace.wire.memory cimport put16, put32, put64
from headrace.wire.property_bits cimport (
    HAS_APP_ID, HAS_CONTENT_TYPE, HAS_CORRELATION_ID, HAS_DELIVERY_MODE, HAS_HEADERS,
    HAS_MESSAGE_ID, HAS_REPLY_TO, HAS_TYPE,
)

cdef Py_ssize_t SHORTSTR_SIZE_MAX
cdef unsigned char MANDATORY

@cython.final
cdef class Publication:
    cdef object _message
    cdef readonly bytes body
    cdef readonly bytes header
    cdef readonly object exchange
    cdef readonly object routing_key
    cdef readonly bint mandatory
    cdef readonly unsigned int ticket
    cdef readonly bytes method_payload
    cdef public object outcome
    cdef public object returned

    @cython.locals(outcome=object)
    cpdef settle(self, object error)

@cython.locals(exchange_bytes=bytes, key_bytes=bytes, prefix=bytearray, flags_byte=bytearray)
cpdef bytes encode_publish(object exchange, object routing_key, bint mandatory, unsigned int ticket)

@cython.locals(header=bytearray)
cpdef bytes encode_default_header(unsigned long long body_size)

@cython.locals(flags=cython.uint, fields=list, prefix=bytearray)
cpdef bytes encode_message_header(object message)

@cython.locals(encoded=bytes)
cdef bytes encode_shortstr(object text)
