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
    cdef readonly object consumer
    cdef readonly object tag
    cdef readonly bint no_ack
    cdef public bint is_open
    cdef public Py_ssize_t count
    cdef public unsigned long long octets

cdef class Arrivals(DeliveryCollector):
    cdef object channel
    cdef object epoch
    cdef public object delivery_class
    cdef list notifiers
    cdef readonly dict inboxes
    cdef list filled_inboxes
    cdef list confirms
    cdef bint is_scheduled
    cdef BasicScan scan
    cdef object exchange
    cdef bytes exchange_octets
    cdef object routing_key
    cdef bytes routing_key_octets

    @cython.locals(
        tag_position=Py_ssize_t, exchange=Py_ssize_t, routing_key=Py_ssize_t, inbox=Inbox,
        scan=BasicScan,
    )
    cdef int put(
        self, const unsigned char* d, Py_ssize_t args, Py_ssize_t args_end, Py_ssize_t header,
        Py_ssize_t header_end, Py_ssize_t end, unsigned long long body_size,
    ) except -1
    cdef object make_delivery(self, const unsigned char* d, BasicScan scan)
    cdef int confirm(self, unsigned long long delivery_tag, int multiple) except -1
    cdef schedule(self)
    @cython.locals(filled_inboxes=list, confirms=list, inbox=Inbox)
    cpdef after_read(self)

cdef object decode_shortstr(const unsigned char* d, Py_ssize_t position, Py_ssize_t size)

@cython.locals(length=Py_ssize_t, chunks=list)
cdef bytes join_body(
    const unsigned char* d, Py_ssize_t position, Py_ssize_t end, unsigned long long size
)
