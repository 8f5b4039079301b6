# SPDX-License-Identifier: Apache-2.0
cimport cython

from headrace.protocol.v0_x.channel cimport DeliveryCollector
from headrace.wire.memory cimport cut, get32, get64, same
from headrace.wire.properties cimport BasicScan, scan_basic
from headrace.wire.table cimport check_utf8
from headrace.wire.property_bits cimport (
    HAS_PRIORITY, HAS_TIMESTAMP,
)

@cython.final
cdef class Inbox:
    cdef readonly object deliveries
    cdef readonly object taker
    cdef readonly object tag
    cdef readonly bint no_ack
    cdef public bint is_open
    cdef public Py_ssize_t count
    cdef public unsigned long long octets

cdef class Arrivals(DeliveryCollector):
    cdef object channel
    cdef object epoch
    cdef public object kind
    cdef list due
    cdef readonly dict inboxes
    cdef list filled
    cdef list confirms
    cdef bint is_due
    cdef BasicScan scan
    cdef object exchange
    cdef bytes exchange_octets
    cdef object routing_key
    cdef bytes routing_key_octets

    @cython.locals(
        at=Py_ssize_t, exchange=Py_ssize_t, routing_key=Py_ssize_t, inbox=Inbox, scan=BasicScan,
    )
    cdef int put(
        self, const unsigned char* d, Py_ssize_t args, Py_ssize_t args_end, Py_ssize_t header,
        Py_ssize_t header_end, Py_ssize_t end, unsigned long long body_size,
    ) except -1
    cdef object read(self, const unsigned char* d, BasicScan scan)
    cdef int confirm(self, unsigned long long delivery_tag, int multiple) except -1
    cdef become_due(self)
    @cython.locals(filled=list, confirms=list, inbox=Inbox)
    cpdef after_read(self)

cdef object text(const unsigned char* d, Py_ssize_t at, Py_ssize_t size)

@cython.locals(length=Py_ssize_t, pieces=list)
cdef bytes body_of(
    const unsigned char* d, Py_ssize_t at, Py_ssize_t end, unsigned long long size
)
