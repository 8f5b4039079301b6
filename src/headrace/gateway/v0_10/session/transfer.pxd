# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.messages.distributor cimport Publish
from headrace.gateway.messages.route cimport Route
from headrace.gateway.v0_10.session.context cimport SessionContext
from headrace.gateway.v0_10.session.transfer_header cimport TransferHeader
from headrace.model.counters cimport Counters
from headrace.model.message cimport C_KIND_TRANSFER, C_REDELIVERED
from headrace.protocol.endpoint cimport C_METHOD_WORK
from headrace.wire.property_bits cimport (
    DELIVERY_HAS_DISCARD_UNROUTABLE, DELIVERY_HAS_IMMEDIATE, DELIVERY_HAS_REDELIVERED,
    DELIVERY_HAS_TTL,
)

cdef Py_ssize_t ROUTES_MAX

@cython.final
cdef class ParsedTransfer(Publish):
    cdef SessionContext session
    cdef Counters counters
    cdef bytes args
    cdef bytes header
    cdef public long long valid_until_ms
    cdef public Route route
    cdef public dict routes
    cdef unsigned long long generation
    cdef public object fragment
    cdef public bint requires_accept
    cdef public bint takes_slow_path
    cdef public tuple publishing_id
    cdef bytes delivered_header
    cdef bytes prefix
    cdef long long ttl_ms
    cdef unsigned long long timestamp_s
    cdef bint discards_unroutable
    cdef bint immediate

    @cython.locals(session=SessionContext, parsed=TransferHeader, address=bytes, exchange=bytes, key=bytes,
                   now_ms=cython.longlong)
    cdef Route prepare(self, bytes args, bytes header)
    @cython.locals(session=SessionContext, route=Route, generation=cython.ulonglong)
    cpdef Route find_route(self, bytes address, bytes exchange, bytes key, bytes other_structs)
    @cython.locals(session=SessionContext)
    cdef Route delay(self, Route route, bytes address, long long due_ms)
    cpdef clear(self)
