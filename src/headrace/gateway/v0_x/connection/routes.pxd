# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.v0_x.peer cimport Peer
from headrace.gateway.messages.route cimport Route
from headrace.model.counters cimport Counters
from headrace.protocol.endpoint cimport C_METHOD_WORK
from headrace.wire.memory cimport cut

cdef Py_ssize_t ROUTES_MAX

@cython.final
cdef class Routes:
    cdef Peer connection
    cdef object context
    cdef Counters counters
    cdef public dict by_address
    cdef unsigned long long generation
    cdef public Route last

    @cython.locals(generation=cython.ulonglong, route=Route)
    cdef Route find(
        self, bytes key, const unsigned char* buffer, Py_ssize_t header, Py_ssize_t size
    )
    cpdef clear(self)
